// One worker of a walk: what its steps do.
#pragma once

#include <vector>

#include "decode/fused/walk_attention.h"
#include "decode/fused/walk_reduce.h"
#include "decode/fused/walk_ring.h"
#include "decode/fused/walk_rows.h"

namespace weft::decode::fused {

class WalkWorker {
 public:
  WalkWorker(Walk::Memory& memory, const WorkerSchedule& own)
      : memory_(memory),
        own_(own),
        ring_(memory, own.loads),
        rows_(memory),
        reduce_(memory, rows_),
        attention_(memory, rows_) {}
  void reset();

  WalkRing& ring() { return ring_; }
  bool can_step() const;
  void step();
  bool can_move() const { return ring_.can_issue() || ring_.num_in_flight() > 0 || can_step(); }
  bool is_done() const { return next_ == own_.steps.size() && ring_.is_done(); }

 private:
  void begin_phase(int phase);
  void multiply(const WorkerStep& step);
  void write_sums(const WorkerStep& step);
  std::atomic<int>& counter(int id) const;

  Walk::Memory& memory_;
  const WorkerSchedule& own_;
  WalkRing ring_;
  WalkRows rows_;
  WalkReduce reduce_;
  WalkAttention attention_;
  size_t next_ = 0;
  int phase_ = -1;
  std::vector<float> sums_;  // [rows, 16]
};

}  // namespace weft::decode::fused
