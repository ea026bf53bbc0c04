// What workers of a fused kernel hand on to each other, launch after launch: each cell bears the number of the phase
// that has written it (tile/cuda/edge.h). No number comes twice before all cells are zero again, which is no phase's.
//
//   TaggedCells cells;
//   cells.reserve(device, bytes, phases);               // zero, or of launches before
//   launch(cells.data(), cells.take(phases));           // its phases are numbered from there on, plus 1
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

#include "base/check.h"
#include "weft/device.h"

namespace weft::decode::fused {

class TaggedCells {
 public:
  // Launches that may follow before the next call: replays and traces of a step.
  static constexpr uint32_t kLaunches = 1 << 12;

  // So many bytes at least, and numbers for kLaunches more launches of so many phases. The stream that launches ran in
  // is waited for by then.
  void reserve(Device device, size_t bytes, uint32_t phases) {
    if (cells_.bytes() >= bytes && has_numbers(phases, kLaunches)) return;
    forget();
    cells_ = Workspace(device, bytes + bytes / 4);
  }
  // Numbers before the phases of a launch.
  uint32_t take(uint32_t phases) {
    ensure(has_numbers(phases, 1), "{} phases behind number {}", phases, next_);
    return std::exchange(next_, next_ + phases);
  }
  // What is reserved next is zero.
  void forget() {
    cells_ = Workspace();
    next_ = 0;
  }
  unsigned long long* data() const { return static_cast<unsigned long long*>(cells_.data()); }

 private:
  bool has_numbers(uint32_t phases, uint32_t launches) const {
    return (std::numeric_limits<uint32_t>::max() - next_) / phases >= launches;
  }

  Workspace cells_;
  uint32_t next_ = 0;
};

}  // namespace weft::decode::fused
