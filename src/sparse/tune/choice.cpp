#include "sparse/tune/choice.h"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <string_view>

#include "base/check.h"
#include "sparse/machine.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {
namespace {

constexpr std::array<int64_t, 3> kBlocks = {2, 4, 8};
constexpr int64_t kSampledRows = 4096;  // a multiple of every block

double fill_of(const Level& level, int64_t num_rows, int64_t block) {
  const int64_t step = std::max<int64_t>(1, num_rows / kSampledRows) * block;
  std::vector<int32_t> cols;
  size_t elements = 0, blocks = 0;
  for (int64_t first = 0; first < num_rows; first += step) {
    cols.clear();
    const auto begin = static_cast<size_t>(level.indptr[static_cast<size_t>(first)]);
    const auto end = static_cast<size_t>(level.indptr[static_cast<size_t>(std::min(first + block, num_rows))]);
    for (size_t p = begin; p < end; ++p) cols.push_back(level.indices[p] / static_cast<int32_t>(block));
    std::sort(cols.begin(), cols.end());
    elements += cols.size();
    blocks += static_cast<size_t>(std::unique(cols.begin(), cols.end()) - cols.begin());
  }
  return blocks == 0 ? 1 : static_cast<double>(elements) / static_cast<double>(blocks);
}

bool is_kind(const FormatChoice& choice, Format::Kind kind) {
  return choice.formats.size() == 1 && choice.formats[0].kind == kind;
}

// The share of elements whose row a cache of so many rows does not hold when it comes, nor the one before it.
double misses_of(const Level& level, int64_t fitting_rows) {
  if (level.length <= fitting_rows || level.indices.empty()) return 0;
  const auto slots = static_cast<int32_t>(std::bit_floor(static_cast<uint32_t>(std::max<int64_t>(fitting_rows, 1))));
  std::vector<int32_t> held(static_cast<size_t>(slots), -2);
  const auto holds = [&](int32_t row) { return held[static_cast<size_t>(row & (slots - 1))] == row; };
  int64_t misses = 0;
  for (const int32_t row : level.indices) {
    misses += holds(row) || (row > 0 && holds(row - 1)) ? 0 : 1;
    held[static_cast<size_t>(row & (slots - 1))] = row;
  }
  return static_cast<double>(misses) / static_cast<double>(level.indices.size());
}

bool is_near(double bytes) { return bytes <= static_cast<double>(machine().l1_bytes); }

// Of a line of so many bytes: of the first cache of a core, of the second, of the third, and of memory for what that
// does not hold.
double line_cost(double bytes) {
  if (is_near(bytes)) return 0.12;
  if (bytes <= static_cast<double>(machine().l2_bytes)) return 0.24;
  return 0.45 + 1.85 * std::max(0., 1 - static_cast<double>(machine().l3_bytes) / bytes);
}

constexpr double kElement = 0.3, kPieceElement = 0.75, kRow = 4, kPhase = 700, kCopiedElement = 25;
constexpr double kFetchedLine = 0.09, kLateLine = 0.25;
// An element of SDDMM adds up its lanes while rows are fetched, and waits for what comes late.
constexpr double kFetchedLineOfSddmm = 0.04;
// What a search may find to be worth more: half of the lanes, for each line; groups of rows, for each row and for all.
constexpr double kNarrowLine = 0.02, kGroupedRow = 0.2, kGroups = 100;
constexpr double kBlock = 0.6, kMultipliedLine = 0.09, kBlockElement = 0.08;
// An element of SDDMM that asks a bucket, or blocks, for its result.
constexpr double kAsked = 20;

double num_blocks(const RowLengths& rows, int64_t block) {
  const auto at = static_cast<size_t>(std::find(kBlocks.begin(), kBlocks.end(), block) - kBlocks.begin());
  return static_cast<double>(rows.nnz) / (at < rows.fill.size() ? rows.fill[at] : 1);
}

}  // namespace

std::string to_text(const FormatChoice& choice) {
  return fmt::format("{} prefetch {} tile {} lanes {} group {}", to_text(choice.formats), choice.prefetch, choice.tile,
                     choice.lanes, choice.group);
}

const char* to_string(GatherOperator op) { return op == GatherOperator::sddmm ? "sddmm" : "spmm"; }

std::string to_text(const GatherCall& call) {
  return fmt::format("{} {} {} {} {}", to_string(call.op), call.feat, call.element_bytes, call.keeps_values,
                     call.workers);
}

FormatChoice parse_choice(const std::string& text) {
  FormatChoice choice;
  struct Number {
    std::string_view word;
    int64_t* value;
    int64_t most;
  };
  const Number numbers[] = {{" prefetch ", &choice.prefetch, 1024},
                            {" tile ", &choice.tile, 65536},
                            {" lanes ", &choice.lanes, 64},
                            {" group ", &choice.group, 65536}};
  size_t at = text.find(numbers[0].word);
  bool is_choice = at != text.npos;
  for (const auto& [word, value, most] : numbers) {
    if (!is_choice || text.compare(at, word.size(), word) != 0) {
      is_choice = false;
      break;
    }
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + at + word.size(), end, *value);
    is_choice = error == std::errc() && *value >= 0 && *value <= most;
    at = static_cast<size_t>(stop - text.data());
  }
  check(is_choice && at == text.size(), ErrorCode::invalid_argument,
        "'{}' is no choice, as 'csr prefetch 16 tile 0 lanes 0 group 0' is one", text);
  choice.formats = parse_formats(text.substr(0, text.find(numbers[0].word)));
  return choice;
}

