// An item of attention that a worker of a walk is at, and what the step appends to the cache.
#pragma once

#include <vector>

#include "decode/fused/walk_ring.h"
#include "decode/fused/walk_rows.h"

namespace weft::decode::fused {

class WalkAttention {
 public:
  WalkAttention(Walk::Memory& memory, const WalkRows& rows) : memory_(memory), rows_(rows) {}
  void begin_phase(int phase) { phase_ = phase, item_ = -1; }

  void start(const WorkerStep& step);
  void attend(const WorkerStep& step, const WalkRing& ring);
  void attend_own(const WorkerStep& step);
  void write_states(const WorkerStep& step);
  void append(const WorkerStep& step) const;

 private:
  const AttentionItems& items() const;
  const AttentionItem& item() const { return items().items[static_cast<size_t>(item_)]; }
  void attend_token(int token, const float* key, const float* value);

  Walk::Memory& memory_;
  const WalkRows& rows_;
  int phase_ = -1, item_ = -1;
  std::vector<float> query_;  // [rows, query heads, dim] of the item
  std::vector<float> state_;  // [rows, query heads, dim + 2]: weighted sum of values, largest logit, sum of weights
};

}  // namespace weft::decode::fused
