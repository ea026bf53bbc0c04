// Greedy sampling on a card: of each row of logits that lie there, the first of the greatest.
//
//   GreedyRows greedy(device, most_rows, columns);
//   const int* ids = greedy.run(logits, rows, stream);   // [rows], on the card; -1: the row's are all -inf or NaN
#pragma once

#include <cstdint>

#include "weft/device.h"

namespace weft::ops {

class GreedyRows {
 public:
  GreedyRows() = default;
  // For launches one behind the other, of so many rows at most.
  GreedyRows(Device device, int64_t most_rows, int64_t columns);

  const int* run(const float* logits, int64_t rows, Stream stream) const;
  const void* data() const { return memory_.data(); }

 private:
  Workspace memory_ = {};  // [most_rows]: counters, zero whenever no launch runs; ids; [most_rows, parts]: found
  int64_t most_rows_ = 0, columns_ = 0;
};

}  // namespace weft::ops
