// O = A * (X Y^T) where A stores something.
#include "base/check.h"
#include "base/format_tensor.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/kept.h"
#include "sparse/tune/search.h"

namespace weft::sparse {

const char* const kSddmmProgram = R"(program sddmm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  X = buffer(I, K): fp32
  Y = buffer(J_, K): fp32
  O = buffer(I, J): fp32
  iterate sddmm(I, J, K) "SSR" as (i, j, k):
    init:
      O[i, j] = 0.0
    O[i, j] = O[i, j] + A[i, j] * (X[i, k] * Y[j, k])
)";

// Two stages of reduction: a partial sum a lane, then the sum of the lanes. Sums are in fp32 whatever the tensors are.
std::string sddmm_schedule(int64_t feat, DType dtype, const VectorUnit& unit, int64_t prefetch, int64_t group) {
  std::string text = "lower()\n";
  const RowTiles tiles = row_tiles(feat, unit);
  const bool two_stages = tiles.lanes > 1 && feat > tiles.lanes;
  if (two_stages) {
    text += fmt::format("ko, ki = split(sddmm.k, {})\nrfactor(ki, register)\n", tiles.lanes);
    text += "vectorize(sddmm_zero.ki)\nvectorize(ki)\nvectorize(sddmm_sum.ki_sum)\n";
    if (feat / tiles.lanes <= unit.registers) text += "unroll(ko)\n";
    if (prefetch > 0) text += fmt::format("annotate(sddmm.j, prefetch, {})\n", prefetch);
  }
  if (dtype == DType::bf16)
    text += two_stages ? "cache_write(sddmm_sum.j, register)\n" : "cache_write(sddmm.j, register)\n";
  if (group == 0) return text + "parallel(sddmm.i)\n";
  return text + fmt::format("rows, row = split(sddmm.i, {})\nparallel(rows)\n", group);
}

std::string sddmm_call(int64_t feat, DType dtype, int64_t workers) {
  return fmt::format("sddmm {} {} {}", feat, to_string(dtype), workers);
}

Operator sddmm_operator(int64_t feat, DType dtype, const std::string& candidate) {
  VectorUnit unit = vector_unit(current_isa());
  if (const int64_t lanes = number_in(candidate, "lanes", 0); lanes > 0) unit.lanes = std::min(unit.lanes, lanes);
  const int64_t prefetch = number_in(candidate, "prefetch", default_prefetch(feat));
  return kept_operator(replaced(kSddmmProgram, "fp32", std::string(to_string(dtype))),
                       sddmm_schedule(feat, dtype, unit, prefetch, number_in(candidate, "group", 0)), {{"feat", feat}});
}

void sddmm(const Structure& a, const TensorView& values, const TensorView& x, const TensorView& y,
           const TensorView& out, Stream stream) {
  check(x.rank() == 2, ErrorCode::invalid_shape, "x: has shape {}; [m, feat] is expected", x);
  const int64_t feat = x.shape(1);
  const DType dtype = common_dtype({{"values", &values}, {"x", &x}, {"y", &y}, {"out", &out}});
  const std::string call = sddmm_call(feat, dtype, stream.team().num_workers());
  sddmm_operator(feat, dtype, tuned_candidate(data_of(a, "a"), call))
      .run({.structures = {{"J", a}}, .buffers = {{"A", values}, {"X", x}, {"Y", y}, {"O", out}}}, stream);
}

}  // namespace weft::sparse
