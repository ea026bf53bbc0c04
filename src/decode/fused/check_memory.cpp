#include "decode/fused/check_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::decode::fused {
namespace {

void join(std::vector<int>& clock, const std::vector<int>& other) {
  for (size_t w = 0; w < clock.size(); ++w) clock[w] = std::max(clock[w], other[w]);
}

}  // namespace

CheckedMemory::CheckedMemory(const Partition& partition, const Schedule& schedule)
    : is_tagged_(partition.machine.edge == EdgeForm::tagged), num_workers_(schedule.workers.size()) {
  const auto make_room = [&](Shared shared, int64_t cells) {
    std::vector<Cell>& of = buffers_[static_cast<size_t>(shared)].cells;
    of.resize(std::max(of.size(), static_cast<size_t>(cells)));
  };
  for (int p = 0; p < schedule.num_phases; ++p) {
    const Phase& phase = partition.phases.all[static_cast<size_t>(p)];
    make_room(phase.writes, schedule.num_cells(partition, phase));
  }
  for (Buffer& buffer : buffers_) buffer.read.assign(buffer.cells.size() * num_workers_, 0);
  workers_.assign(num_workers_, {.clock = Clock(num_workers_, 0), .before = {}, .learnt = {}, .sections = {}});
  for (size_t w = 0; w < num_workers_; ++w) workers_[w].clock[w] = 1;
  arrived_.assign(static_cast<size_t>(schedule.num_counters), 0);
  arrival_clocks_.assign(arrived_.size(), Clock(num_workers_, 0));
}

std::string CheckedMemory::read(int worker, Shared shared, Range cells, std::vector<int>& inbox) {
  Buffer& of = buffers_[static_cast<size_t>(shared)];
  if (cells.begin < 0 || cells.empty() || cells.end > num_cells(shared))
    return fmt::format("{} has {} cells", to_string(shared), num_cells(shared));
  Worker& reader = worker_at(worker);
  if (is_tagged_ && reader.section == kNothing && reader.has_written) {
    ++reader.clock[static_cast<size_t>(worker)];
    reader.has_written = false;
  }
  for (int64_t i = cells.begin; i < cells.end; ++i) {
    Cell& cell = of.cells[static_cast<size_t>(i)];
    if (cell.writer == kNothing) return fmt::format("nobody has written cell {} of {}", i, to_string(shared));
    if (is_tagged_)
      learn(worker, cell);
    else if (reader.clock[static_cast<size_t>(cell.writer)] < cell.written)
      return fmt::format("cell {} of {} is not behind a wait on its writer, worker {}", i, to_string(shared),
                         cell.writer);
    inbox[static_cast<size_t>(i)] = cell.content;
    if (reader.section == kNothing)
      of.read[static_cast<size_t>(i) * num_workers_ + static_cast<size_t>(worker)] =
          reader.clock[static_cast<size_t>(worker)];
    else if (cell.reading_sections.empty() || cell.reading_sections.back() != reader.section)
      cell.reading_sections.push_back(reader.section);
  }
  return {};
}

// What the writer of the cell was behind the reader is behind, too.
void CheckedMemory::learn(int worker, Cell& cell) {
  Worker& reader = worker_at(worker);
  reader.snapshot = kNothing;
  join(reader.clock, snapshots_[static_cast<size_t>(cell.snapshot)]);
  if (cell.section == kNothing) return;
  const Witness witness = reader.section == kNothing
                              ? Witness{.worker = worker, .clock = reader.clock[static_cast<size_t>(worker)]}
                              : Witness{.section = reader.section};
  std::vector<Witness>& witnesses = witnesses_[static_cast<size_t>(cell.section)];
  if (witnesses.empty() || witnesses.back() != witness) witnesses.push_back(witness);
}

bool CheckedMemory::is_behind(const Clock& clock, int section) const {
  return std::ranges::any_of(witnesses_[static_cast<size_t>(section)], [&](const Witness& witness) {
    return witness.section != kNothing ? is_behind(clock, witness.section)
                                       : clock[static_cast<size_t>(witness.worker)] >= witness.clock;
  });
}

