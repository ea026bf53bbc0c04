// A step's attention in double, from the sums of the product before it, and how far a card's may be from it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace weft::testing {

// The cache's and the products' type.
enum class Half { bf16, fp16 };
uint16_t narrowed(Half type, double x);
double widened(Half type, uint16_t bits);

// A model's attention, and a step of requests of (rows, tokens) each.
struct AttentionShape {
  int head_dim = 64, num_qo_heads = 4, num_kv_heads = 1;
  std::vector<std::pair<int, int>> requests = {{1, 1}};
  Half type = Half::bf16;
  int pairs = 0;
  bool halves = true, q_norm = false, k_norm = false, bias = false;
  int window = 0;
  float soft_cap = 0;
  int panels = 1, most_pieces = 2;
  int cell_rows = 8;     // of a slot, whatever the step has
  float query_size = 1;  // of the sums of queries
  uint64_t seed = 1;

  int group() const { return num_qo_heads / num_kv_heads; }
  int columns() const { return (num_qo_heads + 2 * num_kv_heads) * head_dim; }
  int num_rows() const;
};

// Random numbers for one.
struct AttentionData {
  explicit AttentionData(const AttentionShape& shape);

  AttentionShape shape;
  std::vector<int32_t> first_slot;                    // [panels * bands + 1]
  std::vector<float> sums;                            // [slots, cell_rows, 16]; NaN in rows that the step has not
  std::vector<float> bias, q_norm, k_norm, cos, sin;  // bias and norms as if there were some
  float eps = 1e-5f, scale = 0.125f;
  // Tokens before the step's own, [requests][token, kv head, dim].
  std::vector<std::vector<uint16_t>> keys, values;
};

// A number that a card computes in floats, and how far it may be from that.
struct Near {
  double x = 0, error = 0;
};

// The head of a row from the sums, before it is rounded: head counts queries, then keys, then values.
std::vector<Near> head_of(const AttentionData& data, int row, int head);
// [rows, query heads, dim].
std::vector<Near> attended_by(const AttentionData& data);

}  // namespace weft::testing
