#include "attention/cuda/text.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/cuda/kernels/args.h"
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

// Of Plain::Shared, which the kernel's text holds against it.
int plain_shared_bytes(const AttentionSpec& spec, const PlainTile& tile) {
  const int most = std::max(spec.head_dim_qk, spec.head_dim_vo), warps = tile.threads / 32;
  const int floats = tile.rows * spec.head_dim_qk + tile.keys * (most + 4) + tile.keys * (tile.rows + 4) +
                     warps * most + 4 * tile.rows + tile.threads;
  return 4 * floats + 64 * (tile.rows + tile.keys);
}

}  // namespace

PlainTile plain_tile(const AttentionSpec& spec) {
  const int most = std::max(spec.head_dim_qk, spec.head_dim_vo);
  return {.rows = most <= 256 ? 16 : 8, .keys = most <= 128 ? 32 : most <= 256 ? 16 : 8, .threads = 128};
}

KernelText attend_text(const AttentionSpec& spec) {
  const LeafParts parts = leaf_parts(spec);
  const PlainTile tile = plain_tile(spec);
  const int slots = static_cast<int>(Params(spec).num_slots());
  check(
      slots <= kMaxSlots, ErrorCode::unsupported,
      "variant '{}': its scalars and tensors take {} words; a launch takes at most {}: declare fewer, or of lower rank",
      spec.variant.name, slots, kMaxSlots);
  KernelText text{.file = "attention/cuda/kernels/attend.h",
                  .head = weft::text::k_cuda_attend,
                  .threads = tile.threads,
                  .shared_bytes = plain_shared_bytes(spec, tile)};
  text.instances = leaf_body(parts, "leaf");
  text.instances += fmt::format(
      R"(#line 1 "weft/attend"
namespace weft::attention::cuda {{
struct Spec {{
  using Query = {};
  using Cache = {};
  using Output = {};
  static constexpr int kDimQk = {}, kDimVo = {}, kRows = {}, kKeys = {}, kThreads = {}, kSlots = {};
  static constexpr bool kLatent = {};
  static constexpr Scaling kScaling = Scaling::{};
}};
using Variant = Functors<::leaf::P, {}, {}>;
using Path = Plain<Spec, Variant>;
static_assert(sizeof(Path::Shared) <= {}, "cuda/text.cpp gives the CTA too little shared memory");
}}  // namespace weft::attention::cuda
)",
      element_type(spec.q_dtype), element_type(spec.kv_dtype), element_type(spec.o_dtype), spec.head_dim_qk,
      spec.head_dim_vo, tile.rows, tile.keys, tile.threads, slots, spec.kv_form == KvForm::latent,
      scaling(spec.kv_scales), variant_class(parts, "::leaf"), mask_class(parts, "::leaf"), text.shared_bytes);
  text.instances += fmt::format(
      "WEFT_KERNEL({}, 1) void weft_attend(WEFT_PARAM weft::attention::cuda::Args<{}> args) {{\n"
      "  using namespace weft::attention::cuda;\n  attend<Spec, Variant, Path>(args);\n}}\n",
      tile.threads, slots);
  return text;
}

KernelText merge_states_text(DType in, DType out) {
  KernelText text{
      .file = "attention/cuda/kernels/merge_states.h", .head = weft::text::k_cuda_merge_states, .threads = 128};
  text.instances = fmt::format(
      "WEFT_KERNEL(128, 1) void weft_merge_states(WEFT_PARAM weft::attention::cuda::MergeArgs args) {{\n"
      "  weft::attention::cuda::merge_states<{}, {}>(args);\n}}\n",
      element_type(in), element_type(out));
  return text;
}

}  // namespace weft::attention::cuda
