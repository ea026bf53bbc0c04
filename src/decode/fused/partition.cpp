#include "decode/fused/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>

#include "base/check.h"
#include "decode/fused/shares.h"

namespace weft::decode::fused {
namespace {

void check_entry(std::string_view name, int64_t bytes, const Machine& machine) {
  check(bytes > 0 && bytes % kAlignment == 0, ErrorCode::invalid_argument,
        "{} = {}; allowed are multiples of {} above 0", name, bytes, kAlignment);
  check(machine.ring_bytes >= 2 * bytes, ErrorCode::invalid_argument,
        "ring_bytes = {} with {} = {}; a ring holds at least two entries, {} bytes: one is loaded while the other is "
        "read",
        machine.ring_bytes, name, bytes, 2 * bytes);
}

void check_machine(const Machine& machine) {
  check(machine.workers >= 1 && machine.workers <= 4096, ErrorCode::invalid_argument,
        "workers = {}; allowed are 1 to 4096", machine.workers);
  check(machine.tile_cols >= 32 && machine.tile_cols % 32 == 0, ErrorCode::invalid_argument,
        "tile_cols = {}; allowed are multiples of 32", machine.tile_cols);
  check(machine.max_entries >= 2, ErrorCode::invalid_argument, "max_entries = {}; allowed are 2 and more",
        machine.max_entries);
  check(machine.kv_chunk >= 1, ErrorCode::invalid_argument, "kv_chunk = {}; allowed are 1 and more", machine.kv_chunk);
  check_entry("entry_bytes", machine.entry_bytes, machine);
  for (const auto& [role, bytes] : machine.entry_bytes_of)
    check_entry(fmt::format("entry_bytes of {}", to_string(role)), bytes, machine);
}

// The first tile of the panel at or behind an even share of its bytes.
int64_t tile_border(const TiledMatrix& tiles, int64_t panel, int worker, int workers) {
  const int64_t byte = share_begin(tiles.panel_bytes(), worker, workers);
  const auto first_byte = [&](size_t part) { return tiles.parts[part].first_byte / tiles.num_panels; };
  size_t part = tiles.parts.size() - 1;
  while (part > 0 && first_byte(part) > byte) --part;
  const TiledMatrix::Part& of = tiles.parts[part];
  return panel * tiles.panel_tiles() + of.first_band * tiles.strip_tiles() +
         (byte - first_byte(part) + of.tile_bytes - 1) / of.tile_bytes;
}

void number_slots(MatrixPartition& matrix, int workers) {
  const TiledMatrix& tiles = matrix.tiles;
  // Of the segments into which strips and workers cut the line, so many begin before a tile.
  int32_t cuts = 0;
  int64_t last_cut = -1, strip = 0;
  const auto begin_strips = [&](int64_t until) {  // strips that begin at or before tile `until`
    for (; strip < tiles.num_strips() && strip * tiles.strip_tiles() <= until; ++strip)
      matrix.first_slot.push_back(static_cast<int32_t>(strip) + cuts);
  };
  for (int w = 0; w < workers; ++w) {
    const int64_t at = matrix.borders[static_cast<size_t>(w)];
    begin_strips(at);
    const bool has_tiles = at < matrix.borders[static_cast<size_t>(w) + 1];
    if (at % tiles.strip_tiles() != 0 && at != last_cut) {
      ++cuts;
      last_cut = at;
    }
    matrix.worker_slot.push_back(has_tiles ? static_cast<int32_t>(strip) - 1 + cuts : -1);
  }
  begin_strips(tiles.num_tiles());
  matrix.first_slot.push_back(static_cast<int32_t>(tiles.num_strips()) + cuts);
}

// Of x, in bf16.
int64_t x_bytes_of(const TiledMatrix& tiles, int64_t panels, int rows) {
  return tiles.band_tiles / panels * tiles.tile_cols * rows * 2;
}

// Rows of x for which matrices are cut into panels: as many as the head, which has one panel, leaves room for.
int panel_rows_of(const TiledMatrix& head, const Machine& machine) {
  int rows = kMostRows;
  while (rows > 1 && x_bytes_of(head, 1, rows) > machine.x_bytes) rows /= 2;
  return rows;
}

// The fewest panels whose columns x_bytes hold; up to twice as many, if workers divide into them: all panels then have
// as many.
int64_t num_panels_of(const TiledMatrix& tiles, WeightRole role, int rows, const Machine& machine) {
  const auto bytes_of = [&](int64_t panels) { return x_bytes_of(tiles, panels, rows); };
  const auto divides = [&](int64_t panels) { return tiles.band_tiles % panels == 0; };
  const bool is_whole = role == WeightRole::head;
  check(bytes_of(is_whole ? 1 : tiles.band_tiles) <= machine.x_bytes, ErrorCode::invalid_argument,
        "x_bytes = {}; {} columns of {}{}, of {} row{} in bf16, have {} bytes", machine.x_bytes,
        is_whole ? tiles.cols : tiles.tile_cols, to_string(role),
        is_whole ? ", which is cut between bands and so has one panel" : ", which are a tile", rows,
        rows == 1 ? "" : "s", bytes_of(is_whole ? 1 : tiles.band_tiles));
  int64_t fewest = 1;
  while (!divides(fewest) || bytes_of(fewest) > machine.x_bytes) ++fewest;
  if (fewest > machine.workers) {
    fewest = machine.workers;
    while (!divides(fewest)) --fewest;
    return fewest;
  }
  for (int64_t panels = fewest; panels <= std::min<int64_t>(2 * fewest, tiles.band_tiles); ++panels)
    if (divides(panels) && machine.workers % panels == 0) return panels;
  return fewest;
}

// Not dealt yet.
MatrixPartition tiled(const MatrixForm& form, int layer, const Machine& machine) {
  MatrixPartition matrix{.role = form.role,
                         .layer = layer,
                         .tiles = tile(form, machine.tile_cols),
                         .entry_bytes = machine.entry_bytes_for(form.role)};
  for (const TiledMatrix::Part& part : matrix.tiles.parts)
    check(part.tile_bytes <= matrix.entry_bytes, ErrorCode::invalid_argument,
          "entry_bytes = {}; a tile of {} has {} bytes ({} rows by {} columns of {}), and an entry holds at least one",
          matrix.entry_bytes, to_string(form.role), part.tile_bytes, kBandRows, matrix.tiles.tile_cols,
          weft::to_string(part.type));
  return matrix;
}

void cut(MatrixPartition& matrix, int panel_rows, const Machine& machine) {
  matrix.tiles.num_panels = num_panels_of(matrix.tiles, matrix.role, panel_rows, machine);
  MatrixPartition dealt = deal(matrix.tiles, machine.workers, matrix.role == WeightRole::head);
  matrix.borders = std::move(dealt.borders);
  matrix.first_slot = std::move(dealt.first_slot);
  matrix.worker_slot = std::move(dealt.worker_slot);
}

// Layers whose matrices have the same types.
bool are_alike(const ModelForm& form, const Phases& phases, int a, int b) {
  for (int i = 0; i < phases.of_layer; ++i) {
    const Phase& phase = phases.all[static_cast<size_t>(a * phases.of_layer + i)];
    if (phase.multiplies() && find_form(form, phase.role, a).parts != find_form(form, phase.role, b).parts)
      return false;
  }
  return true;
}

int period_of(const ModelForm& form, const Phases& phases) {
  for (int period = phases.layer_period; period < phases.num_layers; period += phases.layer_period) {
    int layer = period;
    while (layer < phases.num_layers && are_alike(form, phases, layer, layer - period)) ++layer;
    if (layer == phases.num_layers) return period;
  }
  return phases.num_layers;
}

}  // namespace

std::string_view to_string(EdgeForm form) { return form == EdgeForm::counter ? "counter" : "tagged"; }

int64_t Machine::entry_bytes_for(WeightRole role) const {
  for (const auto& [of, bytes] : entry_bytes_of)
    if (of == role) return bytes;
  return entry_bytes;
}

MatrixPartition deal(TiledMatrix tiles, int workers, bool whole_bands) {
  MatrixPartition matrix{.tiles = std::move(tiles)};
  const TiledMatrix& of = matrix.tiles;
  for (int64_t panel = 0; panel < of.num_panels; ++panel) {
    const auto first_worker = [&](int64_t p) { return static_cast<int>(workers * p / of.num_panels); };
    const int first = first_worker(panel), count = first_worker(panel + 1) - first;
    for (int w = 0; w < count; ++w)
      matrix.borders.push_back(whole_bands ? share_begin(of.num_strips(), first + w, workers) * of.strip_tiles()
                                           : tile_border(of, panel, w, count));
  }
  matrix.borders.push_back(of.num_tiles());
  number_slots(matrix, workers);
  return matrix;
}

int MatrixPartition::most_pieces() const {
  int most = 1;
  for (size_t strip = 0; strip + 1 < first_slot.size(); ++strip)
    most = std::max(most, first_slot[strip + 1] - first_slot[strip]);
  return most;
}

const MatrixPartition& Partition::matrix_of(const Phase& phase) const {
  ensure(phase.multiplies(), "{} has no matrix", name_of(phase));
  return matrix_of(phase.role, phase.layer);
}

const MatrixPartition& Partition::matrix_of(WeightRole role, int layer) const {
  const auto found = std::ranges::find_if(matrices, [&](const MatrixPartition& matrix) {
    return matrix.role == role && (matrix.layer < 0 || matrix.layer == layer % period);
  });
  ensure(found != matrices.end(), "layer {} has no matrix {}", layer, to_string(role));
  return *found;
}

const MatrixPartition& Partition::matrix_of(Shared sums, int layer) const {
  const auto found =
      std::ranges::find_if(matrices, [&](const MatrixPartition& matrix) { return shared_of(matrix.role) == sums; });
  ensure(found != matrices.end(), "{} holds no sums", to_string(sums));
  return matrix_of(found->role, layer);
}

int64_t Partition::num_cells(Shared shared, int layer) const {
  const auto cells_of = [&](Buffer buffer) { return (program.cols_of(buffer) + kBandRows - 1) / kBandRows; };
  switch (shared) {
    case Shared::attended: return program.num_qo_heads * head_cells();
    case Shared::squares:
    case Shared::normed: return cells_of(Buffer::residual);
    case Shared::gated: return cells_of(Buffer::gated);
    default: return matrix_of(shared, layer).num_slots();
  }
}

Range Partition::owned_cells(Shared shared, int worker) const {
  const int64_t cells = num_cells(shared, 0);
  return {share_begin(cells, worker, machine.workers), share_begin(cells, worker + 1, machine.workers)};
}

Range Partition::attended_cells(Range columns) const {
  if (columns.empty()) return {};
  const auto cell_of = [&](int64_t column) {
    return column / program.head_dim * head_cells() + column % program.head_dim / kBandRows;
  };
  return {cell_of(columns.begin), cell_of(columns.end - 1) + 1};
}

Partition make_partition(const Program& program, const ModelForm& form, const Machine& machine) {
  check_machine(machine);
  const int group = program.num_qo_heads / program.num_kv_heads;
  check(group <= kItemRows, ErrorCode::unsupported,
        "the fused step: required {} query heads per KV head; supported are 1 to {}; missing: items of attention for "
        "more; run it by layers",
        group, kItemRows);
  Partition partition{.machine = machine, .program = program, .phases = make_phases(program)};
  const Phases& phases = partition.phases;
  partition.period = period_of(form, phases);
  for (const Phase& phase : phases.all)
    if (phase.multiplies() && phase.layer < partition.period)
      partition.matrices.push_back(tiled(find_form(form, phase.role, phase.layer), phase.layer, machine));
  const int panel_rows = panel_rows_of(partition.matrices.back().tiles, machine);
  for (MatrixPartition& matrix : partition.matrices) cut(matrix, panel_rows, machine);
  partition.embedding = tile(find_form(form, WeightRole::embedding, -1), machine.tile_cols);
  return partition;
}

std::string to_string(const Partition& partition) {
  const Machine& machine = partition.machine;
  std::string text =
      fmt::format("{} workers, rings of {} bytes in entries of at most {}, {} edges; layers repeat after {}\n",
                  machine.workers, machine.ring_bytes, machine.max_entries, to_string(machine.edge), partition.period);
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{:<20}  {:>14}  {:>6}  {:>12}  {:>7}  {:>7}  {:>6}  {:>15}  {:>14}  {:>6}  {:>7}\n", "matrix",
                 "rows x columns", "types", "bytes", "tiles", "a band", "panels", "tiles a worker", "bytes a worker",
                 "cuts", "entry");
  for (const MatrixPartition& matrix : partition.matrices) {
    const TiledMatrix& tiles = matrix.tiles;
    int64_t fewest = tiles.num_tiles(), most = 0, most_bytes = 0;
    for (size_t w = 0; w + 1 < matrix.borders.size(); ++w) {
      const int64_t begin = matrix.borders[w], end = matrix.borders[w + 1], bytes = tiles.bytes_of(begin, end);
      fewest = std::min(fewest, end - begin), most = std::max(most, end - begin);
      most_bytes = std::max(most_bytes, bytes);
    }
    std::string types;
    for (const TiledMatrix::Part& part : tiles.parts)
      types += fmt::format("{}{}", types.empty() ? "" : "+", weft::to_string(part.type));
    fmt::format_to(
        out, "{:<20}  {:>14}  {:>6}  {:>12}  {:>7}  {:>7}  {:>6}  {:>15}  {:>14}  {:>6}  {:>7}\n",
        matrix.layer < 0 ? std::string("head") : fmt::format("layer {}: {}", matrix.layer, to_string(matrix.role)),
        fmt::format("{} x {}", tiles.rows, tiles.cols), types, tiles.bytes, tiles.num_tiles(), tiles.band_tiles,
        tiles.num_panels, fmt::format("{} to {}", fewest, most), fmt::format("{}", most_bytes),
        matrix.num_slots() - tiles.num_strips(), matrix.entry_bytes);
  }
  return text;
}

}  // namespace weft::decode::fused
