// A walker's ring and its producer: loads are issued as their entries become free, and land later.
#pragma once

#include <vector>

#include "decode/fused/walk_memory.h"

namespace weft::decode::fused {

class WalkRing {
 public:
  WalkRing(Walk::Memory& memory, const std::vector<Load>& loads) : memory_(memory), loads_(loads) {}
  void reset();

  bool can_issue() const { return next_ < loads_.size() && released_ >= loads_[next_].after; }
  void issue();
  size_t num_in_flight() const { return in_flight_.size(); }
  void land(size_t which);  // of those in flight
  bool is_done() const { return next_ == loads_.size() && in_flight_.empty(); }

  // Each throws for a load that is not there.
  const Load& at(int load) const;
  bool has_landed(int load) const { return at(load).bytes >= 0 && landed_[static_cast<size_t>(load)] != 0; }
  void release(int load);
  // Of a load: bytes [first, first + count).
  const char* data(const Load& load, int64_t first, int64_t count) const {
    demand(load.at >= 0 && first >= 0 && count >= 0 && load.at + first + count <= static_cast<int64_t>(bytes_.size()),
           "bytes beyond the ring");
    return bytes_.data() + load.at + first;
  }

 private:
  void copy_keys(const Load& load);

  Walk::Memory& memory_;
  const std::vector<Load>& loads_;
  size_t next_ = 0;
  int released_ = 0;
  std::vector<int> in_flight_;
  std::vector<char> landed_;
  std::vector<char> bytes_;
};

}  // namespace weft::decode::fused
