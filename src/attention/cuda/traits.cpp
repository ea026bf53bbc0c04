#include "attention/cuda/traits.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/backend.h"
#include "attention/cuda/family.h"
#include "attention/variant/text.h"
#include "base/check.h"

namespace weft::text {
extern const char* const k_cpu_float_bits;
extern const char* const k_reference_card_tanh;
}  // namespace weft::text

namespace weft::attention::cuda {
namespace {

// What each family of products says of a spec that it does not compute.
std::string why_no_products(const AttentionSpec& spec, const Architecture& architecture) {
  std::string all;
  for (const Family* family : families())
    if (const Ability ability = family->ability(spec, architecture); !ability.type)
      all += fmt::format("{}{}: {}", all.empty() ? "" : ", ", family->name(), ability.why_not);
  return all.empty() ? "that type" : all;
}

// The functors' math on a host, no more exact than a card's (tile/cuda/math.h).
std::string float_math_text() {
  return text_part("tile/cpu/float_bits.h", text::k_cpu_float_bits) +
         text_part("tile/variant/float_math.h", text::k_variant_float_math) +
         text_part("tile/variant/float_exp.h", text::k_variant_float_exp) +
         text_part("tile/reference/card_tanh.h", text::k_reference_card_tanh);
}

}  // namespace

DType compute_type(const AttentionSpec& spec, const Architecture& architecture) {
  const std::optional<DType> products = product_type(spec, architecture);
  const DType compute = spec.compute.value_or(products.value_or(DType::fp32));
  const auto refuse = [&](std::string_view what, std::string_view advice) {
    fail(ErrorCode::unsupported,
         "{}: required products of q {} and KV {} with head dims {} and {}, supported on {} {}, missing: {}; {}", what,
         to_string(spec.q_dtype), to_string(spec.kv_dtype), spec.head_dim_qk, spec.head_dim_vo, architecture.name,
         products ? fmt::format("fp32 and {}", to_string(*products)) : "fp32", why_no_products(spec, architecture),
         advice);
  };
  if (compute != DType::fp32 && compute != products)
    refuse(fmt::format("compute = {}", to_string(compute)), "leave compute out, or choose fp32");
  if (spec.loader == Loader::cp_async && compute == DType::fp32)
    refuse("loader = cp_async", "leave loader out, or choose elements");
  if (spec.loader == Loader::tma) {
    const Ability ability = producer_family().ability(spec, architecture);
    check(
        ability.type && compute == *ability.type, ErrorCode::unsupported,
        "loader = tma: required boxes of keys and values, supported for specs that the family of a producer computes, "
        "missing here: {}; leave loader out, or choose {}",
        ability.type ? fmt::format("compute = {}", to_string(compute)) : ability.why_not,
        compute == DType::fp32 ? "elements" : "cp_async");
  }
  return compute;
}

KernelTraits traits(const AttentionSpec& spec, const Architecture& architecture, int num_multiprocessors) {
  compute_type(spec, architecture);  // throws for one that is not there
  KernelTraits traits = traits_of(spec);
  const Family& family = family_of(spec, architecture);
  family.describe(spec, architecture, traits);
  const std::vector<Form> forms = family.forms(spec, architecture);
  // Those that run at once: one more would wait for another's end, its share cut off and merged for nothing.
  for (TileClass& tile_class : traits.classes) {
    const auto form = std::find_if(forms.begin(), forms.end(), [&](const Form& of_spec) {
      return (of_spec.tile_kinds & bit_of(tile_class.kind)) != 0;
    });
    for (int* const workers : {&tile_class.default_workers, &tile_class.workers_of_fixed_splits})
      if (*workers > 0) *workers = std::max(1, *workers * num_multiprocessors / form->ctas_of_worker);
  }
  traits.item_records = traits.walks_heads = true;
  return traits;
}

// Sums, and the functors' text, are float as on the host.
Rounding rounding(const AttentionSpec& spec, DType compute) {
  Rounding rounding = backend_of(Device::cpu()).rounding(spec, DType::fp32);
  rounding.tanh_ulps = 0;
  rounding.tanh_absolute = 4e-7;
  rounding.math = float_math_text();
  if (spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4) rounding.least_units = 2;
  if (compute == DType::bf16) rounding.probabilities = rounding.vectors = 0x1p-8;
  if (compute == DType::fp16) rounding.probabilities = rounding.vectors = 0x1p-11;
  return rounding;
}

}  // namespace weft::attention::cuda
