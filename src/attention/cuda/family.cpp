#include "attention/cuda/family.h"

#include <utility>

namespace weft::attention::cuda {

std::span<const Family* const> families() {
  static const Family* const all[] = {&producer_family(), &wgmma_family(), &mma_family(), &latent_family(),
                                      &plain_family()};
  return all;
}

const Family& family_of(const AttentionSpec& spec, const Architecture& architecture) {
  for (const Family* family : families())
    if (const auto type = family->ability(spec, architecture).type; type && type == spec.compute.value_or(*type))
      return *family;
  return plain_family();
}

std::optional<DType> product_type(const AttentionSpec& spec, const Architecture& architecture) {
  for (const Family* family : families())
    if (const auto type = family->ability(spec, architecture).type; type && type != DType::fp32) return type;
  return {};
}

std::vector<Form> forms_of(const AttentionSpec& spec, const Architecture& architecture) {
  const Family& family = family_of(spec, architecture);
  std::vector<Form> forms = family.forms(spec, architecture);
  if (&family != &plain_family())
    for (Form& form : plain_family().forms(spec, architecture)) forms.push_back(std::move(form));
  return forms;
}

PlanThresholds thresholds_beside(const TileClass& small) {
  // Of 16 requests with 32 KV heads levels took 2.6 times a plain plan's time after 64 shared tokens (which save a
  // worker 5 us of costs), 0.6 after 1,024 (78 us).
  return {.level_enough = 1.1,
          .granules_per_worker = 4,
          .shared_cost_at_most = 0.9,
          .least_saving = 50000,
          .merge_row = 3 * small.row,
          .prefix_tree_depth = 16};
}

}  // namespace weft::attention::cuda
