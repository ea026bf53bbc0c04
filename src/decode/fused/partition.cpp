#include "decode/fused/partition.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/check.h"

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

// Where share `worker` of `count` things begins.
int64_t border(int64_t count, int worker, int workers) { return count * worker / workers; }

std::vector<int64_t> even_borders(int64_t count, int workers) {
  std::vector<int64_t> borders;
  for (int w = 0; w <= workers; ++w) borders.push_back(border(count, w, workers));
  return borders;
}

// The first tile at or behind an even share of the bytes.
int64_t tile_border(const TiledMatrix& tiles, int worker, int workers) {
  const int64_t byte = border(tiles.bytes, worker, workers);
  size_t part = tiles.parts.size() - 1;
  while (part > 0 && tiles.parts[part].first_byte > byte) --part;
  const TiledMatrix::Part& of = tiles.parts[part];
  return of.first_band * tiles.band_tiles + (byte - of.first_byte + of.tile_bytes - 1) / of.tile_bytes;
}

void number_slots(MatrixPartition& matrix, int workers) {
  const TiledMatrix& tiles = matrix.tiles;
  // Of the segments into which bands and workers cut the line, so many begin before a tile.
  int32_t cuts = 0;
  int64_t last_cut = -1, band = 0;
  const auto begin_bands = [&](int64_t until) {  // bands that begin at or before tile `until`
    for (; band < tiles.num_bands && band * tiles.band_tiles <= until; ++band)
      matrix.first_slot.push_back(static_cast<int32_t>(band) + cuts);
  };
  for (int w = 0; w < workers; ++w) {
    const int64_t at = matrix.borders[static_cast<size_t>(w)];
    begin_bands(at);
    const bool has_tiles = at < matrix.borders[static_cast<size_t>(w) + 1];
    if (at % tiles.band_tiles != 0 && at != last_cut) {
      ++cuts;
      last_cut = at;
    }
    matrix.worker_slot.push_back(has_tiles ? static_cast<int32_t>(band) - 1 + cuts : -1);
  }
  begin_bands(tiles.num_tiles());
  matrix.first_slot.push_back(static_cast<int32_t>(tiles.num_bands) + cuts);
}

MatrixPartition cut(const MatrixForm& form, int layer, const Machine& machine) {
  MatrixPartition matrix{.role = form.role, .layer = layer, .tiles = tile(form, machine.tile_cols)};
  matrix.entry_bytes = machine.entry_bytes_for(form.role);
  const TiledMatrix& tiles = matrix.tiles;
  for (const TiledMatrix::Part& part : tiles.parts)
    check(part.tile_bytes <= matrix.entry_bytes, ErrorCode::invalid_argument,
          "entry_bytes = {}; a tile of {} has {} bytes ({} rows by {} columns of {}), and an entry holds at least one",
          matrix.entry_bytes, to_string(form.role), part.tile_bytes, kBandRows, tiles.tile_cols,
          weft::to_string(part.type));
  const bool whole_bands = form.role == WeightRole::head;
  for (int w = 0; w <= machine.workers; ++w)
    matrix.borders.push_back(whole_bands            ? border(tiles.num_bands, w, machine.workers) * tiles.band_tiles
                             : w == machine.workers ? tiles.num_tiles()
                                                    : tile_border(tiles, w, machine.workers));
  number_slots(matrix, machine.workers);
  return matrix;
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

int64_t Machine::entry_bytes_for(WeightRole role) const {
  for (const auto& [of, bytes] : entry_bytes_of)
    if (of == role) return bytes;
  return entry_bytes;
}

const MatrixPartition& Partition::matrix_of(const Phase& phase) const {
  ensure(phase.multiplies(), "{} has no matrix", name_of(phase));
  if (phase.layer < 0) return matrices.back();
  return matrix_of(phase.writes, phase.layer);
}

const MatrixPartition& Partition::matrix_of(Shared sums, int layer) const {
  if (sums == Shared::logits) return matrices.back();
  static constexpr WeightRole kRoles[] = {WeightRole::qkv, WeightRole::output, WeightRole::gate_up, WeightRole::down};
  ensure(sums >= Shared::qkv && sums <= Shared::down, "{} holds no sums", to_string(sums));
  const WeightRole role = kRoles[static_cast<size_t>(sums) - static_cast<size_t>(Shared::qkv)];
  const auto found = std::ranges::find_if(
      matrices, [&](const MatrixPartition& matrix) { return matrix.role == role && matrix.layer == layer % period; });
  ensure(found != matrices.end(), "layer {} has no matrix {}", layer, to_string(role));
  return *found;
}

int64_t Partition::num_cells(Shared shared, int layer) const {
  if (shared <= Shared::residual_1) return (program.cols_of(Buffer::residual) + kBandRows - 1) / kBandRows;
  if (shared == Shared::attended) return program.num_qo_heads * head_cells();
  return matrix_of(shared, layer).num_slots();
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
      partition.matrices.push_back(cut(find_form(form, phase.role, phase.layer), phase.layer, machine));
  partition.embedding = tile(find_form(form, WeightRole::embedding, -1), machine.tile_cols);
  partition.residual_borders = even_borders(partition.num_cells(Shared::residual_0, 0), machine.workers);
  partition.qo_head_borders = even_borders(program.num_qo_heads, machine.workers);
  return partition;
}

std::string to_string(const Partition& partition) {
  const Machine& machine = partition.machine;
  std::string text = fmt::format("{} workers, rings of {} bytes in entries of at most {}; layers repeat after {}\n",
                                 machine.workers, machine.ring_bytes, machine.max_entries, partition.period);
  const auto out = std::back_inserter(text);
  fmt::format_to(out, "{:<20}  {:>14}  {:>6}  {:>12}  {:>7}  {:>7}  {:>15}  {:>14}  {:>6}  {:>7}\n", "matrix",
                 "rows x columns", "types", "bytes", "tiles", "a band", "tiles a worker", "bytes a worker", "cuts",
                 "entry");
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
        out, "{:<20}  {:>14}  {:>6}  {:>12}  {:>7}  {:>7}  {:>15}  {:>14}  {:>6}  {:>7}\n",
        matrix.layer < 0 ? std::string("head") : fmt::format("layer {}: {}", matrix.layer, to_string(matrix.role)),
        fmt::format("{} x {}", tiles.rows, tiles.cols), types, tiles.bytes, tiles.num_tiles(), tiles.band_tiles,
        fmt::format("{} to {}", fewest, most), fmt::format("{}", most_bytes), matrix.num_slots() - tiles.num_bands,
        matrix.entry_bytes);
  }
  return text;
}

}  // namespace weft::decode::fused
