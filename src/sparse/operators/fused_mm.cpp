// FusedMM (Rahman, Sujon, Azad, 2021): a score for every edge and what it weighs, no score ever stored.
#include "base/check.h"
#include "sparse/operators/card.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/ready.h"
#include "sparse/operators/register_tiles.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {
namespace {

constexpr const char* kFusedMmProgram = R"(program fused_mm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  X = buffer(I, K): DTYPE
  Y = buffer(J_, K): DTYPE
  S = temporary(I, J): fp32
  W = temporary(I, J): fp32
  O = buffer(I, K): DTYPE
  iterate scores(I, J, K) "SSR" as (i, j, k):
    init:
      S[i, j] = 0.0
    S[i, j] = S[i, j] + X[i, k] * Y[j, k]
  iterate weights(I, J) "SS" as (i, j):
    W[i, j] = 1.0 / (1.0 + exp(-S[i, j]))
  iterate sums(I, J, K) "SRS" as (i, j, k):
    init:
      O[i, k] = 0.0
    O[i, k] = O[i, k] + W[i, j] * Y[j, k]
)";

}  // namespace

ReadyProgram fused_mm_program(int64_t feat, DType dtype, const VectorUnit& unit) {
  if (unit.is_of_card)
    return {with_dtype(kFusedMmProgram, dtype),
            card_edges({.iteration = "scores", .feat = feat, .dtype = dtype}) + card_elements("weights", "i", "j") +
                card_rows({.iteration = "sums", .cta = "i", .reductions = {"j"}, .feat = feat, .dtype = dtype}),
            {{"feat", feat}}};
  std::string text = "lower()\n";
  text += partial_sums("scores", feat, unit);
  // All features of a row at once: each score is computed once.
  if (has_vectors(feat, unit.lanes)) {
    text += fmt::format("sums_ku, sums_ki = split(sums.k, {})\nvectorize(sums_ki)\n", unit.lanes);
    if (feat <= 64 * unit.lanes) text += "unroll(sums_ku)\n";
  }
  text += fmt::format("annotate(sums.j, prefetch, {})\n", default_prefetch(feat));
  text += "compute_at(weights, sums.j)\ncompute_at(scores, sums.j)\nset_scope(S, register)\nset_scope(W, register)\n";
  text += "cache_write(sums.i, register)\nparallel(sums.i)\n";
  return {with_dtype(kFusedMmProgram, dtype), text, {{"feat", feat}}};
}

void fused_mm(const Structure& graph, const TensorView& x, const TensorView& y, const TensorView& o, Stream stream) {
  check_rank(x, "x", 2, "[m, feat]");
  const DType dtype = common_dtype({{"x", &x}, {"y", &y}, {"o", &o}});
  kept_operator(fused_mm_program(last_extent(x), dtype, vector_unit(device_of(x))), device_of(x))
      .run({.structures = {{"J", graph}}, .buffers = {{"X", x}, {"Y", y}, {"O", o}}}, stream);
}

}  // namespace weft::sparse
