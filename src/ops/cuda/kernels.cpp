#include "ops/cuda/kernels.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/tiled_weights.h"

namespace weft {
namespace text {
extern const char* const ops_elementwise;
extern const char* const ops_append;
extern const char* const ops_draw;
extern const char* const ops_greedy;
extern const char* const ops_quest;
extern const char* const ops_linear;
extern const char* const ops_tiled_linear;
extern const char* const ops_tiled_many;
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
    case WeightType::q4_0:
    case WeightType::q4_g128: return "Q4_0";  // as it lies on a card
    case WeightType::q4_1: return "Q4_1";
    case WeightType::q4_k: return "Q4_K";
    case WeightType::q6_k: return "Q6_K";
  }
  throw InternalError("a weight type without a kernel");
}

KernelText elementwise(const char* symbol) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/elementwise.h",
          .head = text::ops_elementwise,
          .threads = kThreads};
}
KernelText of_caches(const std::string& symbol, std::string instance, int shared_bytes) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/append.h",
          .head = text::ops_append,
          .instances = "using namespace weft;\n" + std::move(instance),
          .threads = kThreads,
          .shared_bytes = shared_bytes};
}
KernelText of_draws(const std::string& symbol, const char* macro) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/draw.h",
          .head = text::ops_draw,
          .instances = fmt::format("{}({})\n", macro, symbol),
          .threads = 32 * kDrawWarps,
          .shared_bytes = static_cast<int>(sizeof(DrawShared))};
}
KernelText of_tiles(const std::string& symbol, std::string instance, int threads, int shared_bytes) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/tiled_linear.h",
          .head = text::ops_tiled_linear,
          .instances = std::move(instance),
          .threads = threads,
          .shared_bytes = shared_bytes};
}
KernelText of_quest(const std::string& symbol, std::string instance, int shared_bytes) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/quest.h",
          .head = text::ops_quest,
          .instances = "using namespace weft;\n" + std::move(instance),
          .threads = kQuestThreads,
          .shared_bytes = shared_bytes};
}
KernelText of_weights(const std::string& symbol, std::string instance, int shared_bytes) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/linear.h",
          .head = text::ops_linear,
          .instances = std::move(instance),
          .threads = kThreads,
          .shared_bytes = shared_bytes};
}

}  // namespace

KernelText norm_kernel() { return elementwise("weft_norm"); }
KernelText gate_kernel() { return elementwise("weft_gate"); }
KernelText cap_kernel() { return elementwise("weft_cap"); }
KernelText add_row_kernel() { return elementwise("weft_add_row"); }
KernelText rotate_at_kernel() { return elementwise("weft_rotate_at"); }
KernelText rotate_kernel() { return elementwise("weft_rotate"); }

KernelText greedy_kernel() {
  return {.name = "weft_greedy",
          .symbol = "weft_greedy",
          .file = "ops/cuda/kernels/greedy.h",
          .head = text::ops_greedy,
          .threads = kThreads,
          .shared_bytes = kGreedySharedBytes};
}

KernelText draw_kernel() { return of_draws("weft_draw", "WEFT_DRAW"); }
KernelText draw_probabilities_kernel() { return of_draws("weft_draw_probabilities", "WEFT_DRAW_PROBABILITIES"); }

KernelText append_kernel(DType cache, KvScales scales) {
  const char *element = element_of(cache), *scaled = scaled_of(scales);
  const std::string symbol = fmt::format("weft_append_{}_{}", to_string(cache), scaled);
  return of_caches(symbol, fmt::format("WEFT_APPEND({}, {}, {})\n", symbol, element, scaled), 0);
}

KernelText qkv_kernel(DType cache, KvScales scales, DType query) {
  const char *element = element_of(cache), *scaled = scaled_of(scales);
  const std::string symbol = fmt::format("weft_qkv_{}_{}_{}", to_string(cache), scaled, to_string(query));
  return of_caches(symbol, fmt::format("WEFT_QKV({}, {}, {}, {})\n", symbol, element, scaled, element_of(query)),
                   kMostShared);
}

KernelText summarise_kernel(DType keys, DType summaries) {
  const std::string symbol = fmt::format("weft_summarise_{}_{}", to_string(keys), to_string(summaries));
  return of_quest(symbol, fmt::format("WEFT_SUMMARISE({}, {}, {})\n", symbol, element_of(keys), element_of(summaries)),
                  0);
}

