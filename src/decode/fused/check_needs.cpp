#include "decode/fused/check_needs.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::decode::fused {
// Rows of a matrix that a phase multiplied: pieces of their bands, panel by panel and one behind the other, each of the
// next tiles.
std::string CheckedNeeds::bands(int writer, Range rows, const std::vector<int>& contents) const {
  const Phase& phase = partition_.phases.all[static_cast<size_t>(writer)];
  const MatrixPartition& matrix = partition_.matrix_of(phase);
  if (rows.empty()) return {};
  const int64_t last = matrix.tiles.band_of_row(rows.end - 1);
  std::string missing;
  for (int64_t band = matrix.tiles.band_of_row(rows.begin); band <= last && missing.empty(); ++band) {
    int64_t tiles = 0;
    matrix.each_slot(band, [&](int slot) {
      if (!missing.empty()) return;
      const int id = contents[static_cast<size_t>(slot)];
      if (id == kNothing) {
        missing = fmt::format("slot {} of {} was not read", slot, to_string(phase.writes));
        return;
      }
      const Content& content = memory_.content(id);
      if (content.phase != writer || content.what != band || content.begin != tiles)
        missing = fmt::format(
            "slot {} of {} holds tiles {}..{} of band {}, written in phase {}; needed are tiles {} on of "
            "band {}, written in phase {}",
            slot, to_string(phase.writes), content.begin, content.end, content.what, content.phase, tiles, band,
            writer);
      tiles = content.end;
    });
    if (missing.empty() && tiles != matrix.tiles.band_tiles)
      missing = fmt::format("the slots of band {} of {} hold {} of its {} tiles", band, to_string(phase.writes), tiles,
                            matrix.tiles.band_tiles);
  }
  return missing;
}

std::string CheckedNeeds::cells(Shared shared, int writer, Range cells, const std::vector<int>& contents) const {
  for (int64_t cell = cells.begin; cell < cells.end; ++cell) {
    const int id = contents[static_cast<size_t>(cell)];
    if (id == kNothing) return fmt::format("cell {} of {} was not read", cell, to_string(shared));
    const Content& content = memory_.content(id);
    if (content.phase != writer || content.what != cell)
      return fmt::format("cell {} of {} holds cell {} of phase {}; needed is that of phase {}", cell, to_string(shared),
                         content.what, content.phase, writer);
  }
  return {};
}

std::string CheckedNeeds::of_merge(int index, Range cells, const Inbox& inbox) const {
  const AttentionItems& items = schedule_.items_of(partition_.phases.all[static_cast<size_t>(index)], program_);
  const int64_t group = program_.num_qo_heads / program_.num_kv_heads, of_head = partition_.head_cells();
  for (int64_t head = cells.begin / of_head; head <= (cells.end - 1) / of_head; ++head)
    for (const AttentionItem& item : items.items) {
      if (item.kv_head != head / group) continue;
      for (int64_t row = 0; row < item.num_rows(); ++row) {
        const int64_t state = item.first_state + row * group + head % group;
        std::string missing =
            this->cells(Shared::states, index - 1, {state, state + 1}, inbox[static_cast<size_t>(Shared::states)]);
        if (!missing.empty()) return missing;
      }
    }
  return {};
}

std::string CheckedNeeds::of_prologue(int index, Range columns, const Inbox& inbox) const {
  const Phase& phase = partition_.phases.all[static_cast<size_t>(index)];
  if (phase.embeds()) return {};
  const Phase& before = *partition_.phases.before(index);
  Range needed{columns.begin / kBandRows, (columns.end + kBandRows - 1) / kBandRows};
  if (before.merges()) needed = partition_.attended_cells(columns);
  if (phase.is_normed) needed = {0, partition_.num_cells(before.writes, 0)};
  return cells(before.writes, index - 1, needed, inbox[static_cast<size_t>(before.writes)]);
}

std::string CheckedNeeds::of_reduction(int index, int64_t cell, const Inbox& inbox) const {
  const Phase& phase = partition_.phases.all[static_cast<size_t>(index)];
  if (phase.norms_sums)
    return cells(Shared::squares, index - 1, {0, partition_.num_cells(Shared::squares, 0)},
                 inbox[static_cast<size_t>(Shared::squares)]);
  const Phase& before = *partition_.phases.before(index);
  int64_t first = 0;  // of the product's columns
  std::string missing;
  for (const Buffer buffer : main_of(before, program_).writes) {
    const int64_t cols = program_.cols_of(buffer);
    if (missing.empty())
      missing = bands(index - 1, {first + cell * kBandRows, first + std::min((cell + 1) * kBandRows, cols)},
                      inbox[static_cast<size_t>(before.writes)]);
    first += cols;
  }
  return missing;
}

std::string CheckedNeeds::of_heads(int index, Buffer buffer, int64_t first_head, int64_t end_head,
                                   const Inbox& inbox) const {
  const Phase& before = *partition_.phases.before(index);
  int64_t first = 0;
  for (const Buffer written : main_of(before, program_).writes) {
    if (written == buffer) break;
    first += program_.cols_of(written);
  }
  return bands(index - 1, {first + first_head * program_.head_dim, first + end_head * program_.head_dim},
               inbox[static_cast<size_t>(before.writes)]);
}

std::string CheckedNeeds::of_result(int index) const {
  const Phase& phase = partition_.phases.all[static_cast<size_t>(index)];
  std::vector<int> contents(static_cast<size_t>(memory_.num_cells(phase.writes)));
  for (size_t i = 0; i < contents.size(); ++i) contents[i] = memory_.content_of(phase.writes, static_cast<int64_t>(i));
  return bands(index, {0, partition_.matrix_of(phase).tiles.rows}, contents);
}

}  // namespace weft::decode::fused
