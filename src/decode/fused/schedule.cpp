#include "decode/fused/schedule.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace weft::decode::fused {
namespace {

// One worker's loads and steps.
class Writer {
 public:
  Writer(const Partition& partition, const Schedule& schedule, int worker)
      : partition_(partition), program_(partition.program), schedule_(schedule), worker_(worker) {}

  WorkerSchedule write() {
    for (int p = 0; p < schedule_.num_phases; ++p) {
      phase_ = p;
      const Phase& phase = partition_.phases.all[static_cast<size_t>(p)];
      if (counts() && p > 0) add({.kind = StepKind::wait, .id = p - 1, .count = partition_.machine.workers});
      if (phase.attends())
        attention(phase);
      else if (phase.merges())
        merge(phase);
      else if (phase.reduces())
        reduce(phase);
      else
        product(phase);
      if (counts() && p + 1 < schedule_.num_phases) add({.kind = StepKind::arrive, .id = p});
    }
    return std::move(own_);
  }

 private:
  bool counts() const { return partition_.machine.edge == EdgeForm::counter; }
  size_t w() const { return static_cast<size_t>(worker_); }
  int group() const { return program_.num_qo_heads / program_.num_kv_heads; }

  void add(WorkerStep step) {
    step.phase = phase_;
    own_.steps.push_back(step);
  }
  // What the phase before wrote.
  void read(Shared buffer, Range cells) {
    if (cells.empty()) return;
    add({.kind = StepKind::read, .buffer = buffer, .id = phase_ - 1, .begin = cells.begin, .end = cells.end});
  }

  // ---- the ring

  // Adds a load, where the ring has room next.
  int load(Load load) {
    const int64_t ring = partition_.machine.ring_bytes;
    if (ring_at_ + load.bytes > ring) ring_at_ = 0;
    load.phase = phase_;
    load.at = ring_at_;
    ring_at_ += (load.bytes + kAlignment - 1) / kAlignment * kAlignment;
    const int index = static_cast<int>(own_.loads.size());
    // Entries are released in their order: with the last one that lies where this one goes, all before it.
    const auto overlaps = [&](const Load& other) {
      return other.at < load.at + load.bytes && load.at < other.at + other.bytes;
    };
    int last = index - 1;
    while (last >= free_ && !overlaps(own_.loads[static_cast<size_t>(last)])) --last;
    free_ = std::max({free_, last + 1, index + 1 - partition_.machine.max_entries});
    load.after = free_;
    own_.loads.push_back(load);
    return index;
  }

  // ---- products

  // A worker without tiles makes nothing, and reads nothing: nobody would wait until it has.
  void product(const Phase& phase) {
    const MatrixPartition& matrix = partition_.matrix_of(phase);
    const TiledMatrix& tiles = matrix.tiles;
    const auto [first, end] = matrix.tiles_of(worker_);
    const Range owned = phase.embeds() ? partition_.owned_cells(Shared::normed, worker_) : Range{};
    if (first == end && owned.empty()) return;
    const Range columns = first < end ? columns_of(tiles, first, end) : Range{};
    read_for(phase, columns);
    add({.kind = StepKind::prologue, .begin = columns.begin, .end = columns.end});
    if (!owned.empty()) add({.kind = StepKind::keep, .begin = owned.begin, .end = owned.end});
    int64_t slot = matrix.worker_slot[w()];
    for (int64_t tile = first; tile < end;) {
      int64_t behind = tile + 1;
      while (behind < end && tiles.bytes_of(tile, behind + 1) <= matrix.entry_bytes) ++behind;
      const int entry = load({.begin = tile, .end = behind, .bytes = tiles.bytes_of(tile, behind)});
      add({.kind = StepKind::await, .id = entry});
      while (tile < behind) {
        const int64_t strip_end = (tile / tiles.strip_tiles() + 1) * tiles.strip_tiles();
        const int64_t stop = std::min(behind, strip_end);
        add({.kind = StepKind::multiply, .id = entry, .begin = tile, .end = stop});
        if (stop == strip_end || stop == end)
          add({.kind = StepKind::write_sums, .buffer = phase.writes, .begin = slot, .end = slot + 1}), ++slot;
        tile = stop;
      }
      add({.kind = StepKind::release, .id = entry});
    }
  }

