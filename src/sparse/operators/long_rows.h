// SpMM on a card where some rows are long: these are computed in pieces, each as the rows are that are not, and a row's
// pieces are added up in their order.
//
//   if (const LongRows* rows = long_rows_of(data_of(a, "a"))) spmm_with_long_rows(*rows, {...}, device, stream);
#pragma once

#include <cstdint>
#include <vector>

#include "sparse/operators/kept.h"

namespace weft::sparse {

inline constexpr int64_t kPieceOfRow = 128;  // elements; longer rows are long

struct LongRows {
  Structure pieces = {};               // an axis of one, below it long rows, below each its pieces and their columns
  std::vector<int32_t> order = {};     // where the matrix holds each element of the pieces
  std::vector<int32_t> is_short = {};  // of each row, 1: it is in no piece
};
// Of a matrix in CSR, found once; null where no row is long.
const LongRows* long_rows_of(const Structure::Data& structure);

ReadyProgram long_rows_program(int64_t feat, DType dtype);
void spmm_with_long_rows(const Structure& a, const LongRows& rows, const TensorView& values, const TensorView& b,
                         const TensorView& c, Stream stream);

}  // namespace weft::sparse
