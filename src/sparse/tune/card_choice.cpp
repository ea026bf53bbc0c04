#include "sparse/tune/card_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sparse/formats/rule.h"
#include "sparse/operators/long_rows.h"

namespace weft::sparse {
namespace {

// Half as many rows in a CTA as tend to be best, and twice as many, which its threads take in turn; 0: these.
std::vector<int64_t> rows_of(const CardLanes& lanes) {
  std::vector<int64_t> rows = {0};
  if (lanes.rows_of_cta >= 2) rows.push_back(lanes.rows_of_cta / 2);
  rows.push_back(lanes.rows_of_cta * 2);
  return rows;
}

// Vectors of 16 bytes, and of half of them.
std::vector<int64_t> vectors_of(const CardLanes& lanes) {
  return lanes.vector > 1 ? std::vector<int64_t>{0, lanes.vector / 2} : std::vector<int64_t>{0};
}

int64_t longest_row(const Level& level) {
  int64_t longest = 0;
  for (size_t i = 0; i + 1 < level.indptr.size(); ++i)
    longest = std::max<int64_t>(longest, level.indptr[i + 1] - level.indptr[i]);
  return longest;
}

std::vector<FormatChoice> of_sddmm(const GatherCall& call) {
  std::vector<FormatChoice> candidates;
  for (const int64_t vector : vectors_of(card_edge_lanes(call.feat, call.dtype())))
    for (const int64_t rows : rows_of(card_edge_lanes(call.feat, call.dtype(), {.vector = vector})))
      for (const int64_t each : {0, 1, 2, 8}) candidates.push_back({.tile = each, .lanes = vector, .group = rows});
  return candidates;
}

std::vector<FormatChoice> of_spmm(const Structure::Data& structure, const GatherCall& call) {
  std::vector<FormatChoice> candidates;
  const int64_t longest = longest_row(structure.levels[1]);
  for (const int64_t vector : vectors_of(card_lanes(call.feat, call.dtype())))
    for (const int64_t rows : rows_of(card_lanes(call.feat, call.dtype(), {.vector = vector}))) {
      for (const int64_t ahead : {0, 2, 8}) candidates.push_back({.prefetch = ahead, .lanes = vector, .group = rows});
      for (const int64_t piece : {kPieceOfRow, kPieceOfRow / 2, 2 * kPieceOfRow, 4 * kPieceOfRow})
        if (longest > piece && has_memory_for_groups(call.feat, call.dtype(), {.vector = vector, .rows = rows}))
          candidates.push_back({.tile = piece, .lanes = vector, .group = rows});
    }
  const auto num_rows = std::max<int64_t>(structure.levels[0].length, 1);
  const int64_t middle = default_bucket(structure.levels[1].num_positions, num_rows);
  for (const int64_t c : {1, 2, 4, 8, 16})
    for (int64_t k = std::max<int64_t>(0, middle - 1); k <= middle + 3; ++k)
      for (const int64_t rows : rows_of(card_lanes(call.feat, call.dtype())))
        if (c == 1 || rows == 0) candidates.push_back({.formats = {{Format::Kind::hyb, {c, k}}}, .group = rows});
  return candidates;
}

}  // namespace

CardCut card_cut(const FormatChoice& choice) {
  return {.vector = choice.lanes, .rows = choice.group, .ahead = choice.prefetch, .each = choice.tile};
}

bool cuts_rows(const FormatChoice& choice) { return choice.formats.empty() && choice.tile > 0; }

FormatChoice likely_on_card(const Structure::Data& structure, const GatherCall& call) {
  const bool cuts = call.op == GatherOperator::spmm && runs_in_groups(structure, call.feat, call.dtype());
  return {.tile = cuts ? kPieceOfRow : 0};
}

std::string likeness_of(const Structure::Data& structure) {
  const Level &rows = structure.levels[0], &elements = structure.levels[1];
  const auto power = [](double number) { return static_cast<int>(std::lround(std::log2(std::max(number, 1.)))); };
  const double mean =
      static_cast<double>(elements.num_positions) / static_cast<double>(std::max<int64_t>(rows.length, 1));
  const auto longest = static_cast<double>(longest_row(elements));
  return fmt::format("rows 2^{} columns 2^{} elements 2^{} longest 2^{}", power(static_cast<double>(rows.length)),
                     power(static_cast<double>(elements.length)), power(mean), power(longest / std::max(mean, 1.)));
}

std::vector<FormatChoice> candidates_on_card(const Structure::Data& structure, const GatherCall& call) {
  std::vector<FormatChoice> candidates = call.op == GatherOperator::sddmm ? of_sddmm(call) : of_spmm(structure, call);
  const auto likely = std::find(candidates.begin(), candidates.end(), likely_on_card(structure, call));
  std::rotate(candidates.begin(), likely, likely + 1);
  return candidates;
}

}  // namespace weft::sparse