KernelText choose_pages_kernel(DType queries, DType summaries, int rows) {
  const std::string symbol = fmt::format("weft_choose_pages_{}_{}_{}", to_string(queries), to_string(summaries), rows);
  return of_quest(symbol,
                  fmt::format("WEFT_CHOOSE({}, ops::Bounds<{}, {}, {}>)\n", symbol, element_of(queries),
                              element_of(summaries), rows),
                  choose_shared_bytes(4 * kQueryWords));
}

KernelText choose_by_products_kernel(int dim) {
  const std::string symbol = fmt::format("weft_choose_pages_products_{}", dim);
  return of_quest(symbol, fmt::format("WEFT_CHOOSE({}, ops::ProductBounds<{}>)\n", symbol, dim),
                  choose_shared_bytes(product_shared_bytes(dim)));
}

KernelText set_pages_kernel() { return of_quest("weft_set_pages", "WEFT_SET_PAGES(weft_set_pages)\n", 0); }

KernelText linear_kernel(WeightType weights, int rows, int outputs, bool gated) {
  const char* name = name_of(weights);
  const std::string symbol = fmt::format("weft_linear_{}_{}_{}{}", name, rows, outputs, gated ? "_gated" : "");
  return of_weights(symbol, fmt::format("WEFT_LINEAR({}, {}, {}, {}, {})\n", symbol, name, rows, outputs, gated),
                    kMostShared);
}

KernelText embed_kernel(WeightType weights) {
  const char* name = name_of(weights);
  const std::string symbol = fmt::format("weft_embed_{}", name);
  return of_weights(symbol, fmt::format("WEFT_EMBED({}, {})\n", symbol, name), 0);
}

KernelText tiled_linear_kernel(const TiledLinearForm& form) {
  const std::string_view tile = tile_struct(form.weights);
  const std::string symbol = fmt::format("weft_tiled_linear_{}_{}x{}_{}{}_{}x{}", tile, form.rows, form.parts,
                                         form.bands, form.gated ? "_gated" : "", form.warps, form.ahead);
  return of_tiles(symbol,
                  fmt::format("WEFT_TILED_LINEAR({}, {}, {}, {}, {}, {}, {}, {})\n", symbol, tile, form.rows,
                              form.parts, form.bands, form.gated, form.warps, form.ahead),
                  32 * form.warps, form.shared_bytes);
}

KernelText tiled_embed_kernel(WeightType weights) {
  const std::string_view tile = tile_struct(weights);
  const std::string symbol = fmt::format("weft_tiled_embed_{}", tile);
  return of_tiles(symbol, fmt::format("WEFT_TILED_EMBED({}, {})\n", symbol, tile), kThreads, 0);
}

namespace {

KernelText of_many(const std::string& symbol, std::string instance, int shared_bytes) {
  return {.name = symbol,
          .symbol = symbol,
          .file = "ops/cuda/kernels/tiled_many.h",
          .head = text::ops_tiled_many,
          .instances = std::move(instance),
          .threads = kThreads,
          .shared_bytes = shared_bytes};
}

}  // namespace

KernelText tiled_many_kernel(WeightType weights, int parts) {
  const std::string_view tile = tile_struct(weights);
  // As the kernel lays it out: stages of x, 64 rows of a chunk each.
  const int chunk = std::max(64, static_cast<int>(tile_piece(weights).cols)), stages = chunk * parts > 192 ? 2 : 3;
  const int ctas = parts == 2 && chunk == 64 ? 2 : 1;  // by the registers that they take
  const std::string symbol = fmt::format("weft_tiled_many_{}_{}", tile, parts);
  return of_many(symbol, fmt::format("WEFT_TILED_MANY({}, {}, {}, {})\n", symbol, tile, parts, ctas),
                 stages * parts * 64 * (chunk + 16) * 2);
}

KernelText split_kernel(int parts) {
  const std::string symbol = fmt::format("weft_split_{}", parts);
  return of_many(symbol, fmt::format("WEFT_SPLIT({}, {})\n", symbol, parts), 0);
}

KernelText sum_splits_kernel() { return of_many("weft_sum_splits", "WEFT_SUM_SPLITS(weft_sum_splits)\n", 0); }

}  // namespace ops
}  // namespace weft
