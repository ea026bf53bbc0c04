// C = A B for a sparse A.
#include "base/check.h"
#include "sparse/operators/kept.h"

namespace weft::sparse {

const char* const kSpmmProgram = R"(program spmm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  B = buffer(J_, K): fp32
  C = buffer(I, K): fp32
  iterate csrmm(I, J, K) "SRS" as (i, j, k):
    init:
      C[i, k] = 0.0
    C[i, k] = C[i, k] + A[i, j] * B[j, k]
)";

VectorUnit vector_unit(Isa isa) {
  switch (isa) {
    case Isa::avx512:
    case Isa::avx512_bf16: return {.lanes = 16, .registers = 32};
    case Isa::avx2: return {.lanes = 8, .registers = 16};
    default: return {.lanes = 4, .registers = 16};
  }
}

RowTiles row_tiles(int64_t feat, const VectorUnit& unit) {
  RowTiles tiles{.lanes = unit.lanes};
  while (tiles.lanes > 4 && feat % tiles.lanes != 0 && tiles.lanes * 4 > unit.lanes) tiles.lanes /= 2;
  if (feat % tiles.lanes != 0) return {};
  // Half of the registers for sums; the others for what is multiplied.
  for (int64_t d = 1; d <= unit.registers / 2; ++d)
    if (feat / tiles.lanes % d == 0) tiles.vectors = d;
  return tiles;
}

// 8 KiB of rows on their way hide the memory behind all caches, and stay in the first one until their turn.
int64_t default_prefetch(int64_t feat) { return std::clamp<int64_t>(2048 / std::max<int64_t>(feat, 1), 4, 64); }

// Sums of a row stay in registers while its elements pass by.
std::string spmm_schedule(int64_t feat, const std::string& format, const VectorUnit& unit, int64_t prefetch) {
  std::string text;
  if (!format.empty()) text += fmt::format("decompose_format(csrmm, A, {})\n", format);
  text += "lower()\n";
  const bool blocked = format.starts_with("bsr");
  const std::string rows = blocked ? "csrmm.io" : "csrmm.i";
  const std::string parallel_lines = fmt::format("parallel({})\n", rows) + (blocked ? "parallel(csrmm_init.i)\n" : "");
  const RowTiles tiles = row_tiles(feat, unit);
  if (tiles.lanes == 1 && (blocked || format.starts_with("ell"))) return text + parallel_lines;
  if (tiles.lanes == 1) {
    text += fmt::format("ko, ki = split(csrmm.k, {})\nreorder(ko, csrmm.j, ki)\n", unit.lanes);
    if (format.starts_with("hyb")) text += "reorder(ko, csrmm.s)\n";  // pieces of long rows
    return text + "vectorize(ki)\ncache_write(ko, register)\n" + parallel_lines;
  }
  const int64_t tile = tiles.lanes * tiles.vectors;
  if (feat > tile) text += fmt::format("ko, kt = split(csrmm.k, {})\n", tile);
  const std::string inner = feat > tile ? "kt" : "csrmm.k";
  std::string vector = inner;
  if (tiles.vectors > 1) {
    text += fmt::format("ku, ki = split({}, {})\n", inner, tiles.lanes);
    vector = "ki";
  }
  if (blocked) {
    text += fmt::format("vectorize({})\n", vector);
  } else {
    text +=
        fmt::format("reorder({}csrmm.j, {}{})\n", feat > tile ? "ko, " : "", tiles.vectors > 1 ? "ku, " : "", vector);
    if (feat > tile && format.starts_with("hyb")) text += "reorder(ko, csrmm.s)\n";  // pieces of long rows
    text += fmt::format("vectorize({})\n", vector);
    if (tiles.vectors > 1) text += "unroll(ku)\n";
    text += fmt::format("cache_write({}, register)\n", feat > tile ? "ko" : "csrmm.i");
    if (prefetch > 0) text += fmt::format("annotate(csrmm.j, prefetch, {})\n", prefetch);
  }
  return text + parallel_lines;
}

void spmm(const Structure& a, const TensorView& values, const TensorView& b, const TensorView& c,
          const SparseOptions& options, Stream stream) {
  check(b.rank() == 2, ErrorCode::invalid_shape, "b: has shape {}; [n, feat] is expected", shape_string(b));
  const std::string format = options.format == "csr" ? "" : options.format;
  const int64_t feat = b.shape(1);
  const DType dtype = common_dtype({{"values", &values}, {"b", &b}, {"c", &c}});
  const bool one_sum = format.empty() || format.starts_with("hyb(1,");  // of a row, whatever its format
  check(
      dtype == DType::fp32 || one_sum, ErrorCode::unsupported,
      "spmm: format {} of bf16: required: sums of a row kept in fp32 from format to format; supported: csr, hyb(1, k)",
      format);
  kept_operator(replaced(kSpmmProgram, "fp32", std::string(to_string(dtype))),
                spmm_schedule(feat, format, vector_unit(current_isa()), default_prefetch(feat)), {{"feat", feat}})
      .run({.structures = {{"J", a}}, .buffers = {{"A", values}, {"B", b}, {"C", c}}}, stream);
}

}  // namespace weft::sparse
