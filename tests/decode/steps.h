// What tests share that make steps by hand, over sequences: a cache that is small, rows, and pools full of NaN.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "decode/step.h"

namespace weft::testing {

// Of one layer and one KV head: for tests that look at pages alone.
inline ModelConfig config_of_cache() {
  ModelConfig config;
  config.num_layers = config.num_kv_heads = 1;
  config.head_dim = 8;
  config.context_length = 1 << 20;
  return config;
}

// The last of a sequence's tokens, which it holds already, as rows behind those of the step. All are wanted.
inline void add_rows(decode::Step& step, const decode::Sequences& sequences, decode::Sequences::Id id,
                     std::span<const int32_t> tokens) {
  const int64_t length = sequences.length(id), first = length - static_cast<int64_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    step.wanted.push_back(step.rows());
    step.positions.push_back(static_cast<int32_t>(first + static_cast<int64_t>(i)));
    step.tokens.push_back(tokens[i]);
  }
  step.qo_indptr.push_back(static_cast<int32_t>(step.rows()));
  step.pages.add(sequences, id, length);
}

// Keys and values of all pages, those that nobody has written too: NaN.
inline void poison(const KvCache& layer) {
  for (const TensorView* side : {&layer.k, &layer.v}) {
    ensure(side->dtype() == DType::fp32, "poison of {}", to_string(side->dtype()));
    std::fill_n(static_cast<float*>(side->data()), side->size(), std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace weft::testing
