#include "sparse/operators/long_rows.h"

#include <algorithm>
#include <mutex>

#include "sparse/backend.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/card.h"

namespace weft::sparse {
namespace {

constexpr const char* kProgram = R"(program spmm_long_rows(m, n, nnz, num_long, most, num_pieces, stored, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  O = dense_fixed(1)
  R = sparse_variable(O, m, num_long, indptr=r_indptr, indices=r_indices)
  S = dense_variable(R, most, num_pieces, indptr=s_indptr)
  L = sparse_variable(S, n, stored, indptr=l_indptr, indices=l_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  E = dense_fixed(nnz)
  Short = buffer(I): int32
  Order = buffer(O, R, S, L): int32
  A = buffer(I, J): DTYPE
  Elements = buffer(E): DTYPE
  B = buffer(J_, K): DTYPE
  C = buffer(I, K): DTYPE
  Part = temporary(O, R, S, K): fp32
  iterate partial(O, R, S, L, K) "SSSRS" as (o, r, s, l, k):
    init:
      Part[o, r, s, k] = 0.0
    Part[o, r, s, k] = Part[o, r, s, k] + Elements[Order[o, r, s, l]] * B[l, k]
  iterate clear(I, K) "SS" as (x, y) where Short[x] == 0:
    C[x, y] = 0.0
  iterate csrmm(I, J, K) "SRS" as (i, j, k) where Short[i] == 1:
    init:
      C[i, k] = 0.0
    C[i, k] = C[i, k] + A[i, j] * B[j, k]
  iterate total(O, R, S, K) "RSRS" as (o, r, s, k):
    C[r, k] = C[r, k] + Part[o, r, s, k]
)";

std::shared_ptr<const LongRows> found_in(const Level& level) {
  const std::vector<int32_t>& indptr = level.indptr;
  const size_t num_rows = indptr.size() - 1;
  auto found = std::make_shared<LongRows>();
  found->is_short.assign(num_rows, 1);
  std::vector<int32_t> rows, of_row{0}, of_piece{0}, cols;
  int64_t most = 0;
  for (size_t i = 0; i < num_rows; ++i) {
    if (indptr[i + 1] - indptr[i] <= kPieceOfRow) continue;
    found->is_short[i] = 0;
    rows.push_back(static_cast<int32_t>(i));
    for (int32_t p = indptr[i]; p < indptr[i + 1]; ++p) {
      found->order.push_back(p);
      cols.push_back(level.indices[static_cast<size_t>(p)]);
      const bool ends = p + 1 == indptr[i + 1] || (p + 1 - indptr[i]) % kPieceOfRow == 0;
      if (ends) of_piece.push_back(static_cast<int32_t>(cols.size()));
    }
    of_row.push_back(static_cast<int32_t>(of_piece.size()) - 1);
    most = std::max<int64_t>(most, of_row.back() - of_row[of_row.size() - 2]);
  }
  if (rows.empty()) return found;
  const std::vector<int32_t> all{0, static_cast<int32_t>(rows.size())};
  found->pieces = structure_of(
      {{.length = 1},
       {.kind = AxisKind::sparse_variable, .length = static_cast<int64_t>(num_rows), .indptr = all, .indices = rows},
       {.kind = AxisKind::dense_variable, .length = most, .indptr = of_row},
       {.kind = AxisKind::sparse_variable, .length = level.length, .indptr = of_piece, .indices = cols}});
  return found;
}

std::string rows_of(const char* iteration, const char* cta, const char* reduction, int64_t feat, DType dtype) {
  return card_rows({.iteration = iteration, .cta = cta, .reductions = {reduction}, .feat = feat, .dtype = dtype});
}

}  // namespace

const LongRows* long_rows_of(const Structure::Data& structure) {
  const std::lock_guard lock(structure.choices.mutex);
  if (structure.long_rows == nullptr) structure.long_rows = found_in(structure.levels[1]);
  return structure.long_rows->pieces ? structure.long_rows.get() : nullptr;
}

ReadyProgram long_rows_program(int64_t feat, DType dtype) {
  return {with_dtype(kProgram, dtype),
          "sparse_fuse(partial, O, R, S)\nlower()\n" + rows_of("partial", "o_r_s", "l", feat, dtype) +
              card_elements("clear", "x", "y") + rows_of("csrmm", "i", "j", feat, dtype) +
              rows_of("total", "r", "s", feat, dtype),
          {{"feat", feat}}};
}

void spmm_with_long_rows(const Structure& a, const LongRows& rows, const TensorView& values, const TensorView& b,
                         const TensorView& c, Stream stream) {
  const Device device = device_of(b);
  const auto placed = [&](const std::vector<int32_t>& array) {
    const int32_t* const data = backend_of(device, "spmm").array_of(data_of(a, "a"), array, device);
    return TensorView(data, DType::int32, {static_cast<int64_t>(array.size())}, device);
  };
  kept_operator(long_rows_program(last_extent(b), common_dtype({{"values", &values}, {"b", &b}, {"c", &c}})), device)
      .run({.structures = {{"J", a}, {"L", rows.pieces}},
            .buffers = {{"Short", placed(rows.is_short)},
                        {"Order", placed(rows.order)},
                        {"A", values},
                        {"Elements", values},
                        {"B", b},
                        {"C", c}}},
           stream);
}

}  // namespace weft::sparse
