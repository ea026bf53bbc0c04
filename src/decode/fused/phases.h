// A step as phases between joins: what a kernel of the whole model does, made from the layer program.
//
//   const Phases phases = make_phases(program);
//   fmt::print("{}", to_string(phases, program));   // a table, in which layers that are alike stand once
//
// A phase has one main operation, a product, attention or the merge of its states, which is shared among workers. The
// operations before it are its prologue: they work row by row on what all workers read, so every worker computes them
// itself, and no join is needed between them. Operations behind the last product are its epilogue: they need only the
// worker's own columns. A join stands between two phases: whoever reads waits until all workers have written.
// A layer of Llama has six.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/program.h"

namespace weft::decode::fused {

// What phases hand on, in memory that all workers see. Everything else stays within a worker.
enum class Shared : uint8_t {
  residual_0,  // written anew by turns: while one is written, others still read the other
  residual_1,
  qkv,  // sums of products by these matrices, in pieces (partition.h)
  output,
  gate_up,
  down,
  logits,
  states,    // of attention's items
  attended,  // what they are merged to
};
inline constexpr size_t kNumShared = static_cast<size_t>(Shared::attended) + 1;
std::string_view to_string(Shared shared);
Shared shared_of(WeightRole role);  // where sums of products by the matrix go

enum class MainKind : uint8_t {
  product,
  attention,
  merge,  // of the states that attention has left; the program's operation is attention's
};

// What a prologue makes the residual of.
enum class ResidualFrom : uint8_t {
  nothing,    // it makes none
  embedding,  // rows of the embedding, which every worker gathers itself
  sum,        // the last one and what the phase before has left
};

struct Phase {
  int layer = -1;                       // of the main operation; -1: behind the layers
  size_t begin = 0, main = 0, end = 0;  // operations of the program: [begin, main) is the prologue
  WeightRole role = WeightRole::head;   // of a product: its matrix
  MainKind kind = MainKind::product;
  ResidualFrom residual = ResidualFrom::nothing;
  bool writes_residual = false;  // what the prologue makes of it: each worker a part, or all, each for itself
  // The residual's two buffers: the last one is read from here, the one that the prologue makes is written there.
  Shared residual_from = Shared::residual_1, residual_to = Shared::residual_0;
  Shared writes = Shared::logits;  // what the main operation leaves; the next phase reads it

  bool multiplies() const { return kind == MainKind::product; }
  bool attends() const { return kind == MainKind::attention; }
  bool merges() const { return kind == MainKind::merge; }
  bool embeds() const { return residual == ResidualFrom::embedding; }
  bool makes_residual() const { return residual != ResidualFrom::nothing; }
};

struct Phases {
  std::vector<Phase> all = {};
  int of_layer = 0;  // phases of each layer
  int num_layers = 0;
  int layer_period = 1;  // decode::layer_period of the program

  int size() const { return static_cast<int>(all.size()); }
  // What the phase's prologue reads beside the residual: what the phase before has left. Of the first: nothing.
  const Phase* before(int phase) const { return phase > 0 ? &all[static_cast<size_t>(phase) - 1] : nullptr; }
  // The phase before it that has written the residual last; -1: none.
  int last_residual(int phase) const;
};

// Throws Error(unsupported) for a program that has operations in an order that phases do not have.
Phases make_phases(const Program& program);

std::span<const Operation> prologue_of(const Phase& phase, const Program& program);
std::span<const Operation> epilogue_of(const Phase& phase, const Program& program);
const Operation& main_of(const Phase& phase, const Program& program);
// Whether what the phase before has left is normed before it is added to the residual: then every column of the
// residual needs whole rows of it.
bool norms_what_it_adds(const Phase& phase, const Program& program);

// "layer 3: qkv", "head": for messages.
std::string name_of(const Phase& phase);
std::string to_string(const Phases& phases, const Program& program);

}  // namespace weft::decode::fused
