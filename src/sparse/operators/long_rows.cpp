#include "sparse/operators/long_rows.h"

#include <algorithm>
#include <tuple>

#include "base/once_map.h"
#include "loop/ahead.h"
#include "sparse/formats/structure.h"
#include "sparse/operators/card.h"
#include "sparse/operators/ready.h"

namespace weft::sparse {
namespace {

// In both, A holds the elements, and G, or none, what they are multiplied by, at PLACE; At, or none, says where they
// hold what the structure stores.
constexpr const char* kGroupsProgram = R"(program spmm_row_groups(m, n, nnz, groups, pieces, places, feat):
  W = dense_fixed(groups)
  R = dense_variable(W, GROUP, m, indptr=r_indptr)
  T = dense_variable(R, GROUP, places, indptr=t_indptr)
  P = dense_variable(W, GROUP, pieces, indptr=p_indptr)
  L = sparse_variable(P, n, nnz, indptr=l_indptr, indices=l_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  First = buffer(W, R): int32
  Computed = buffer(W, P): int32
  E = dense_fixed(nnz)
  At = buffer(W, P, L): int32
  A = buffer(STORED): DTYPE
  G = buffer(STORED): DTYPE
  B = buffer(J_, K): DTYPE
  C = buffer(W, R, K): DTYPE
  Part = temporary(W, P, K): fp32
  iterate partial(W, P, L, K) "SSRS" as (w, p, l, k) where Computed[w, p] == 1:
    init:
      Part[w, p, k] = 0.0
    Part[w, p, k] = Part[w, p, k] + A[PLACE] * G[PLACE] * B[l, k]
  iterate total(W, R, T, K) "SSRS" as (w, r, t, k):
    init:
      C[w, r, k] = 0.0
    C[w, r, k] = C[w, r, k] + Part[w, First[w, r] + t, k]
)";

constexpr const char* kHugeProgram = R"(program spmm_huge_rows(m, n, nnz, num_huge, most, num_pieces, stored, feat):
  I = dense_fixed(m)
  O = dense_fixed(1)
  R = sparse_variable(O, m, num_huge, indptr=r_indptr, indices=r_indices)
  S = dense_variable(R, most, num_pieces, indptr=s_indptr)
  L = sparse_variable(S, n, stored, indptr=l_indptr, indices=l_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  E = dense_fixed(nnz)
  Order = buffer(O, R, S, L): int32
  At = buffer(E): int32
  A = buffer(E): DTYPE
  G = buffer(E): DTYPE
  B = buffer(J_, K): DTYPE
  C = buffer(I, K): DTYPE
  Part = temporary(O, R, S, K): fp32
  iterate partial(O, R, S, L, K) "SSSRS" as (o, r, s, l, k):
    init:
      Part[o, r, s, k] = 0.0
    Part[o, r, s, k] = Part[o, r, s, k] + A[PLACE] * G[PLACE] * B[l, k]
  iterate total(O, R, S, K) "RSRS" as (o, r, s, k):
    C[r, k] = C[r, k] + Part[o, r, s, k]
)";

// Cuts the elements from `begin` to before `end` in so many pieces, and says where each ends.
void cut(int32_t begin, int32_t end, int64_t pieces, std::vector<int32_t>& ends) {
  for (int64_t s = 1; s <= pieces; ++s) ends.push_back(static_cast<int32_t>(begin + (end - begin) * s / pieces));
}

void find_huge_rows(const Level& level, int64_t longest, RowGroups& found) {
  std::vector<int32_t> rows, of_row{0}, of_piece{0}, cols;
  int64_t most = 0;
  for (size_t i = 0; i + 1 < level.indptr.size(); ++i) {
    const int32_t begin = level.indptr[i], end = level.indptr[i + 1];
    if (end - begin <= longest) continue;
    rows.push_back(static_cast<int32_t>(i));
    for (int32_t p = begin; p < end; ++p) {
      found.order.push_back(p);
      cols.push_back(level.indices[static_cast<size_t>(p)]);
    }
    const int64_t pieces = (end - begin + kPieceOfHugeRow - 1) / kPieceOfHugeRow;
    cut(of_piece.back(), static_cast<int32_t>(cols.size()), pieces, of_piece);
    of_row.push_back(static_cast<int32_t>(of_piece.size()) - 1);
    most = std::max(most, pieces);
  }
  if (rows.empty()) return;
  const std::vector<int32_t> all{0, static_cast<int32_t>(rows.size())};
  const auto num_rows = static_cast<int64_t>(level.indptr.size()) - 1;
  found.huge =
      structure_of({{.length = 1},
                    {.kind = AxisKind::sparse_variable, .length = num_rows, .indptr = all, .indices = rows},
                    {.kind = AxisKind::dense_variable, .length = most, .indptr = of_row},
                    {.kind = AxisKind::sparse_variable, .length = level.length, .indptr = of_piece, .indices = cols}});
}

// Pieces of a CTA: as many as it computes side by side, or twice or four times as many of few, so that CTAs are fewer
// and wait less for the longest, as long as their sums leave the cache its memory.
int64_t group_of(int64_t feat, DType dtype, const CardCut& cut) {
  constexpr int64_t kFew = 16, kBytes = 8 << 10;
  const int64_t side_by_side = card_lanes(feat, dtype, cut).rows_of_cta;
  if (cut.rows > 0) return side_by_side;
  return std::max(side_by_side, std::min<int64_t>(kFew, kBytes / (feat * static_cast<int64_t>(sizeof(float)))));
}

// Compiled by the first who asks.
const Operator& kept_operator_of(LongRowsPart part, const LongRowsForm& form, Device device) {
  using Key = std::tuple<LongRowsPart, LongRowsForm, int>;
  static auto& operators = *new OnceMap<Key, Operator>;  // outlives every static that runs one
  const size_t hash = static_cast<size_t>(form.feat) * 64 + static_cast<size_t>(part) * 16 +
                      static_cast<size_t>(form.dtype) + (form.is_weighted ? 4096 : 0) + (form.is_ordered ? 8192 : 0) +
                      static_cast<size_t>(form.cut.vector * 7 + form.cut.rows * 13 + form.cut.ahead * 977);
  return operators.get(hash, Key{part, form, device.index},
                       [&] { return kept_operator(long_rows_program(part, form), device); });
}

LongRows& long_rows_of(const Structure::Data& structure) {
  const std::lock_guard lock(structure.choices.mutex);
  if (structure.long_rows == nullptr) {
    const std::vector<int32_t>& indptr = structure.levels[1].indptr;
    structure.long_rows = std::make_shared<LongRows>();
    for (size_t i = 0; i + 1 < indptr.size(); ++i)
      structure.long_rows->any |= indptr[i + 1] - indptr[i] > 2 * kPieceOfRow;
  }
  return *structure.long_rows;
}

const RowGroups& groups_of(const Structure::Data& structure, const PiecesAtOnce& at_once, int64_t piece) {
  LongRows& kept = long_rows_of(structure);
  const std::lock_guard lock(kept.mutex);
  std::unique_ptr<const RowGroups>& found = kept.groups[{at_once, piece}];
  if (found == nullptr) found = std::make_unique<const RowGroups>(row_groups(structure, at_once, piece));
  return *found;
}

}  // namespace

bool has_memory_for_groups(int64_t feat, DType dtype, const CardCut& cut) {
  constexpr int64_t kMostShared = 48 << 10;  // that every launch may ask for
  return feat > 0 && group_of(feat, dtype, cut) * feat * static_cast<int64_t>(sizeof(float)) <= kMostShared;
}

bool runs_in_groups(const Structure::Data& structure, int64_t feat, DType dtype) {
  const std::vector<Level>& levels = structure.levels;
  if (levels.size() != 2 || !levels[1].is_sparse || !levels[1].is_variable) return false;
  return has_memory_for_groups(feat, dtype) && long_rows_of(structure).any;
}

PiecesAtOnce pieces_at_once(int64_t feat, DType dtype, const CardCut& cut, const VectorUnit& unit) {
  return {.of_cta = group_of(feat, dtype, cut),
          .of_card = unit.num_multiprocessors * loop::kThreadsOfLoadsAhead / card_lanes(feat, dtype, cut).lanes};
}

int64_t most_of_piece(int64_t nnz, const PiecesAtOnce& at_once) {
  return std::clamp<int64_t>(nnz * 3 / (2 * at_once.of_card), 128, 512);
}

RowGroups row_groups(const Structure::Data& structure, const PiecesAtOnce& at_once, int64_t piece) {
  const Level& level = structure.levels[1];
  const int64_t group = at_once.of_cta, longest = group * most_of_piece(level.num_positions, at_once);
  RowGroups found;
  std::vector<int32_t> of_group{0}, pieces_of_group{0}, places{0}, ends{0};
  for (size_t i = 0; i + 1 < level.indptr.size(); ++i) {
    const int32_t begin = level.indptr[i], length = level.indptr[i + 1] - begin;
    const bool is_huge = length > longest;
    const int64_t pieces = is_huge ? 1 : std::clamp<int64_t>((length + piece - 1) / piece, 1, group);
    // The group before ends where the row finds no room in it.
    const auto used = static_cast<int64_t>(ends.size()) - 1 - pieces_of_group.back();
    if (used + pieces > group) {
      of_group.push_back(static_cast<int32_t>(i));
      pieces_of_group.push_back(static_cast<int32_t>(ends.size()) - 1);
    }
    found.first.push_back(static_cast<int32_t>(ends.size()) - 1 - pieces_of_group.back());
    cut(begin, begin + length, pieces, ends);
    places.push_back(places.back() + (is_huge ? 0 : static_cast<int32_t>(pieces)));
    found.computed.insert(found.computed.end(), static_cast<size_t>(pieces), is_huge ? 0 : 1);
  }
  of_group.push_back(static_cast<int32_t>(found.first.size()));
  pieces_of_group.push_back(static_cast<int32_t>(ends.size()) - 1);
  const auto num_groups = static_cast<int64_t>(of_group.size()) - 1;
  found.pieces = structure_of(
      {{.length = num_groups},
       {.kind = AxisKind::dense_variable, .length = group, .indptr = pieces_of_group},
       {.kind = AxisKind::sparse_variable, .length = level.length, .indptr = ends, .indices = level.indices}});
  found.rows = structure_of({{.length = num_groups},
                             {.kind = AxisKind::dense_variable, .length = group, .indptr = of_group},
                             {.kind = AxisKind::dense_variable, .length = group, .indptr = places}});
  find_huge_rows(level, longest, found);
  return found;
}

namespace {

void remove_line(std::string& text, const std::string& line) { text = replaced(text, line + "\n", ""); }

std::string with_form(std::string text, const LongRowsForm& form) {
  if (!form.is_weighted) {
    text = replaced(text, " * G[PLACE]", "");
    remove_line(text, "  G = buffer(STORED): DTYPE");
    remove_line(text, "  G = buffer(E): DTYPE");
  }
  return with_dtype(text, form.dtype);
}

std::string rows_of(const LongRowsForm& form, const char* iteration, const char* cta, const char* row,
                    const char* reduction) {
  return card_rows({.iteration = iteration,
                    .cta = cta,
                    .row = row,
                    .reductions = {reduction},
                    .feat = form.feat,
                    .dtype = form.dtype,
                    .cut = form.cut});
}

}  // namespace

ReadyProgram row_groups_program(const LongRowsForm& form, bool beside_huge_rows) {
  std::string text = replaced(kGroupsProgram, "GROUP", fmt::format("{}", group_of(form.feat, form.dtype, form.cut)));
  if (!beside_huge_rows) {
    text = replaced(text, " where Computed[w, p] == 1", "");
    remove_line(text, "  Computed = buffer(W, P): int32");
  }
  if (!form.is_ordered) {
    remove_line(text, "  E = dense_fixed(nnz)");
    remove_line(text, "  At = buffer(W, P, L): int32");
  }
  text = with_form(text, form);
  text = replaced(text, "STORED", form.is_ordered ? "E" : "W, P, L");
  return {replaced(text, "PLACE", form.is_ordered ? "At[w, p, l]" : "w, p, l"),
          "lower()\ncompute_at(partial, total.w)\n" + rows_of(form, "partial", "", "p", "l") +
              rows_of(form, "total", "", "r", "t") + "bind(total.w, blockIdx.x)\nset_scope(Part, shared)\n",
          {{"feat", form.feat}}};
}

ReadyProgram huge_rows_program(const LongRowsForm& form) {
  std::string text = kHugeProgram;
  if (!form.is_ordered) remove_line(text, "  At = buffer(E): int32");
  const char* const place = "Order[o, r, s, l]";
  return {replaced(with_form(text, form), "PLACE", form.is_ordered ? fmt::format("At[{}]", place) : place),
          "sparse_fuse(partial, O, R, S)\nlower()\n" + rows_of(form, "partial", "o_r_s", "", "l") +
              rows_of(form, "total", "r", "", "s"),
          {{"feat", form.feat}}};
}

ReadyProgram long_rows_program(LongRowsPart part, const LongRowsForm& form) {
  return part == LongRowsPart::huge ? huge_rows_program(form)
                                    : row_groups_program(form, part == LongRowsPart::groups_beside_huge);
}

void sum_long_rows(const Structure& a, const RowSums& sums, Stream stream, const CardCut& cut,
                   const OperatorOfLongRows& operator_of) {
  const Device device = device_of(sums.b);
  const LongRowsForm form{.feat = last_extent(sums.b),
                          .dtype = sums.b.dtype(),
                          .is_weighted = static_cast<bool>(sums.weights),
                          .is_ordered = static_cast<bool>(sums.order),
                          .cut = cut};
  const PiecesAtOnce at_once = pieces_at_once(form.feat, form.dtype, cut, unit_of(device));
  const RowGroups& groups = groups_of(data_of(a, "a"), at_once, cut.each > 0 ? cut.each : kPieceOfRow);
  const auto of = [&](LongRowsPart part) -> const Operator& {
    return operator_of ? operator_of(part, form) : kept_operator_of(part, form, device);
  };
  const auto placed = [&](const std::vector<int32_t>& array) { return kept_array(data_of(a, "a"), array, device); };
  RunArguments arguments{.buffers = {{"A", sums.values}, {"B", sums.b}, {"C", sums.c}}};
  if (form.is_weighted) arguments.buffers["G"] = sums.weights;
  if (form.is_ordered) arguments.buffers["At"] = sums.order;
  RunArguments of_groups = arguments;
  of_groups.structures = {{"L", groups.pieces}, {"T", groups.rows}};
  of_groups.buffers["First"] = placed(groups.first);
  if (!groups.huge) return of(LongRowsPart::groups).run(of_groups, stream);
  of_groups.buffers["Computed"] = placed(groups.computed);
  of(LongRowsPart::groups_beside_huge).run(of_groups, stream);
  arguments.structures = {{"L", groups.huge}};
  arguments.buffers["Order"] = placed(groups.order);
  of(LongRowsPart::huge).run(arguments, stream);
}

}  // namespace weft::sparse
