// What the checker follows of memory that all workers see: who wrote and read which cell, behind whom, and what lies
// there.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "decode/fused/schedule.h"

namespace weft::decode::fused {

inline constexpr int kNothing = -1;

// What was written, as a name: sums of tiles [begin, end) of a band; a cell of the residual; a state.
struct Content {
  int phase = kNothing;
  int64_t what = kNothing;  // band, or cell
  int64_t begin = 0, end = 0;
};

class CheckedMemory {
 public:
  CheckedMemory(const Partition& partition, const Schedule& schedule);

  int64_t num_cells(Shared shared) const { return static_cast<int64_t>(buffer(shared).cells.size()); }
  const Content& content(int id) const { return contents_[static_cast<size_t>(id)]; }
  int content_of(Shared shared, int64_t cell) const { return buffer(shared).cells[static_cast<size_t>(cell)].content; }

  // Empty, or what is wrong. Contents of the cells go to `inbox`, ids of contents by cells.
  std::string read(int worker, Shared shared, Range cells, std::vector<int>& inbox);
  std::string write(int worker, Shared shared, int64_t cell, const Content& content);

  void arrive(int worker, int counter);
  bool has_arrived(int counter, int count) const { return arrived_[static_cast<size_t>(counter)] >= count; }
  int arrived(int counter) const { return arrived_[static_cast<size_t>(counter)]; }
  void wait(int worker, int counter);

 private:
  struct Cell {
    int content = kNothing;
    int writer = kNothing, written = 0;  // worker, its clock then
  };
  struct Buffer {
    std::vector<Cell> cells;
    std::vector<int> read;  // [cells, workers]: the worker's clock then; 0: not since the last write
  };
  const Buffer& buffer(Shared shared) const { return buffers_[static_cast<size_t>(shared)]; }
  std::vector<int>& clock(int worker) { return clocks_[static_cast<size_t>(worker)]; }

  const size_t num_workers_;
  std::array<Buffer, kNumShared> buffers_;
  std::vector<Content> contents_;
  // Of each worker: the clock of every worker up to which this one is behind it. It grows with each arrival.
  std::vector<std::vector<int>> clocks_;
  std::vector<int> arrived_;  // at counters
  std::vector<std::vector<int>> arrival_clocks_;
};

}  // namespace weft::decode::fused
