#include "attention/cuda/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/cuda/kernels/args.h"
#include "attention/cuda/kernels/even_args.h"
#include "attention/cuda/kernels/locate_args.h"
#include "attention/params.h"
#include "attention/variant/text.h"
#include "base/check.h"

namespace weft::attention::cuda {
namespace {

std::string_view element_type(DType dtype) {
  switch (dtype) {
    case DType::fp16: return "weft::fp16";
    case DType::bf16: return "weft::bf16";
    case DType::fp8_e4m3: return "weft::fp8_e4m3";
    case DType::fp8_e5m2: return "weft::fp8_e5m2";
    case DType::int8: return "signed char";
    case DType::int4: return "weft::int4x2";
    default: return "float";
  }
}

std::string_view scaling(KvScales scales) {
  return scales == KvScales::none ? "none" : scales < KvScales::token ? "head" : "token";
}

}  // namespace

std::string kernel_name(const AttentionSpec& spec, const Architecture& architecture, const Form& form) {
  const std::string_view variant = spec.variant.name.empty() ? "plain" : std::string_view(spec.variant.name);
  return fmt::format("attention {} {} hd{} {} {}", variant, to_string(spec.kv_dtype), spec.head_dim_qk, form.name,
                     architecture.name);
}

namespace {

// What attends and what merges share: the spec, and the functors.
KernelText text_of_spec(const AttentionSpec& spec, const Architecture& architecture, const Form& form) {
  const LeafParts parts = leaf_parts(spec);
  const int slots = static_cast<int>(Params(spec).num_slots());
  check(
      slots <= kMaxSlots, ErrorCode::unsupported,
      "variant '{}': its scalars and tensors take {} words; a launch takes at most {}: declare fewer, or of lower rank",
      spec.variant.name, slots, kMaxSlots);
  KernelText text{.name = kernel_name(spec, architecture, form),
                  .symbol = {},
                  .file = "attention/cuda/kernels/attend.h",
                  .head = weft::text::k_cuda_attend,
                  // Functors divide: exactly rounded, a quotient is ten instructions and a call, for each score.
                  .flags = {"--use_fast_math"}};
  text.instances = leaf_body(parts, "leaf", "single");
  text.instances += fmt::format(
      R"(#line 1 "weft/attend"
namespace weft::attention::cuda {{
struct Spec {{
  using Query = {};
  using Cache = {};
  using Output = {};
  static constexpr int kDimQk = {}, kDimVo = {}, kThreads = {}, kLoaders = {}, kSlots = {}, kPageSize = {};
  static constexpr int kPartners = {};
  static constexpr bool kLatent = {}, kBlockSparse = {}, kPaged = {};
  static constexpr Scaling kScaling = Scaling::{};
  static constexpr int kScaleGroup = {};
{}}};
using Variant = Functors<::leaf::P, {}, {}>;
}}  // namespace weft::attention::cuda
)",
      element_type(spec.q_dtype), element_type(spec.kv_dtype), element_type(spec.o_dtype), spec.head_dim_qk,
      spec.head_dim_vo, form.threads - form.loaders, form.loaders, slots, spec.page_size, form.ctas_of_worker,
      spec.kv_form == KvForm::latent, spec.kv_form == KvForm::block_sparse,
      spec.kv_form != KvForm::ragged && spec.kv_form != KvForm::padded, scaling(spec.kv_scales),
      std::max(spec.kv_scale_group, 1), form.constants, variant_class(parts, "::leaf"), mask_class(parts, "::leaf"));
  return text;
}

// The kernel behind it, which calls `call`.
void add_kernel(KernelText& text, const AttentionSpec& spec, const Form& form, std::string_view call) {
  text.instances += fmt::format(
      "WEFT_KERNEL({}, {}) void {}(WEFT_PARAM weft::attention::cuda::{}<{}> args) {{\n"
      "  using namespace weft::attention::cuda;\n  {}(args);\n}}\n",
      text.threads, form.resident_ctas > 2 ? form.resident_ctas : 1, text.symbol,
      form.loader == Loader::tma ? "BoxArgs" : "Args", Params(spec).num_slots(), call);
}

}  // namespace

KernelText attend_text(const AttentionSpec& spec, const Architecture& architecture, const Form& form) {
  KernelText text = text_of_spec(spec, architecture, form);
  text.symbol = "weft_attend";
  text.threads = form.threads;
  text.shared_bytes = form.shared_bytes;
  text.instances += fmt::format(
      "namespace weft::attention::cuda {{\nusing Path = {};\n"
      "static_assert(Path::kSharedBytes <= {}, \"the form gives the CTA too little\");\n"
      "}}  // namespace weft::attention::cuda\n",
      form.type, text.shared_bytes);
  add_kernel(text, spec, form, form.loaders > 0 ? "Path::run" : "attend<Spec, Variant, Path>");
  return text;
}

KernelText merge_apart_text(const AttentionSpec& spec, const Architecture& architecture, const Form& form) {
  KernelText text = text_of_spec(spec, architecture, form);
  text.name += " merge";
  text.symbol = "weft_merge_apart";
  text.threads = kMergeThreads;
  text.shared_bytes = kMergeSharedBytes;
  add_kernel(text, spec, form, "merge_apart<Spec, Variant>");
  return text;
}

KernelText merge_states_text(DType in, DType out, const Architecture& architecture) {
  KernelText text{.name = fmt::format("merge_states {}", architecture.name),
                  .symbol = "weft_merge_states",
                  .file = "attention/cuda/kernels/merge_states.h",
                  .head = weft::text::k_cuda_merge_states,
                  .threads = 128};
  text.instances = fmt::format(
      "WEFT_KERNEL(128, 1) void weft_merge_states(WEFT_PARAM weft::attention::cuda::MergeArgs args) {{\n"
      "  weft::attention::cuda::merge_states<{}, {}>(args);\n}}\n",
      element_type(in), element_type(out));
  return text;
}

KernelText plan_even_text(const Architecture& architecture) {
  return {.name = fmt::format("plan_even {}", architecture.name),
          .symbol = "weft_plan_even",
          .file = "attention/cuda/kernels/plan_even.h",
          .head = weft::text::k_cuda_plan_even,
          .instances = fmt::format(
              "static_assert(weft::attention::cuda::PlanEven::kSharedBytes == {}, \"kEvenSharedBytes is another\");\n"
              "WEFT_KERNEL({}, 1) void weft_plan_even(WEFT_PARAM weft::attention::cuda::EvenArgs args) {{\n"
              "  weft::attention::cuda::PlanEven(args).run();\n}}\n",
              kEvenSharedBytes, kEvenThreads),
          .threads = kEvenThreads,
          .shared_bytes = kEvenSharedBytes};
}

KernelText locate_rows_text(const Architecture& architecture) {
  return {.name = fmt::format("locate_rows {}", architecture.name),
          .symbol = "weft_locate_rows",
          .file = "attention/cuda/kernels/locate_rows.h",
          .head = weft::text::k_cuda_locate_rows,
          .instances = fmt::format(
              "WEFT_KERNEL({}, 1) void weft_locate_rows(WEFT_PARAM weft::attention::cuda::LocateArgs args) {{\n"
              "  weft::attention::cuda::locate_rows(args);\n}}\n",
              kLocateThreads),
          .threads = kLocateThreads};
}

}  // namespace weft::attention::cuda
