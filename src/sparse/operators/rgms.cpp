// Relational gather-matmul-scatter: Y[i] = sum over relations r and edges (i, j) of A[r, i, j] X[j] W[r]. RGCN layers,
// and sparse convolution, where every offset of the kernel is a relation.
//
// Rows stand in tiles, and below a tile by relation, so that a relation's weights serve the tile from the nearest
// cache and no two workers write one row.
#include "base/check.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/card.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/relation_groups.h"
#include "sparse/operators/searched.h"
#include "sparse/operators/vector_unit.h"
#include "sparse/tune/search.h"

namespace weft::sparse {
namespace {

// TILE is a literal.
constexpr const char* kRgmsProgram =
    R"(program rgms(tiles, stored, relations, pairs, m, rows, n, nnz, feat_in, feat_out):
  O = dense_fixed(1)
  P = sparse_variable(O, tiles, stored, indptr=p_indptr, indices=p_indices)
  R = sparse_variable(P, relations, pairs, indptr=r_indptr, indices=r_indices)
  II = sparse_variable(R, TILE, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(II, n, nnz, indptr=j_indptr, indices=j_indices)
  M = dense_fixed(m)
  N = dense_fixed(n)
  R_ = dense_fixed(relations)
  L = dense_fixed(feat_in)
  K = dense_fixed(feat_out)
  A = buffer(O, P, R, II, J): DTYPE
  X = buffer(N, L): DTYPE
  W = buffer(R_, L, K): DTYPE
  Gathered = temporary(O, P, R, II, L): fp32
  Y = buffer(M, K): DTYPE
  iterate clear(M, K) "SS" as (x, y):
    Y[x, y] = 0.0
  iterate gather(O, P, R, II, J, L) "SSSSRS" as (o, p, r, ii, j, l):
    init:
      Gathered[o, p, r, ii, l] = 0.0
    Gathered[o, p, r, ii, l] = Gathered[o, p, r, ii, l] + A[o, p, r, ii, j] * X[j, l]
  iterate multiply(O, P, R, II, L, K) "RSRSRS" as (o, p, r, ii, l, k) where p * TILE + ii < m:
    Y[p * TILE + ii, k] = Y[p * TILE + ii, k] + Gathered[o, p, r, ii, l] * W[r, l, k]
)";

// Sums over relations in fp32, rounded once.
std::string with_rounding(std::string text) {
  text = replaced(text, "Y[", "Sums[");
  text = replaced(text, "  Y = buffer(M, K)", "  Sums = temporary(M, K): fp32\n  Y = buffer(M, K)");
  return text + "  iterate round(M, K) \"SS\" as (x, y):\n    Y[x, y] = Sums[x, y]\n";
}

// A tile a CTA: what a row gathers lies in shared memory, and each thread adds to features of its own.
std::string on_cards(DType dtype) {
  return card_elements("clear", "x", "y") + (dtype == DType::bf16 ? card_elements("round", "x", "y") : "") +
         "reorder(multiply.k, multiply.l)\ncompute_at(gather, multiply.ii)\nset_scope(Gathered, shared)\n"
         "bind(multiply.p, blockIdx.x)\nbind(gather.l, threadIdx.x)\nbind(multiply.k, threadIdx.x)\n"
         "cache_write(multiply.k, register)\n";
}

}  // namespace

ReadyProgram rgms_program(int64_t tile, bool has_values, int64_t feat_in, int64_t feat_out, DType dtype,
                          const VectorUnit& unit, int64_t vectors, int64_t prefetch) {
  std::string text = replaced(with_dtype(kRgmsProgram, dtype), "TILE", std::to_string(tile));
  if (!has_values) {
    text = replaced(text, "A[o, p, r, ii, j] * ", "");
    text = replaced(text, fmt::format("  A = buffer(O, P, R, II, J): {}\n", to_string(dtype)), "");
  }
  std::string schedule = "lower()\n";
  if (dtype == DType::bf16) text = with_rounding(text);
  if (unit.is_of_card) return {text, schedule + on_cards(dtype), {{"feat_in", feat_in}, {"feat_out", feat_out}}};
  if (dtype == DType::bf16) schedule += "parallel(round.x)\n";
  if (has_vectors(feat_in, unit.lanes))
    schedule += fmt::format("gather_lo, gather_li = split(gather.l, {})\nvectorize(gather_li)\n", unit.lanes);
  schedule += tiled({.block = "multiply",
                     .feat = feat_out,
                     .within = {"l"},
                     .around = "multiply.ii",
                     .unit = unit,
                     .most_vectors = vectors});
  if (prefetch > 0) schedule += fmt::format("annotate(gather.j, prefetch, {})\n", prefetch);
  schedule +=
      "compute_at(gather, multiply.ii)\nset_scope(Gathered, register)\nparallel(clear.x)\nparallel(multiply.p)\n";
  return {text, schedule, {{"feat_in", feat_in}, {"feat_out", feat_out}}};
}

Converted relational_from_coo(const CooTensor& edges, int64_t tile) {
  check(edges.extents.size() == 3 && edges.coordinates.size() == 3, ErrorCode::invalid_argument,
        "edges: there are {} dimensions; three are expected: relation, row, column", edges.extents.size());
  check(tile >= 1 && tile <= 65536, ErrorCode::invalid_argument, "tile: is {}; 1 to 65536 are allowed", tile);
  CooTensor tiled{
      .extents = {(edges.extents[1] + tile - 1) / tile, edges.extents[0], tile, edges.extents[2]},
      .coordinates = {edges.coordinates[1], edges.coordinates[0], edges.coordinates[1], edges.coordinates[2]}};
  for (size_t e = 0; e < edges.coordinates[1].size(); ++e) {
    const int64_t row = edges.coordinates[1][e];
    check(row >= 0 && row < edges.extents[1], ErrorCode::invalid_argument,
          "edges: element {} is of row {}, outside of {}", e, row, edges.extents[1]);
    tiled.coordinates[0][e] = static_cast<int32_t>(row / tile);
    tiled.coordinates[2][e] = static_cast<int32_t>(row % tile);
  }
  return csf_from_coo(tiled);
}

std::string rgms_call(bool has_values, int64_t feat_in, int64_t feat_out, DType dtype, int64_t workers) {
  return fmt::format("rgms {} {} {} {} {}", has_values, feat_in, feat_out, to_string(dtype), workers);
}

int64_t likely_rgms_prefetch(int64_t feat_in, DType dtype) { return feat_in * bits_of(dtype) / 8 <= 256 ? 8 : 0; }

void run_rgms(const Structure& edges, const RunArguments& arguments, const std::string& candidate, Stream stream) {
  const TensorView &x = arguments.buffers.at("X"), &w = arguments.buffers.at("W");
  const int64_t feat_in = w.shape(1), feat_out = w.shape(2);
  const Device device = device_of(x);
  if (device != Device::cpu() && has_relation_groups(unit_of(device), feat_in, feat_out, x.dtype()))
    return run_in_groups(edges, arguments, stream);
  const int64_t prefetch = number_in(candidate, "prefetch", likely_rgms_prefetch(feat_in, x.dtype()));
  RunArguments of_tiles = arguments;
  of_tiles.structures = {{"J", edges}};
  kept_operator(rgms_program(data_of(edges, "edges").levels[3].length, arguments.buffers.contains("A"), feat_in,
                             feat_out, x.dtype(), vector_unit(device), number_in(candidate, "vectors", 4), prefetch),
                device)
      .run(of_tiles, stream);
}

void rgms(const Structure& edges, const TensorView& values, const TensorView& x, const TensorView& w,
          const TensorView& y, Stream stream) {
  check_rank(x, "x", 2, "[n, feat_in]");
  check_rank(w, "w", 3, "[relations, feat_in, feat_out]");
  check_rank(y, "y", 2, "[m, feat_out]");
  const Structure::Data& data = data_of(edges, "edges");
  check(data.levels.size() == 5, ErrorCode::invalid_argument,
        "edges: the structure has {} levels; relational_from_coo makes the one of 5 that is expected",
        data.levels.size());
  for (size_t l = 0; l < data.levels.size(); ++l) {
    const Level& level = data.levels[l];
    const bool is_expected = l == 0 ? !level.is_sparse && level.length == 1 : level.is_sparse && level.is_variable;
    check(is_expected, ErrorCode::invalid_argument,
          "edges: axis {} of the structure is {} and {}, of length {}; required: {}, as relational_from_coo makes it",
          l, level.is_sparse ? "sparse" : "dense", level.is_variable ? "variable" : "fixed", level.length,
          l == 0 ? "a dense one of length 1" : "sparse and variable");
  }
  const int64_t tile = data.levels[3].length, tiles = data.levels[1].length;
  check((y.shape(0) + tile - 1) / tile == tiles, ErrorCode::invalid_shape,
        "y: has {} rows; the structure has {} tiles of {}", y.shape(0), tiles, tile);
  const DType dtype = common_dtype({{"x", &x}, {"w", &w}, {"y", &y}});
  RunArguments arguments{.buffers = {{"X", x}, {"W", w}, {"Y", y}}};
  if (values) arguments.buffers["A"] = values;
  const Device device = device_of(x);
  const std::string call =
      rgms_call(static_cast<bool>(values), w.shape(1), w.shape(2), dtype, workers_of(device, stream));
  run_rgms(edges, arguments, tuned_candidate(data, call, device), stream);
}

}  // namespace weft::sparse
