// Which items' partial states meet where, and in which order they are summed.
//
// A unit that shares no row with another one merges its own chunks, if it has several. With levels a row has a unit on
// each of them, of other rows and other KV heads: then all of them write partials, and rows and KV heads are cut into
// cells at every border of a unit, so that each unit covers whole cells. A cell is a merge group: it sums its rows'
// partials by level, then along the keys.
#include <algorithm>
#include <limits>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft::planner {
namespace {

using namespace attention;

int64_t floats_of(const Problem& p, const Tile& tile, const PlannedUnit& unit) {
  return partial_floats(int64_t{tile.row_end - tile.row_begin} * (unit.head_end - unit.head_begin) * p.group,
                        p.traits->head_dim_vo);
}

// Which tiles have a row in common with a tile of another level.
void find_shared_rows(const Problem& p, const PlanBuilder& builder, Merges& m) {
  m.shares_rows.assign(builder.tiles.size(), 0);
  if (p.num_levels == 1) return;
  // Every row has a tile of the last level; those with another one too are shared.
  m.row_marks.assign(static_cast<size_t>(p.num_rows) + 1, Merges::kOutside);
  for (size_t t = 0; t < builder.tiles.size(); ++t) {
    const Tile& tile = builder.tiles[t];
    if (tile.skipped || builder.entries[tile.entry].level == p.num_levels - 1) continue;
    m.shares_rows[t] = 1;
    std::fill(&m.row_marks[tile.row_begin], &m.row_marks[tile.row_end], Merges::kInside);
  }
  for (size_t t = 0; t < builder.tiles.size(); ++t) {
    const Tile& tile = builder.tiles[t];
    if (builder.entries[tile.entry].level < p.num_levels - 1) continue;
    const auto begin = m.row_marks.begin() + tile.row_begin, end = m.row_marks.begin() + tile.row_end;
    if (std::find(begin, end, Merges::kInside) == end) continue;
    m.shares_rows[t] = 1;
    std::fill(begin, end, Merges::kInside);
  }
}

// Ranges of elements that are inside, cut where one begins; cell[i] is the range of element i.
void number_ranges(const std::vector<Merges::Mark>& marks, std::vector<Merges::Range>& ranges, std::vector<int>& cell) {
  ranges.clear();
  cell.resize(marks.size());
  for (int i = 0; i < static_cast<int>(marks.size()); ++i) {
    if (marks[i] == Merges::kOutside) continue;
    if (marks[i] == Merges::kBegins || i == 0 || marks[i - 1] == Merges::kOutside) ranges.push_back({i, i});
    ranges.back().end = i + 1;
    cell[i] = static_cast<int>(ranges.size()) - 1;
  }
}

void cut_cells(const Problem& p, const PlanBuilder& builder, Merges& m) {
  m.rows.clear();
  m.heads.clear();
  if (p.num_levels == 1) return;
  const auto border = [](std::vector<Merges::Mark>& marks, int at) {
    if (marks[at] == Merges::kInside) marks[at] = Merges::kBegins;
  };
  m.head_marks.assign(static_cast<size_t>(p.num_kv_heads) + 1, Merges::kInside);
  m.head_marks.back() = Merges::kOutside;
  for (const PlannedUnit& unit : builder.units) {
    if (m.shares_rows[unit.tile] == 0) continue;
    const Tile& tile = builder.tiles[unit.tile];
    border(m.row_marks, tile.row_begin);
    border(m.row_marks, tile.row_end);
    border(m.head_marks, unit.head_begin);
    border(m.head_marks, unit.head_end);
  }
  number_ranges(m.row_marks, m.rows, m.row_cell);
  number_ranges(m.head_marks, m.heads, m.head_cell);
}

// The cells that a unit covers: rows [row, row + num_rows) x heads [head, head + num_heads) of them.
struct Cells {
  int row, num_rows, head, num_heads;
};
Cells cells_of(const PlanBuilder& builder, const Merges& m, const PlannedUnit& unit) {
  const Tile& tile = builder.tiles[unit.tile];
  const int row = m.row_cell[tile.row_begin], head = m.head_cell[unit.head_begin];
  return {row, m.row_cell[tile.row_end - 1] + 1 - row, head, m.head_cell[unit.head_end - 1] + 1 - head};
}

}  // namespace