void check_is_csr(const Structure::Data& structure, const char* op) {
  const bool is_csr = structure.levels.size() == 2 && structure.levels[1].is_sparse && structure.levels[1].is_variable;
  check(is_csr, ErrorCode::unsupported, "{}: required: a structure in CSR; supported: csr()", op);
}

RowLengths row_lengths(const Structure::Data& structure, const GatherCall& call) {
  check_is_csr(structure, to_string(call.op));
  const Level& level = structure.levels[1];
  RowLengths result{.num_rows = structure.levels[0].length, .num_cols = level.length, .nnz = level.num_positions};
  for (size_t i = 0; i + 1 < level.indptr.size(); ++i) {
    const auto length = static_cast<uint32_t>(level.indptr[i + 1] - level.indptr[i]);
    if (length == 0) continue;
    const auto bucket = static_cast<size_t>(std::bit_width(length - 1));
    ++result.rows[bucket];
    result.elements[bucket] += length;
  }
  const int64_t row_bytes = std::max<int64_t>(1, call.feat * call.element_bytes);
  result.misses = misses_of(level, machine().l1_bytes / row_bytes);
  for (size_t b = 0; b < kBlocks.size(); ++b) result.fill[b] = fill_of(level, result.num_rows, kBlocks[b]);
  return result;
}

namespace {

double cost_of_format(const RowLengths& rows, const FormatChoice& choice, const GatherCall& call) {
  const auto nnz = static_cast<double>(rows.nnz), num_rows = static_cast<double>(rows.num_rows);
  const double row_bytes = static_cast<double>(call.feat * call.element_bytes);
  const double lines = std::ceil(row_bytes / 64), footprint = static_cast<double>(rows.num_cols) * row_bytes;
  const double output = num_rows * lines * line_cost(num_rows * row_bytes);
  // What is not fetched ahead comes late where it misses; fetching costs where it hits. How much is best on
  // its way depends on how far it comes: 4, 8 or 16 KiB.
  const auto gathered = [&](double bytes) {
    const double misses = is_near(bytes) ? 0 : rows.misses;
    if (choice.prefetch == 0) return lines * (line_cost(bytes) + misses * kLateLine * (line_cost(bytes) + 1));
    const auto l3 = static_cast<double>(machine().l3_bytes);
    const double best = static_cast<double>(default_prefetch(call.feat)) * (bytes * 4 <= l3   ? 0.5
                                                                            : bytes * 2 <= l3 ? 1
                                                                                              : 2);
    return lines * (line_cost(bytes) + (call.op == GatherOperator::sddmm ? kFetchedLineOfSddmm : kFetchedLine)) *
           (1 + 0.02 * std::fabs(std::log2(static_cast<double>(choice.prefetch) / best)));
  };
  if (choice.formats.empty() && choice.tile == 0)
    return nnz * (gathered(footprint) + kElement) + num_rows * kRow + output + kPhase;
  const double copies = call.keeps_values ? 0 : nnz * kCopiedElement;
  if (choice.formats.empty()) {
    // Each worker has tiles of its own, and reads the structure for each.
    const double tiles = static_cast<double>(call.feat) / static_cast<double>(choice.tile);
    const double held = footprint / tiles * std::min(static_cast<double>(call.workers), tiles);
    return nnz * (gathered(held) + tiles * 4 * kElement) + tiles * num_rows * 2 * kRow + output + kPhase;
  }
  const int64_t first = choice.formats[0].numbers.at(0);
  if (is_kind(choice, Format::Kind::bsr)) {
    const double blocks = num_blocks(rows, first);
    const auto width = static_cast<double>(first);
    // A gathered row is multiplied by a column of the block: nothing but multiply-adds, padding or not.
    return blocks * (kBlock + width * (gathered(footprint) + width * (kMultipliedLine * lines + kBlockElement))) +
           num_rows * kRow + 3 * output + 2 * kPhase + copies;
  }
  // Each partition reads and writes what its rows add to, again. What all rows of a partition need may lie in the first
  // cache; else far memory stays far: rows come once a partition.
  const auto partitions = static_cast<double>(first);
  const double held = is_near(footprint / partitions) ? footprint / partitions : footprint;
  double updates = 0;
  for (size_t bucket = 0; bucket < rows.rows.size(); ++bucket) {
    if (rows.rows[bucket] == 0) continue;
    const double length = static_cast<double>(rows.elements[bucket]) / static_cast<double>(rows.rows[bucket]);
    updates += static_cast<double>(rows.rows[bucket]) * partitions * (1 - std::exp(-length / partitions));
  }
  return nnz * (gathered(held) + kPieceElement) + updates * (2 * kRow + 2 * output / std::max(num_rows, 1.)) + output +
         (partitions + 1) * kPhase + copies;
}

// Every place of a format is a dot product of its own; then each element asks every part of the format for its result.
double cost_of_sddmm(const RowLengths& rows, const FormatChoice& choice, const GatherCall& call) {
  const double plain = cost_of_format(rows, {.prefetch = choice.prefetch}, call);
  if (choice.formats.empty()) return plain;
  const std::vector<int64_t>& numbers = choice.formats[0].numbers;
  const bool is_blocked = is_kind(choice, Format::Kind::bsr);
  const int64_t first = numbers.at(0), num_parts = is_blocked ? 1 : first * (numbers.at(1) + 1);
  const auto nnz = static_cast<double>(rows.nnz), parts = static_cast<double>(num_parts);
  const double places = is_blocked ? num_blocks(rows, first) * static_cast<double>(first * first) : nnz;
  return plain * places / std::max(nnz, 1.) + parts * (nnz * kAsked + kPhase) +
         (call.keeps_values ? 0 : nnz * kCopiedElement);
}

}  // namespace

