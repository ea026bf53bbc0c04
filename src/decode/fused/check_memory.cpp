#include "decode/fused/check_memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::decode::fused {

CheckedMemory::CheckedMemory(const Partition& partition, const Schedule& schedule)
    : num_workers_(schedule.workers.size()) {
  const auto make_room = [&](Shared shared, int64_t cells) {
    std::vector<Cell>& of = buffers_[static_cast<size_t>(shared)].cells;
    of.resize(std::max(of.size(), static_cast<size_t>(cells)));
  };
  for (int p = 0; p < schedule.num_phases; ++p) {
    const Phase& phase = partition.phases.all[static_cast<size_t>(p)];
    make_room(phase.writes, schedule.num_cells(partition, phase));
    if (phase.writes_residual) make_room(phase.residual_to, partition.num_cells(phase.residual_to, 0));
  }
  for (Buffer& buffer : buffers_) buffer.read.assign(buffer.cells.size() * num_workers_, 0);
  clocks_.assign(num_workers_, std::vector<int>(num_workers_, 0));
  for (size_t w = 0; w < num_workers_; ++w) clocks_[w][w] = 1;
  arrived_.assign(static_cast<size_t>(schedule.num_counters), 0);
  arrival_clocks_.assign(arrived_.size(), std::vector<int>(num_workers_, 0));
}

std::string CheckedMemory::read(int worker, Shared shared, Range cells, std::vector<int>& inbox) {
  Buffer& of = buffers_[static_cast<size_t>(shared)];
  if (cells.begin < 0 || cells.empty() || cells.end > num_cells(shared))
    return fmt::format("{} has {} cells", to_string(shared), num_cells(shared));
  const std::vector<int>& known = clock(worker);
  for (int64_t i = cells.begin; i < cells.end; ++i) {
    const Cell& cell = of.cells[static_cast<size_t>(i)];
    if (cell.writer == kNothing) return fmt::format("nobody has written cell {} of {}", i, to_string(shared));
    if (known[static_cast<size_t>(cell.writer)] < cell.written)
      return fmt::format("cell {} of {} is not behind a wait on its writer, worker {}", i, to_string(shared),
                         cell.writer);
    inbox[static_cast<size_t>(i)] = cell.content;
    of.read[static_cast<size_t>(i) * num_workers_ + static_cast<size_t>(worker)] = known[static_cast<size_t>(worker)];
  }
  return {};
}

std::string CheckedMemory::write(int worker, Shared shared, int64_t index, const Content& content) {
  Buffer& of = buffers_[static_cast<size_t>(shared)];
  if (index < 0 || index >= num_cells(shared)) return fmt::format("{} has no cell {}", to_string(shared), index);
  Cell& cell = of.cells[static_cast<size_t>(index)];
  const std::vector<int>& known = clock(worker);
  if (cell.writer != kNothing && contents_[static_cast<size_t>(cell.content)].phase == content.phase)
    return fmt::format("cell {} of {} was written in this phase already, by worker {}", index, to_string(shared),
                       cell.writer);
  if (cell.writer != kNothing && known[static_cast<size_t>(cell.writer)] < cell.written)
    return fmt::format("cell {} of {} is written while worker {} writes it", index, to_string(shared), cell.writer);
  int* const read = of.read.data() + static_cast<size_t>(index) * num_workers_;
  for (size_t w = 0; w < num_workers_; ++w)
    if (known[w] < read[w])
      return fmt::format("cell {} of {} is written before worker {} is known to have read what lay there", index,
                         to_string(shared), w);
  std::fill_n(read, num_workers_, 0);
  cell = {static_cast<int>(contents_.size()), worker, known[static_cast<size_t>(worker)]};
  contents_.push_back(content);
  return {};
}

void CheckedMemory::arrive(int worker, int counter) {
  std::vector<int>& own = clock(worker);
  std::vector<int>& joined = arrival_clocks_[static_cast<size_t>(counter)];
  for (size_t w = 0; w < num_workers_; ++w) joined[w] = std::max(joined[w], own[w]);
  ++own[static_cast<size_t>(worker)];
  ++arrived_[static_cast<size_t>(counter)];
}

void CheckedMemory::wait(int worker, int counter) {
  std::vector<int>& own = clock(worker);
  const std::vector<int>& joined = arrival_clocks_[static_cast<size_t>(counter)];
  for (size_t w = 0; w < num_workers_; ++w) own[w] = std::max(own[w], joined[w]);
}

}  // namespace weft::decode::fused
