// Queries, keys and values as vectors of doubles, whatever type, form and layout they are stored in.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/reference/keys.h"
#include "weft/attention.h"

namespace weft::reference {

using Vector = std::vector<double>;

// Of a tensor of rank 3: (i, j); of rank 4: (i, j, k).
Vector vector_at(const TensorView& tensor, int64_t i, int64_t j, int64_t k = 0);

// Of a token and KV head: stored numbers times their scale.
Vector key_vector(const AttentionSpec& spec, const KvCache& kv, const Token& token, int kv_head);
Vector value_vector(const AttentionSpec& spec, const KvCache& kv, const Token& token, int kv_head);
// `scales`: k_scale or v_scale; 1 where the spec has none.
double scale_of(const AttentionSpec& spec, const TensorView& scales, const Token& token, int kv_head);

}  // namespace weft::reference
