#include "ops/cuda/kernels.h"

#include <algorithm>
#include <atomic>
#include <functional>

#include "base/check.h"
#include "base/once_map.h"
#include "jit/nvrtc/module.h"

namespace weft {
namespace text {
extern const char* const ops_elementwise;
extern const char* const ops_append;
extern const char* const ops_linear;
}  // namespace text

namespace ops {
namespace {

// What each of them can be given: every card has as much for a CTA.
constexpr int kMostShared = 64 << 10;

const char* element_of(DType dtype) {
  switch (dtype) {
    case DType::fp32: return "float";
    case DType::fp16: return "fp16";
    case DType::bf16: return "bf16";
    case DType::fp8_e4m3: return "fp8_e4m3";
    case DType::fp8_e5m2: return "fp8_e5m2";
    case DType::int8: return "signed char";
    case DType::int4: return "int4x2";
    default: throw InternalError("a type of cache without a kernel");
  }
}

const char* scaled_of(KvScales scales) {
  switch (scales) {
    case KvScales::none: return "none";
    case KvScales::tensor:
    case KvScales::head: return "given";
    case KvScales::token: return "token";
    case KvScales::token_group: return "token_group";
  }
  throw InternalError("scales of a cache without a kernel");
}

const char* name_of(WeightType type) {
  switch (type) {
    case WeightType::f32: return "F32";
    case WeightType::f16: return "F16";
    case WeightType::bf16: return "BF16";
    case WeightType::q8_0: return "Q8_0";
    case WeightType::q5_0: return "Q5_0";
    case WeightType::q4_0: return "Q4_0";
    case WeightType::q4_1: return "Q4_1";
    case WeightType::q4_k: return "Q4_K";
    case WeightType::q6_k: return "Q6_K";
  }
  throw InternalError("a weight type without a kernel");
}

struct Key {
  int card;
  std::string symbol;
  friend bool operator==(const Key&, const Key&) = default;
};

const cuda::Kernel& kernel_of(cuda::Card& card, const KernelText& of) {
  static auto* kernels = new OnceMap<Key, cuda::Kernel>;  // graphs hold them
  const Key key{card.index(), of.symbol};
  return kernels->get(std::hash<std::string>()(of.symbol) + static_cast<size_t>(card.index()), key, [&] {
    const jit::CudaModule loaded = jit::cuda_module(card, of.symbol, of.text());
    return cuda::find_kernel(*loaded.module, of.symbol.c_str(), of.most_shared_bytes);
  });
}

}  // namespace

KernelText norm_kernel() { return {"weft_norm", text::ops_elementwise, ""}; }
KernelText gate_kernel() { return {"weft_gate", text::ops_elementwise, ""}; }
KernelText cap_kernel() { return {"weft_cap", text::ops_elementwise, ""}; }
KernelText add_row_kernel() { return {"weft_add_row", text::ops_elementwise, ""}; }
KernelText rotate_at_kernel() { return {"weft_rotate_at", text::ops_elementwise, ""}; }
KernelText rotate_kernel() { return {"weft_rotate", text::ops_elementwise, ""}; }

KernelText append_kernel(DType cache, KvScales scales) {
  const char *element = element_of(cache), *scaled = scaled_of(scales);
  const std::string symbol = fmt::format("weft_append_{}_{}", to_string(cache), scaled);
  return {symbol, text::ops_append,
          fmt::format("using namespace weft;\nWEFT_APPEND({}, {}, {})\n", symbol, element, scaled)};
}

KernelText qkv_kernel(DType cache, KvScales scales, DType query) {
  const char *element = element_of(cache), *scaled = scaled_of(scales);
  const std::string symbol = fmt::format("weft_qkv_{}_{}_{}", to_string(cache), scaled, to_string(query));
  return {symbol, text::ops_append,
          fmt::format("using namespace weft;\nWEFT_QKV({}, {}, {}, {})\n", symbol, element, scaled, element_of(query)),
          kMostShared};
}

KernelText linear_kernel(WeightType weights, int rows, int outputs, bool gated) {
  const char* name = name_of(weights);
  const std::string symbol = fmt::format("weft_linear_{}_{}_{}{}", name, rows, outputs, gated ? "_gated" : "");
  return {symbol, text::ops_linear,
          fmt::format("WEFT_LINEAR({}, {}, {}, {}, {})\n", symbol, name, rows, outputs, gated), kMostShared};
}

KernelText embed_kernel(WeightType weights) {
  const char* name = name_of(weights);
  const std::string symbol = fmt::format("weft_embed_{}", name);
  return {symbol, text::ops_linear, fmt::format("WEFT_EMBED({}, {})\n", symbol, name)};
}

void prepare(cuda::Card& card, std::vector<KernelText> kernels, WorkerTeam& team) {
  std::ranges::sort(kernels, {}, &KernelText::symbol);
  const auto same = std::ranges::unique(kernels, {}, &KernelText::symbol);
  kernels.erase(same.begin(), same.end());
  std::atomic<size_t> next{0};
  team.run([&](int) {
    for (size_t i; (i = next.fetch_add(1)) < kernels.size();) kernel_of(card, kernels[i]);
  });
}

void launch_with(cuda::Card& card, const KernelText& of, const CardLaunch& how, Stream stream, const void* args) {
  if (how.ctas <= 0) return;
  const cuda::Kernel& kernel = kernel_of(card, of);
  cuda::Grid grid{.threads = kThreads, .shared_bytes = how.shared_bytes, .programmatic_launch = true};
  // All of them are there at once.
  const int64_t most = int64_t{cuda::ctas_per_multiprocessor(kernel, grid)} * card.num_multiprocessors();
  grid.ctas = static_cast<int>(std::min(how.ctas, std::max<int64_t>(most, 1)));
  cuda::launch_with(kernel, grid, static_cast<cuda::api::Stream>(stream.handle()), args);
}

}  // namespace ops
}  // namespace weft
