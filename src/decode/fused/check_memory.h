// What the checker follows of memory that all workers see: who wrote and read which cell, behind whom, and what lies
// there.
//
// Behind whom: with counters a worker is behind all that arrived at one that it waited for. With tags the one order
// there is goes from who writes a cell to who reads what it wrote. A worker's phases are in order; within attention and
// merges it has sections, an item or the merge of a cell each, which are behind the phase before and behind what they
// read themselves, but not behind each other.
#pragma once

#include <array>
#include <string>
#include <utility>
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

  // With tags: whether all cells hold what that phase wrote, or are not there; what is missing.
  bool holds(Shared shared, Range cells, int phase) const { return missing(shared, cells, phase).empty(); }
  std::string missing(Shared shared, Range cells, int phase) const;
  void begin_phase(int worker, bool has_sections);
  void end_section(int worker);

 private:
  using Clock = std::vector<int>;  // of each worker: up to when what it did is known
  struct Cell {
    int content = kNothing;
    int writer = kNothing, written = 0;      // worker, its clock then
    int snapshot = kNothing;                 // with tags: what the writer was behind
    int section = kNothing;                  // that wrote it
    std::vector<int> reading_sections = {};  // of what lies there
  };
  struct Buffer {
    std::vector<Cell> cells;
    std::vector<int> read;  // [cells, workers]: the worker's clock then; 0: not since the last write
  };
  struct Worker {
    Clock clock;
    int snapshot = kNothing;   // of the clock as it is; kNothing: none was made
    bool has_written = false;  // since it read last
    // In a phase of sections: the clock as the phase began, and what all sections have learnt.
    int section = kNothing;
    Clock before, learnt;
    std::vector<int> sections;  // of the phase
  };
  // Who has read what a section wrote, so that whoever is behind him is behind the section: a worker and its clock, or
  // another section.
  struct Witness {
    int worker = kNothing, clock = 0, section = kNothing;
    friend bool operator==(const Witness&, const Witness&) = default;
  };

  const Buffer& buffer(Shared shared) const { return buffers_[static_cast<size_t>(shared)]; }
  Worker& worker_at(int worker) { return workers_[static_cast<size_t>(worker)]; }
  Clock& clock(int worker) { return workers_[static_cast<size_t>(worker)].clock; }
  void begin_section(Worker& worker);
  void learn(int worker, Cell& cell);
  bool is_behind(const Clock& clock, int section) const;
  // Empty, or who is not known to be done with what lies in the cell.
  std::string in_use(int worker, const Cell& cell, const int* read) const;

  const bool is_tagged_;
  const size_t num_workers_;
  std::array<Buffer, kNumShared> buffers_;
  std::vector<Content> contents_;
  std::vector<Worker> workers_;
  std::vector<int> arrived_;  // at counters
  std::vector<Clock> arrival_clocks_;
  std::vector<Clock> snapshots_;
  std::vector<std::vector<Witness>> witnesses_;  // of sections
};

}  // namespace weft::decode::fused