  // Of the panel that the tiles lie in.
  Range columns_of(const TiledMatrix& tiles, int64_t first, int64_t end) const {
    const int64_t of_panel = tiles.strip_tiles() * tiles.tile_cols;
    return {tiles.panel_of(first) * of_panel, std::min((tiles.panel_of(end - 1) + 1) * of_panel, tiles.cols)};
  }

  // What the prologue needs for these columns.
  void read_for(const Phase& phase, Range columns) {
    if (phase.embeds()) return;
    const Phase& before = *partition_.phases.before(phase_);
    if (phase.is_normed)  // the factor takes squares of all columns
      read(before.writes, {0, partition_.num_cells(before.writes, 0)});
    else if (before.merges())
      read(before.writes, partition_.attended_cells(columns));
    else
      read(before.writes, {columns.begin / kBandRows, (columns.end + kBandRows - 1) / kBandRows});
  }

  // ---- reductions

  void reduce(const Phase& phase) {
    const Range owned = partition_.owned_cells(phase.writes, worker_);
    for (int64_t cell = owned.begin; cell < owned.end; ++cell) {
      if (phase.norms_sums)
        read(Shared::squares, {0, partition_.num_cells(Shared::squares, 0)});
      else
        read_rows(*partition_.phases.before(phase_), columns_of_cell(phase, cell));
      add({.kind = StepKind::reduce, .buffer = phase.writes, .begin = cell, .end = cell + 1});
    }
  }

  // Of the product's rows.
  std::vector<Range> columns_of_cell(const Phase& phase, int64_t cell) const {
    const int64_t cols = program_.cols_of(phase.writes == Shared::gated ? Buffer::gated : Buffer::residual);
    const Range columns{cell * kBandRows, std::min((cell + 1) * kBandRows, cols)};
    if (phase.writes != Shared::gated) return {columns};
    return {columns, {cols + columns.begin, cols + columns.end}};  // gate, then up
  }

  // The slots that hold rows of the matrix of the phase before, each once.
  void read_rows(const Phase& before, const std::vector<Range>& rows) {
    const MatrixPartition& matrix = partition_.matrix_of(before);
    std::vector<Range> slots;
    for (const Range& range : rows)
      for (const Range& own : slots_of(matrix, range.begin, range.end)) slots.push_back(own);
    std::ranges::sort(slots, {}, &Range::begin);
    Range open;
    for (const Range& range : slots) {
      if (!open.empty() && range.begin <= open.end) {
        open.end = std::max(open.end, range.end);
        continue;
      }
      read(before.writes, open);
      open = range;
    }
    read(before.writes, open);
  }

  // ---- attention

  // Cell by cell: on a card those that are merged at once are read before any of them is written, others behind that.
  void merge(const Phase& phase) {
    const Range own = partition_.owned_cells(phase.writes, worker_);
    for (int64_t cell = own.begin; cell < own.end; ++cell) {
      read_states(schedule_.items_of(phase, program_), cell / partition_.head_cells());
      add({.kind = StepKind::merge, .buffer = phase.writes, .begin = cell, .end = cell + 1});
    }
  }

  // Of a query head, of all rows.
  void read_states(const AttentionItems& items, int64_t head) {
    for (const AttentionItem& item : items.items) {
      if (item.kv_head != head / group()) continue;
      for (int64_t row = 0; row < item.num_rows(); ++row) {
        const int64_t state = item.first_state + row * group() + head % group();
        read(Shared::states, {state, state + 1});
      }
    }
  }

  void attention(const Phase& phase) {
    const AttentionItems& items = schedule_.items_of(phase, program_);
    for (int i = items.worker_indptr[w()]; i < items.worker_indptr[w() + 1]; ++i) {
      const AttentionItem& of = items.items[static_cast<size_t>(i)];
      read_heads(items, of);
      const auto [begin, end] = items.appended_rows(of);
      if (begin < end) add({.kind = StepKind::append, .id = i, .begin = begin, .end = end});
      item(items, i);
    }
  }