double expected_cost(const RowLengths& rows, const FormatChoice& choice, const GatherCall& call) {
  const double lines =
      static_cast<double>(rows.nnz) * std::ceil(static_cast<double>(call.feat * call.element_bytes) / 64);
  const bool is_sddmm = call.op == GatherOperator::sddmm;
  return (is_sddmm ? cost_of_sddmm(rows, choice, call) : cost_of_format(rows, choice, call)) +
         (choice.lanes > 0 ? kGroups + lines * kNarrowLine : 0) +
         (choice.group > 0 ? kGroups + static_cast<double>(rows.num_rows) * kGroupedRow : 0);
}

std::vector<FormatChoice> candidates_of(const RowLengths& rows, const GatherCall& call) {
  const int64_t distance = default_prefetch(call.feat);
  std::vector<Formats> all_formats = {Formats()};
  for (const int64_t block : kBlocks) all_formats.push_back({{Format::Kind::bsr, {block}}});
  const double mean =
      static_cast<double>(std::max<int64_t>(rows.nnz, 1)) / static_cast<double>(std::max<int64_t>(rows.num_rows, 1));
  const auto middle = static_cast<int64_t>(std::ceil(std::log2(std::max(mean, 1.))));
  for (const int64_t c : {1, 2, 4, 8, 16})
    for (int64_t k = std::max<int64_t>(0, middle - 1); k <= middle + 3; ++k)
      all_formats.push_back({{Format::Kind::hyb, {c, k}}});
  std::vector<FormatChoice> candidates;
  const auto add = [&](const FormatChoice& choice) {
    if (std::find(candidates.begin(), candidates.end(), choice) == candidates.end()) candidates.push_back(choice);
  };
  const bool is_fp32 = call.element_bytes == 4;
  for (const Formats& formats : all_formats)
    for (const int64_t ahead : {int64_t{0}, distance / 4, distance / 2, distance, 2 * distance})
      if ((formats.empty() || ahead == 0 || ahead == distance) && (is_fp32 || sums_in_fp32({formats})))
        add({formats, ahead});
  std::vector<int64_t> tiles;
  for (const int64_t tile : {128, 256})
    if (call.op == GatherOperator::spmm && call.feat % tile == 0 && tile < call.feat) tiles.push_back(tile);
  for (const int64_t tile : tiles)
    for (const int64_t ahead : {distance, std::min<int64_t>(4 * distance, 64)}) add({{}, ahead, tile});
  const VectorUnit unit = vector_unit(current_isa());
  const int64_t narrow = unit.lanes / 2;
  for (const Formats& formats : all_formats) {
    if (!is_fp32 || is_kind({formats}, Format::Kind::bsr)) continue;
    if (narrow >= 4 && call.feat % narrow == 0 && row_tiles(call.feat, unit).lanes > narrow)
      for (const int64_t ahead : {int64_t{0}, distance})
        if (formats.empty() || ahead > 0) add({formats, ahead, 0, narrow});
    for (const int64_t group : {16, 256}) {
      if (!formats.empty() && group > 16) continue;
      add({formats, distance, 0, 0, group});
      if (formats.empty())
        for (const int64_t tile : tiles) add({formats, distance, tile, 0, group});
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(), [&](const FormatChoice& a, const FormatChoice& b) {
    return expected_cost(rows, a, call) < expected_cost(rows, b, call);
  });
  return candidates;
}

bool sums_in_fp32(const FormatChoice& choice) {
  return choice.formats.empty() || (is_kind(choice, Format::Kind::hyb) && choice.formats[0].numbers.at(0) == 1);
}

FormatChoice likely_choice(const RowLengths& rows, const GatherCall& call) { return candidates_of(rows, call).front(); }

}  // namespace weft::sparse
