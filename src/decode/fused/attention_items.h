// What attention computes in a step of the fused forward pass: items from a plan, dealt to workers, each of which
// leaves a state for every row and query head that it has. States are numbered item by item; whoever reads a row
// merges its states in that order.
//
// An item has one KV head and no more than kItemRows rows x query heads, so one warp runs it, and no more tokens than
// Machine::kv_chunk, so its keys and values are one load. What it appends it has as its own: the keys and values of its
// rows whose tokens are among the item's.
//
// Chunks of keys have borders that follow from the request's start alone (PlanMode::fixed_split), so the states of a
// row, and with them its bits, are the same whatever rows stand beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decode/fused/partition.h"
#include "decode/step.h"
#include "weft/plan.h"

namespace weft::decode::fused {

// A request of the step: rows [first_row, first_row + num_rows) are its last tokens.
struct StepRequest {
  int first_row = 0, num_rows = 0, kv_len = 0;
  int cached() const { return kv_len - num_rows; }  // tokens of steps before
};

struct AttentionItem {
  int request = 0;
  int row_begin = 0, row_end = 0;  // of the step, of one request
  int kv_head = 0;
  int kv_begin = 0, kv_end = 0;  // tokens of the request
  int first_state = 0;           // cell of Shared::states: [rows, query heads of the KV head]

  int num_rows() const { return row_end - row_begin; }
  int num_states(int group) const { return num_rows() * group; }
};

// Of the layers that see as many tokens.
struct AttentionItems {
  std::vector<StepRequest> requests = {};
  std::vector<AttentionItem> items = {};    // by workers
  std::vector<int32_t> worker_indptr = {};  // [workers + 1]
  int num_states = 0;

  // Rows of the step that the item appends, for its KV head; their tokens are the item's.
  std::pair<int, int> appended_rows(const AttentionItem& item) const;

  // States of a row and a query head, in the order of their keys.
  std::vector<int> states_of(int row, int head, int group) const;
};

// window: tokens that a row sees, its own included; 0: all. What a step says of pages that its requests share is not
// asked: each reads its own pages, and a row has the bits that it has alone. Throws Error(unsupported) for a step of
// more than kMostRows rows, and what plans throw.
AttentionItems attention_items(const Partition& partition, const Step& step, int window);

// Brings `plan` and `items` of the step before, or empty ones, up to this step: the items are those that a new plan
// gives. Returns whether it planned anew, which it does where the plan does not cover the step (Plan::covers).
bool update_items(const Partition& partition, const Step& step, int window, std::optional<Plan>& plan,
                  AttentionItems& items);

}  // namespace weft::decode::fused
