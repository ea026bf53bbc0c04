// SpMM on a card where some rows are long: one launch, in which a CTA has rows that follow each other, cut into pieces
// that its threads compute side by side; each row's pieces are added up in their order, through shared memory. Rows
// that are too long for a CTA come from a second operator, in pieces of all CTAs.
//
//   if (runs_in_groups(data_of(a, "a"), feat, dtype)) sum_long_rows(a, {.values = values, .b = b, .c = c}, stream);
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "sparse/operators/card.h"
#include "sparse/operators/ready.h"

namespace weft::sparse {

inline constexpr int64_t kPieceOfRow = 32;       // elements, if none is named; rows of more than two are long
inline constexpr int64_t kPieceOfHugeRow = 128;  // of a row whose pieces would be longer

// How many pieces of rows run at once: in a CTA, which adds them up, and on all multiprocessors.
struct PiecesAtOnce {
  int64_t of_cta = 1, of_card = 1;
  friend auto operator<=>(const PiecesAtOnce&, const PiecesAtOnce&) = default;
};
PiecesAtOnce pieces_at_once(int64_t feat, DType dtype, const CardCut& cut, const VectorUnit& unit);
// The longest pieces of a row that has as many as a CTA takes, of a matrix with so many elements: half as much again as
// the share of those that run at once, so that no piece is on its way when all others have ended.
int64_t most_of_piece(int64_t nnz, const PiecesAtOnce& at_once);

// How a matrix in CSR is shared by CTAs. Groups of rows tile the matrix, and their pieces, of which a CTA has at most
// `of_cta`, tile its elements, which stay where they are.
struct RowGroups {
  Structure pieces = {};               // groups, below each its pieces, and their columns
  Structure rows = {};                 // groups, below each its rows, and below these as many places as it has pieces
  std::vector<int32_t> first = {};     // of each row: which of the group's pieces is its first one
  std::vector<int32_t> computed = {};  // of each piece, 0: it is a huge row's, which no group computes
  Structure huge = {};  // an axis of one, below it huge rows, below each its pieces and their columns; or none
  std::vector<int32_t> order = {};  // where the matrix holds each element of `huge`
};
RowGroups row_groups(const Structure::Data& structure, const PiecesAtOnce& at_once, int64_t piece = kPieceOfRow);

// What structures keep of it, by `at_once` and `piece`. Thread-safe.
struct LongRows {
  bool any = false;
  std::mutex mutex = {};
  std::map<std::pair<PiecesAtOnce, int64_t>, std::unique_ptr<const RowGroups>> groups = {};
};
// Whether it is of a matrix in CSR some row of which is longer than two pieces, and a CTA has memory for the sums of
// its pieces.
bool runs_in_groups(const Structure::Data& structure, int64_t feat, DType dtype);
bool has_memory_for_groups(int64_t feat, DType dtype, const CardCut& cut = {});

struct LongRowsForm {
  int64_t feat = 0;
  DType dtype = DType::fp32;
  bool is_weighted = false;  // elements are multiplied by others
  bool is_ordered = false;   // elements stand in another order than the structure's
  CardCut cut = {};          // of whose `each` elements pieces are, kPieceOfRow unless it is named
  friend bool operator==(const LongRowsForm&, const LongRowsForm&) = default;
};
// Programs of rows in groups, which leave huge ones 0, and of these, which are added to what stands there.
ReadyProgram row_groups_program(const LongRowsForm& form, bool beside_huge_rows);
ReadyProgram huge_rows_program(const LongRowsForm& form);

// c = a b, element e of a being values[order[e]] * weights[order[e]]; without an order they are in that of a, without
// weights these are ones. All of one type, on a card.
struct RowSums {
  TensorView values = {}, weights = {}, order = {}, b = {}, c = {};
};
// Who has the operator of one of the programs; nobody: those that the process keeps.
enum class LongRowsPart : uint8_t { groups, groups_beside_huge, huge };
ReadyProgram long_rows_program(LongRowsPart part, const LongRowsForm& form);
using OperatorOfLongRows = std::function<const Operator&(LongRowsPart part, const LongRowsForm& form)>;
void sum_long_rows(const Structure& a, const RowSums& sums, Stream stream, const CardCut& cut = {},
                   const OperatorOfLongRows& operator_of = {});

}  // namespace weft::sparse
