#include "attention/cuda/traits.h"

#include "attention/backend.h"
#include "attention/cuda/text.h"
#include "base/check.h"

namespace weft::attention::cuda {

KernelTraits traits(const AttentionSpec& spec, int num_multiprocessors) {
  KernelTraits traits = traits_of(spec);
  const int dims = spec.head_dim_qk + spec.head_dim_vo;
  // Costs in nanoseconds of a CTA, of which a multiprocessor has two: 12 bytes of memory a nanosecond, half of its lanes'
  // multiply-adds at 1.7 GHz. An item begins with a chain of loads, each of which takes a trip to memory.
  traits.classes = {{.kind = TileKind::direct,
                     .rows = plain_tile(spec).rows,
                     .row = dims * 0.1,
                     .token = dims * bits_of(spec.kv_dtype) / 8. / 12.,
                     .row_token = dims / 64.,
                     .item = 3000}};
  traits.thresholds = {.level_enough = 1.02,
                       .worth_another_order = 1.05,
                       .granules_per_worker = 4,
                       .shared_cost_at_most = 0.9,
                       .merge_row = 3 * traits.classes[0].row,
                       .prefix_tree_depth = 16};
  traits.default_workers = 2 * num_multiprocessors;
  traits.granule = 32;
  return traits;
}

DType compute_type(const AttentionSpec& spec, const std::string& architecture) {
  const DType compute = spec.compute.value_or(DType::fp32);
  check(compute == DType::fp32, ErrorCode::unsupported,
        "compute = {}: required products in {}, supported on {} fp32, missing {}; leave compute out",
        to_string(compute), to_string(compute), architecture, to_string(compute));
  return DType::fp32;
}

// Vectors, sums and the text of functors are float as on the host, whose math it is.
Rounding rounding(const AttentionSpec& spec, DType) { return backend_of(Device::cpu()).rounding(spec, DType::fp32); }

}  // namespace weft::attention::cuda
