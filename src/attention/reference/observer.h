// Rows as the reference attends them, for who wants to know more of them than o and lse: the error model does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "attention/reference/hooks.h"
#include "attention/reference/keys.h"
#include "attention/reference/tensors.h"

namespace weft::reference {

// The tokens of a KV head after their hooks, in the order of Keys::tokens.
struct KvHead {
  std::vector<Vector> keys, values;
};

// One row of q and one head, before the hooks of output and lse.
struct State {
  std::vector<bool> seen;  // of each key; what is not seen has no numbers below
  Vector s, logits, p;  // q . k times sm_scale; what the logits' transform makes of it; what its value is multiplied by
  Vector o;
  double lse = 0;  // 0 without softmax
};

// Where a state belongs.
struct Place {
  int64_t q_row = 0;
  int head = 0;
  Score score = {};         // but for the key
  abi::VectorRow row = {};  // but for lse
  Score score_of(const Keys& list, size_t j) const {
    Score c = score;
    c.kv_idx = static_cast<int>(j);
    c.kv_pos = list.tokens[j].position;
    return c;
  }
  // As hooks of output and lse see it.
  abi::VectorRow finished_row(const State& state) const {
    abi::VectorRow finished = row;
    finished.lse = state.lse;
    return finished;
  }
};

// All that a row's o and lse came from.
struct AttendedRow {
  const Place& place;
  const Vector& q;  // after its hook
  const State& state;
  const Keys& list;
  const KvHead& kv;
};

class Observer {
 public:
  virtual ~Observer() = default;
  // Before the rows that attend this KV head.
  virtual void keys(const Keys& list, int kv_head, const KvHead& kv) = 0;
  // Its list and kv are those of the last call of keys.
  virtual void row(const AttendedRow& row) = 0;
};

}  // namespace weft::reference
