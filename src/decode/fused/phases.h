// A step as phases between joins: what a kernel of the whole model does, made from the layer program.
//
//   const Phases phases = make_phases(program);
//   fmt::print("{}", to_string(phases, program));   // a table, in which layers that are alike stand once
//
// A phase has one main kind of work, which is shared among workers. Products leave sums in pieces. A **reduction**
// makes of them what the next product multiplies: the owner of some columns adds their pieces, does the operations that
// go column by column, and leaves the numbers for all. The residual stays with its owners, nobody else needs it. A norm
// joins columns: owners leave the squares of theirs besides, and who reads has the factor of all. Operations before
// attention are its prologue: they work head by head on what an item reads, so the item does them itself. So does every
// worker with the embedding, before the first product. Operations behind the last product are its epilogue: they need
// only the worker's own columns. A join stands between two phases: whoever reads waits until what he reads is there. A
// layer of Llama has nine.
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
  qkv,  // sums of products by these matrices, in pieces (partition.h)
  output,
  gate_up,
  down,
  logits,
  states,    // of attention's items
  attended,  // what they are merged to
  squares,   // of what a product has left, for a norm of that before it is added
  normed,    // the residual times the weight of its norm, and its squares
  gated,     // what `down` multiplies
};
inline constexpr size_t kNumShared = static_cast<size_t>(Shared::gated) + 1;
std::string_view to_string(Shared shared);
Shared shared_of(WeightRole role);  // where sums of products by the matrix go

enum class MainKind : uint8_t {
  product,
  attention,
  merge,   // of the states that attention has left; the program's operation is attention's
  reduce,  // of the sums that the product before has left
};

struct Phase {
  int layer = -1;                       // of the main operation; -1: behind the layers
  size_t begin = 0, main = 0, end = 0;  // operations of the program: [begin, main) is the prologue; a reduction has all
  WeightRole role = WeightRole::head;   // of a product: its matrix; of a reduction: that of the sums
  MainKind kind = MainKind::product;
  Shared writes = Shared::logits;  // what the phase leaves; the next one reads it
  bool is_normed = false;          // a product: its sums are multiplied by the factor of the norm before
  bool norms_sums = false;  // a reduction: of sums that the phase before has kept, by the squares that it has left
  friend bool operator==(const Phase&, const Phase&) = default;

  bool multiplies() const { return kind == MainKind::product; }
  bool attends() const { return kind == MainKind::attention; }
  bool merges() const { return kind == MainKind::merge; }
  bool reduces() const { return kind == MainKind::reduce; }
  // A product of the embedding, which every worker gathers; owners keep their part of the residual that it is.
  bool embeds() const { return multiplies() && begin < main; }
  bool adds() const { return reduces() && writes == Shared::normed; }  // to the residual that owners keep
};

struct Phases {
  std::vector<Phase> all = {};
  int of_layer = 0;  // phases of each layer
  int num_layers = 0;
  int layer_period = 1;  // decode::layer_period of the program
  friend bool operator==(const Phases&, const Phases&) = default;

  int size() const { return static_cast<int>(all.size()); }
  std::span<const Phase> first_layer() const { return std::span(all).first(static_cast<size_t>(of_layer)); }
  // What the phase reads is what the phase before has left. Of the first: nothing.
  const Phase* before(int phase) const { return phase > 0 ? &all[static_cast<size_t>(phase) - 1] : nullptr; }
};

// Throws Error(unsupported) for a program that has operations in an order that phases do not have.
Phases make_phases(const Program& program);

std::span<const Operation> prologue_of(const Phase& phase, const Program& program);
std::span<const Operation> operations_of(const Phase& phase, const Program& program);  // of a reduction
std::span<const Operation> epilogue_of(const Phase& phase, const Program& program);
const Operation& main_of(const Phase& phase, const Program& program);

// "layer 3: qkv", "head": for messages.
std::string name_of(const Phase& phase);
std::string to_string(const Phases& phases, const Program& program);

}  // namespace weft::decode::fused
