// Which keys each row attends, from the arguments of plan, for the fp64 reference: written apart from the planner.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "weft/attention.h"

namespace weft::reference {

// Where a token lies: in a slot (inner) of a page or request (outer), or in a row (inner) of the token axis.
struct Token {
  int64_t outer, inner;
  int position;
};

// Rows of q of one request that attend the same tokens.
struct Keys {
  int request = 0;
  int64_t row_begin = 0, row_end = 0;
  int first_idx = 0;  // of row_begin within its request
  int kv_head_begin = 0, kv_head_end = 0;
  int qo_len = 0, kv_len = 0;                          // of the request
  std::vector<int> q_pos = {};                         // [rows]
  std::vector<Token> tokens = {};                      // in the order of kv_idx
  std::function<bool(int row, int kv_idx)> sees = {};  // empty: every one
};

// Of all rows, in their order.
std::vector<Keys> keys(const AttentionSpec& spec, const PlanInput& input);

}  // namespace weft::reference