void lay_merges(const Problem& p, const PlanBuilder& builder, Merges& m) {
  find_shared_rows(p, builder, m);
  cut_cells(p, builder, m);
  m.partials = m.sources = m.floats = 0;
  m.groups = static_cast<int64_t>(m.rows.size() * m.heads.size());
  m.first_partial.resize(builder.units.size());
  m.partial_units.resize(builder.units.size());
  size_t count = 0;
  for (size_t u = 0; u < builder.units.size(); ++u) {  // without branches: which units are cut follows no pattern
    const PlannedUnit& unit = builder.units[u];
    const bool writes = (m.shares_rows[unit.tile] != 0) | (unit.num_chunks > 1);
    m.first_partial[u] = writes ? static_cast<int>(m.partials) : -1;
    m.partials += writes ? unit.num_chunks : 0;
    m.partial_units[count] = static_cast<int>(u);
    count += writes ? 1 : 0;
  }
  m.partial_units.resize(count);
  for (const int u : m.partial_units) {
    const PlannedUnit& unit = builder.units[u];
    m.floats += unit.num_chunks * floats_of(p, builder.tiles[unit.tile], unit);
    if (m.shares_rows[unit.tile] != 0) {
      const Cells cells = cells_of(builder, m, unit);
      m.sources += int64_t{unit.num_chunks} * cells.num_rows * cells.num_heads;
    } else {
      m.sources += unit.num_chunks;
      ++m.groups;
    }
  }
  const int64_t most = std::max(m.groups, std::max(m.partials, m.sources));
  check(most <= std::numeric_limits<int32_t>::max(), ErrorCode::invalid_argument,
        "fixed_split_size = {}: {} partial states to merge; use larger chunks or fewer requests", p.fixed_split_size,
        most);
}

void write_merges(const Problem& p, const PlanBuilder& builder, const Merges& m, Plan::Impl& impl) {
  char* base = impl.bytes.data();
  const PlanHeader& header = impl.header();
  Unit* units = section<Unit>(base, header.units);
  Partial* partials = section<Partial>(base, header.partials);
  MergeGroup* groups = section<MergeGroup>(base, header.merge_groups);
  MergeSource* sources = section<MergeSource>(base, header.merge_sources);
  const int stride = static_cast<int>(m.heads.size());

  // Room for the sources of every cell, in the order of cells; source_end counts up while they are filled in.
  int num_groups = static_cast<int>(m.rows.size()) * stride, num_sources = 0;
  for (int g = 0; g < num_groups; ++g) {
    const Merges::Range rows = m.rows[g / stride], heads = m.heads[g % stride];
    groups[g] = {rows.begin, rows.end, heads.begin, heads.end, 0, 0, 0, g};
  }
  const auto for_groups = [&](const PlannedUnit& unit, auto f) {
    const Cells cells = cells_of(builder, m, unit);
    for (int r = cells.row; r < cells.row + cells.num_rows; ++r)
      for (int h = cells.head; h < cells.head + cells.num_heads; ++h) f(groups[r * stride + h]);
  };
  if (num_groups > 0) {
    for (const PlannedUnit& unit : builder.units)
      if (m.shares_rows[unit.tile] != 0)
        for_groups(unit, [&](MergeGroup& group) { group.expected += unit.num_chunks; });
    for (int g = 0; g < num_groups; ++g) {
      groups[g].source_begin = groups[g].source_end = num_sources;
      num_sources += groups[g].expected;
    }
  }
  const TileClass* const classes = p.traits->classes.data();
  const Tile* const tiles = builder.tiles.data();
  Unit* next = units;
  for (const PlannedUnit& unit : builder.units) {
    const Tile& tile = tiles[unit.tile];
    const TileKind kind = classes[tile.tile_class].kind;
    *next++ = {tile.row_begin, tile.row_end, unit.head_begin, unit.head_end, tile.entry, kind, 0, 0, 0};
  }
  int64_t floats = 0;
  for (const int u : m.partial_units) {
    const PlannedUnit& unit = builder.units[u];
    const Tile& tile = builder.tiles[unit.tile];
    const int first = m.first_partial[u];
    if (m.shares_rows[unit.tile] != 0) {
      const Cells cells = cells_of(builder, m, unit);
      units[u].merge_begin = cells.row * stride + cells.head;
      units[u].merge_rows = cells.num_rows;
      units[u].merge_heads = cells.num_heads;
      for_groups(unit, [&](MergeGroup& group) {
        for (int chunk = 0; chunk < unit.num_chunks; ++chunk)
          sources[group.source_end++] = {first + chunk, group.row_begin - tile.row_begin};
      });
    } else {
      units[u].merge_begin = num_groups;
      units[u].merge_rows = units[u].merge_heads = 1;
      groups[num_groups] = {tile.row_begin,  tile.row_end, unit.head_begin,
                            unit.head_end,   num_sources,  num_sources + unit.num_chunks,
                            unit.num_chunks, num_groups};
      ++num_groups;
      for (int chunk = 0; chunk < unit.num_chunks; ++chunk) sources[num_sources++] = {first + chunk, 0};
    }
    const int64_t size = floats_of(p, tile, unit);
    for (int chunk = 0; chunk < unit.num_chunks; ++chunk, floats += size) partials[first + chunk] = {floats, u, 0};
  }
}

}  // namespace weft::planner