  // Slots of the heads that an item needs, each once.
  void read_heads(const AttentionItems& items, const AttentionItem& item) {
    const int64_t dim = program_.head_dim, q = program_.cols_of(Buffer::query), kv = program_.cols_of(Buffer::key);
    std::vector<Range> rows{{item.kv_head * group() * dim, (item.kv_head + 1) * group() * dim}};  // of the matrix
    if (item.kv_end > items.requests[static_cast<size_t>(item.request)].cached())
      for (const int64_t at : {q, q + kv}) rows.push_back({at + item.kv_head * dim, at + (item.kv_head + 1) * dim});
    read_rows(*partition_.phases.before(phase_), rows);
  }

  void item(const AttentionItems& items, int i) {
    const AttentionItem& item = items.items[static_cast<size_t>(i)];
    const int cached = items.requests[static_cast<size_t>(item.request)].cached();
    add({.kind = StepKind::start, .id = i});
    const int64_t begin = item.kv_begin, end = std::min(item.kv_end, cached);
    if (begin < end) {
      const int entry =
          load({.item = i, .begin = begin, .end = end, .bytes = (end - begin) * schedule_.shape.kv_bytes});
      add({.kind = StepKind::await, .id = entry});
      add({.kind = StepKind::attend, .id = entry, .count = i, .begin = begin, .end = end});
      add({.kind = StepKind::release, .id = entry});
    }
    if (item.kv_end > cached)
      add({.kind = StepKind::attend_own, .id = i, .begin = std::max(item.kv_begin, cached), .end = item.kv_end});
    add({.kind = StepKind::write_states,
         .buffer = Shared::states,
         .begin = item.first_state,
         .end = item.first_state + item.num_states(group())});
  }

  const Partition& partition_;
  const Program& program_;
  const Schedule& schedule_;
  const int worker_;
  int phase_ = 0;
  WorkerSchedule own_;
  int64_t ring_at_ = 0;
  int free_ = 0;  // loads that are released before the next one is issued
};

}  // namespace

const AttentionItems& Schedule::items_of(const Phase& phase, const Program& program) const {
  const size_t kind = main_of(phase, program).window > 0 ? shape.items.size() - 1 : 0;
  return shape.items[kind];
}

int64_t Schedule::num_cells(const Partition& partition, const Phase& phase) const {
  return phase.attends() ? items_of(phase, partition.program).num_states
                         : partition.num_cells(phase.writes, phase.layer);
}

int Schedule::num_rows() const {
  const StepRequest& last = shape.items[0].requests.back();
  return last.first_row + last.num_rows;
}

Schedule make_schedule(const Partition& partition, StepShape shape) {
  const Machine& machine = partition.machine;
  check(
      2 * machine.kv_chunk * shape.kv_bytes <= machine.ring_bytes, ErrorCode::invalid_argument,
      "kv_chunk = {}; keys and values of so many tokens of a KV head have {} bytes and are an entry, and a ring of {} "
      "bytes (ring_bytes) holds at least two: one is loaded while the other is read",
      machine.kv_chunk, machine.kv_chunk * shape.kv_bytes, machine.ring_bytes);
  Schedule schedule{.shape = std::move(shape), .num_phases = partition.phases.size()};
  if (!schedule.shape.wants_logits)
    while (!partition.phases.all[static_cast<size_t>(schedule.num_phases) - 1].attends()) --schedule.num_phases;
  if (machine.edge == EdgeForm::counter) schedule.num_counters = schedule.num_phases - 1;
  for (int w = 0; w < partition.machine.workers; ++w)
    schedule.workers.push_back(Writer(partition, schedule, w).write());
  return schedule;
}

std::vector<Range> slots_of(const MatrixPartition& matrix, int64_t begin, int64_t end) {
  if (begin >= end) return {};
  const int64_t first = matrix.tiles.band_of_row(begin), last = matrix.tiles.band_of_row(end - 1);
  std::vector<Range> slots;
  for (int64_t strip = 0; strip < matrix.tiles.num_strips(); strip += matrix.tiles.num_bands) {
    const Range own{matrix.first_slot[static_cast<size_t>(strip + first)],
                    matrix.first_slot[static_cast<size_t>(strip + last) + 1]};
    if (!slots.empty() && slots.back().end == own.begin)
      slots.back().end = own.end;
    else
      slots.push_back(own);
  }
  return slots;
}

}  // namespace weft::decode::fused
