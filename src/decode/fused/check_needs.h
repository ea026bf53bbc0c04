// What the program says that a prologue or an item must have read, held against what a worker has read.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "decode/fused/check_memory.h"

namespace weft::decode::fused {

// Contents that a worker has read in a phase, by cells; kNothing: not read.
using Inbox = std::array<std::vector<int>, kNumShared>;

class CheckedNeeds {
 public:
  CheckedNeeds(const Partition& partition, const Schedule& schedule, const CheckedMemory& memory)
      : partition_(partition), program_(partition.program), schedule_(schedule), memory_(memory) {}

  // Each empty, or what is missing.
  // The prologue of a product that makes columns [begin, end) of what it multiplies.
  std::string of_prologue(int phase, Range columns, const Inbox& inbox) const;
  // A reduction that makes the cell.
  std::string of_reduction(int phase, int64_t cell, const Inbox& inbox) const;
  // Columns [begin, end) of the buffer, one of those that the product before attention writes.
  std::string of_heads(int phase, Buffer buffer, int64_t first_head, int64_t end_head, const Inbox& inbox) const;
  // States of the heads whose attended cells these are, of all rows.
  std::string of_merge(int phase, Range cells, const Inbox& inbox) const;
  // All of the product's bands: what lies in memory behind the last phase.
  std::string of_result(int phase) const;

 private:
  std::string bands(int writer, Range rows, const std::vector<int>& contents) const;
  // That each holds the cell of its number, written in that phase.
  std::string cells(Shared shared, int writer, Range cells, const std::vector<int>& contents) const;

  const Partition& partition_;
  const Program& program_;
  const Schedule& schedule_;
  const CheckedMemory& memory_;
};

}  // namespace weft::decode::fused