std::string CheckedMemory::in_use(int worker, const Cell& cell, const int* read) const {
  const Clock& known = workers_[static_cast<size_t>(worker)].clock;
  for (size_t w = 0; w < num_workers_; ++w)
    if (known[w] < read[w]) return fmt::format("before worker {} is known to have read what lay there", w);
  for (const int section : cell.reading_sections)
    if (!is_behind(known, section)) return "before an item or a merge is known to have read what lay there";
  if (cell.writer == kNothing || cell.writer == worker) return {};
  // With tags, to be behind a reader is the only way to be behind the writer of this very cell.
  const bool is_read =
      !cell.reading_sections.empty() || std::any_of(read, read + num_workers_, [](int at) { return at > 0; });
  if (is_tagged_ ? is_read : known[static_cast<size_t>(cell.writer)] >= cell.written) return {};
  return fmt::format("while worker {} writes it", cell.writer);
}

std::string CheckedMemory::write(int worker, Shared shared, int64_t index, const Content& content) {
  Buffer& of = buffers_[static_cast<size_t>(shared)];
  if (index < 0 || index >= num_cells(shared)) return fmt::format("{} has no cell {}", to_string(shared), index);
  Cell& cell = of.cells[static_cast<size_t>(index)];
  if (cell.writer != kNothing && contents_[static_cast<size_t>(cell.content)].phase >= content.phase)
    return fmt::format(
        "cell {} of {} was written in {} already, by worker {}", index, to_string(shared),
        contents_[static_cast<size_t>(cell.content)].phase == content.phase ? "this phase" : "a later phase",
        cell.writer);
  int* const read = of.read.data() + static_cast<size_t>(index) * num_workers_;
  if (const std::string problem = in_use(worker, cell, read); !problem.empty())
    return fmt::format("cell {} of {} is written {}", index, to_string(shared), problem);
  std::fill_n(read, num_workers_, 0);
  Worker& writer = worker_at(worker);
  if (is_tagged_ && writer.snapshot == kNothing) {
    writer.snapshot = static_cast<int>(snapshots_.size());
    snapshots_.push_back(writer.clock);
  }
  writer.has_written = true;
  cell = {.content = static_cast<int>(contents_.size()),
          .writer = worker,
          .written = writer.clock[static_cast<size_t>(worker)],
          .snapshot = writer.snapshot,
          .section = writer.section};
  contents_.push_back(content);
  return {};
}

void CheckedMemory::arrive(int worker, int counter) {
  Clock& own = clock(worker);
  join(arrival_clocks_[static_cast<size_t>(counter)], own);
  ++own[static_cast<size_t>(worker)];
  ++arrived_[static_cast<size_t>(counter)];
}

void CheckedMemory::wait(int worker, int counter) {
  join(clock(worker), arrival_clocks_[static_cast<size_t>(counter)]);
}

std::string CheckedMemory::missing(Shared shared, Range cells, int phase) const {
  if (cells.begin < 0 || cells.end > num_cells(shared)) return {};
  for (int64_t i = cells.begin; i < cells.end; ++i) {
    const int id = content_of(shared, i);
    if (id == kNothing) return fmt::format("cell {} of {}, which nobody writes", i, to_string(shared));
    if (const int is = content(id).phase; is != phase)
      return fmt::format("cell {} of {} as phase {} writes it; it holds what phase {} has written", i,
                         to_string(shared), phase, is);
  }
  return {};
}

void CheckedMemory::begin_phase(int index, bool has_sections) {
  if (!is_tagged_) return;
  Worker& worker = worker_at(index);
  if (worker.section != kNothing) {
    join(worker.clock, worker.learnt);
    const int now = ++worker.clock[static_cast<size_t>(index)];
    for (const int section : worker.sections)
      witnesses_[static_cast<size_t>(section)].push_back({.worker = index, .clock = now});
    worker.sections.clear();
    worker.section = kNothing;
  }
  worker.snapshot = kNothing;
  if (!has_sections) return;
  worker.before = worker.learnt = worker.clock;
  begin_section(worker);
}

void CheckedMemory::begin_section(Worker& worker) {
  worker.section = static_cast<int>(witnesses_.size());
  worker.snapshot = kNothing;
  worker.sections.push_back(worker.section);
  witnesses_.emplace_back();
}

void CheckedMemory::end_section(int index) {
  if (!is_tagged_) return;
  Worker& worker = worker_at(index);
  join(worker.learnt, worker.clock);
  worker.clock = worker.before;
  begin_section(worker);
}

}  // namespace weft::decode::fused
