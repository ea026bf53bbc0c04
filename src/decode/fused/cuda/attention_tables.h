// What a card is told of a step's attention: items as its warps run them, whose states a row has, and the pages of its
// requests. Of the layers that see as many tokens.
//
//   const AttentionTables tables = attention_tables(items, step, {.num_kv_heads = 8, .group = 4, .window = 0});
#pragma once

#include <cstdint>
#include <vector>

#include "decode/fused/attention_items.h"
#include "decode/fused/cuda/kernels/attention_args.h"
#include "decode/step.h"

namespace weft::decode::fused {

struct AttentionTables {
  std::vector<CardItem> items = {};         // by workers
  std::vector<int32_t> worker_indptr = {};  // [workers + 1]
  // Rounds of workers, and one behind the last; their heads.
  std::vector<CardRound> rounds = {};
  std::vector<int32_t> round_indptr = {};  // [workers + 1]
  std::vector<CardHead> heads = {};
  // States of a row and KV head, of its first query head: those of row * num_kv_heads + head.
  std::vector<int32_t> state_indptr = {}, states = {};
  std::vector<int32_t> pages = {};    // of all requests
  std::vector<int32_t> by_keys = {};  // items in the order of their keys: what the next step begins with
  int num_states = 0, page_size = 0;
};

struct AttentionForm {
  int num_kv_heads = 1, group = 1;  // group: query heads of a KV head
  int window = 0;                   // tokens that a row sees, its own included; 0: all
  int most_heads = 32;              // of a round
};

// A state of which the row sees no key is in no list, so a row's list follows from its own keys. An item of more
// than kItemRows rows and heads, or with more heads than a round has, is a broken promise (InternalError).
AttentionTables attention_tables(const AttentionItems& items, const Step& step, const AttentionForm& form);
// Overwrites the tables of the step before: faster where its items are in the same order.
void update_tables(const AttentionItems& items, const Step& step, const AttentionForm& form, AttentionTables& tables);

}  // namespace weft::decode::fused
