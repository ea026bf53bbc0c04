// What a step of a model computes: its operations in order, as data that follows from the config alone. A walk on a
// device, a partition and a generated kernel can all be made of this one list.
//
//   const Program program = make_program(file.config());
//   for (const Operation& operation : program.operations) ...  // embed, norm, project, rotate, append, attend, ...
//   fmt::print("{}", to_string(program));                      // a table, in which layers that are alike stand once
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/model.h"

namespace weft::decode {

// What an operation computes of each row of a step. x is what it reads, y what it writes.
enum class OperationKind : uint8_t {
  embed,       // y = scale * the row of the matrix that the token's id names
  norm,        // y = x / sqrt(mean(x^2) + eps) * weight
  project,     // y = x W^T; W's rows are the columns of what is written, one buffer behind the other
  add_bias,    // y = x + bias, whose elements are the columns of what is written, one buffer behind the other
  norm_heads,  // the norm of each head, each buffer by a weight of its own
  rotate,      // the pairs of each head turn by the angles of the row's position (RoPE)
  append,      // the key and the value go into the token's slot of the layer's cache
  attend,      // y = softmax(scale * query key^T) value over the layer's cache, causal; the only one that joins rows
  add,         // y = the sum of both
  gate,        // y = f(gate) * up
  soft_cap,    // y = soft_cap * tanh(x / soft_cap)
};
std::string_view to_string(OperationKind kind);

// What the operations hand on. Each holds a row of so many columns (Program::cols) for every row of the step, but for
// the cache, which is the layer's and holds a row for every token of the sequences.
enum class Buffer : uint8_t {
  tokens,     // ids
  residual,   // what layers add to
  normed,     // the residual, normed for the next product
  query,      // [num_qo_heads, head_dim]
  key,        // [num_kv_heads, head_dim]
  value,      // [num_kv_heads, head_dim]
  attended,   // [num_qo_heads, head_dim]
  projected,  // what is added to the residual
  gate,       // the feed-forward part: of both halves of its first product
  up,
  gated,
  logits,
  cache,  // keys, then values: [2, num_kv_heads, head_dim] of a token
};
inline constexpr size_t kNumBuffers = static_cast<size_t>(Buffer::cache) + 1;
std::string_view to_string(Buffer buffer);

enum class WeightRole : uint8_t {
  // Matrices. The embedding is of no layer, as is the head, which a model with tied embeddings has not: there the last
  // product is with the embedding. qkv is the rows of q, k and v; gate_up those of gate and up.
  embedding,
  qkv,
  output,
  gate_up,
  down,
  head,
  // Vectors. output_norm is of no layer.
  attn_norm,
  qkv_bias,
  q_norm,
  k_norm,
  output_bias,
  attn_post_norm,
  ffn_norm,
  ffn_post_norm,
  output_norm,
};
std::string_view to_string(WeightRole role);
constexpr bool is_matrix(WeightRole role) { return role <= WeightRole::head; }

struct Weight {
  WeightRole role = WeightRole::embedding;
  int64_t rows = 1, cols = 0;  // of a vector: one row
  friend bool operator==(const Weight&, const Weight&) = default;
};

struct Operation {
  OperationKind kind = OperationKind::embed;
  int layer = -1;  // -1: of none
  std::vector<Buffer> reads = {}, writes = {};
  std::vector<Weight> weights = {};
  // What else it needs, by its kind.
  float scale = 1.f;       // embed and attend
  float soft_cap = 0.f;    // attend, of its logits: 0 is none; soft_cap
  int window = 0;          // attend: how many tokens a row sees, its own included; 0: all before it
  int rope = 0;            // rotate: which of Program::ropes
  Gate gate = Gate::silu;  // gate
  friend bool operator==(const Operation&, const Operation&) = default;
};

struct Program {
  int num_layers = 0, num_qo_heads = 0, num_kv_heads = 0, head_dim = 0;
  float norm_eps = 0.f;                        // of every norm
  std::array<int64_t, kNumBuffers> cols = {};  // of a row of each buffer
  std::vector<RopeParams> ropes = {};          // of layers that see everything; where some slide, theirs besides
  std::vector<Operation> operations = {};      // those of a layer stand together
  // Index of the last attend. A step that wants no logits ends before it; behind it only rows that give logits go on.
  // That of the end where layers do not attend.
  size_t last_attend = 0;

  int64_t cols_of(Buffer buffer) const { return cols[static_cast<size_t>(buffer)]; }
};

// What layers consist of: of a model both, of stacks that are measured alone one of them.
enum class LayerParts : uint8_t { both, attention, feed_forward };

// For every config that a file of a known architecture gives: biases, norms of heads, norms of what is added, caps and
// windows are there where the model has them.
Program make_program(const ModelConfig& config, LayerParts parts = LayerParts::both);

// Of the layer, 0 to num_layers - 1; -1: those before the first layer; num_layers: those behind the last.
std::span<const Operation> operations_of(const Program& program, int layer);

// The smallest number of layers after which they repeat: layer l differs from layer l - period in its number alone.
// 1: all layers are alike. num_layers: nothing repeats.
int layer_period(const Program& program);

// A line for each operation, with what it writes, reads and multiplies by.
std::string to_string(const Operation& operation, const Program& program);
// The table of all of them, each layer of a period once.
std::string to_string(const Program& program);

}  // namespace weft::decode
