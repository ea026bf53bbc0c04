// SpMM on a card where some rows are long: one launch, in which a CTA has rows that follow each other, cut into pieces
// that its threads compute side by side; each row's pieces are added up in their order, through shared memory. Rows
// that are too long for a CTA come from a second operator, in pieces of all CTAs.
//
//   if (runs_in_groups(data_of(a, "a"), feat, dtype)) spmm_with_long_rows(a, values, b, c, stream);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "sparse/operators/kept.h"

namespace weft::sparse {

inline constexpr int64_t kPieceOfRow = 32;       // elements; rows of more than twice as many are long
inline constexpr int64_t kMostOfPiece = 512;     // of a row that has as many pieces as a CTA computes side by side
inline constexpr int64_t kPieceOfHugeRow = 128;  // of a row whose pieces would be longer

// How a matrix in CSR is shared by CTAs that compute `group` pieces side by side. Groups of rows tile the matrix, and
// their pieces tile its elements, which stay where they are.
struct RowGroups {
  Structure pieces = {};               // groups, below each its pieces, and their columns
  Structure rows = {};                 // groups, below each its rows, and below these as many places as it has pieces
  std::vector<int32_t> first = {};     // of each row: which of the group's pieces is its first one
  std::vector<int32_t> computed = {};  // of each piece, 0: it is a huge row's, which no group computes
  Structure huge = {};  // an axis of one, below it huge rows, below each its pieces and their columns; or none
  std::vector<int32_t> order = {};  // where the matrix holds each element of `huge`
};
RowGroups row_groups(const Structure::Data& structure, int64_t group);

// What structures keep of it, by `group`. Thread-safe.
struct LongRows {
  bool any = false;
  std::mutex mutex = {};
  std::map<int64_t, std::unique_ptr<const RowGroups>> groups = {};
};
// Whether some row of a matrix in CSR is longer than two pieces, and a CTA has memory for the sums of its pieces.
bool runs_in_groups(const Structure::Data& structure, int64_t feat, DType dtype);

// Programs of rows in groups, the same of a matrix with huge rows, which it leaves 0, and of these, which are added to
// what stands there.
ReadyProgram row_groups_program(int64_t feat, DType dtype);
ReadyProgram row_groups_beside_huge_program(int64_t feat, DType dtype);
ReadyProgram huge_rows_program(int64_t feat, DType dtype);
void spmm_with_long_rows(const Structure& a, const TensorView& values, const TensorView& b, const TensorView& c,
                         Stream stream);

}  // namespace weft::sparse
