#include "decode/fused/phases.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/enum_names.h"

namespace weft::decode::fused {
namespace {

bool is_main(OperationKind kind) { return kind == OperationKind::project || kind == OperationKind::attend; }

void require(bool is_supported, const Phase& phase, const Operation& operation, std::string_view where,
             std::string_view supported) {
  check(is_supported, ErrorCode::unsupported, "phases of {}: required {} {}; supported are {}; missing: this one",
        name_of(phase), to_string(operation.kind), where, supported);
}

void check_epilogue(const Phase& phase, const Program& program) {
  for (const Operation& operation : epilogue_of(phase, program))
    require(operation.kind == OperationKind::soft_cap, phase, operation, "behind its product",
            "soft_cap, which needs a worker's own columns alone");
}

// Who makes a head does so in one order, each operation once.
void check_heads(const Phase& phase, const Program& program) {
  using enum OperationKind;
  OperationKind last = project;
  bool turns = false;
  for (const Operation& operation : prologue_of(phase, program)) {
    const OperationKind kind = operation.kind;
    require((kind == add_bias || kind == norm_heads || kind == rotate || kind == append) && kind > last, phase,
            operation, "before attention", "add_bias, norm_heads, rotate and append on heads, in this order");
    if (kind == norm_heads || kind == rotate)
      require(operation.writes == std::vector{Buffer::query, Buffer::key}, phase, operation, "of other heads",
              "those of queries and keys");
    turns |= kind == rotate;
    last = kind;
  }
  require(turns && last == append, phase, main_of(phase, program), "of heads without rotate or append",
          "heads that turn, and that the cache gets");
}

// Of operations [begin, end) between the product and the next one.
class Reductions {
 public:
  Reductions(Phases& phases, const Program& program) : phases_(phases), program_(program) {}

  void add(size_t begin, size_t end) {
    const Phase& product = phases_.all.back();
    phase_ = {.layer = product.layer, .begin = begin, .main = begin, .role = product.role, .kind = MainKind::reduce};
    for (size_t i = begin; i < end; ++i) {
      const bool is_last = i + 1 == end;
      const Operation& operation = program_.operations[i];
      switch (operation.kind) {
        case OperationKind::add_bias:
          if (i > begin) refuse(operation);
          break;
        case OperationKind::add:
          if (adds_) refuse(operation);
          adds_ = true;
          break;
        case OperationKind::gate:
          if (i > begin || !is_last) refuse(operation);
          phase_.writes = Shared::gated;
          break;
        case OperationKind::norm:
          if (is_last && adds_)
            phase_.writes = Shared::normed;
          else
            cut_before(i, operation);
          break;
        default: refuse(operation);
      }
    }
    if (phase_.writes != Shared::normed && phase_.writes != Shared::gated) refuse(program_.operations[end]);
    push(end);
  }

 private:
  // A norm joins the columns of all owners.
  void cut_before(size_t i, const Operation& operation) {
    if (adds_ || phase_.norms_sums || phase_.writes == Shared::gated) refuse(operation);
    phase_.writes = Shared::squares;
    push(i);
    phase_.begin = phase_.main = i;
    phase_.writes = Shared::logits;
    phase_.norms_sums = true;
  }
  void push(size_t end) {
    phase_.end = end;
    phases_.all.push_back(phase_);
  }
  void refuse(const Operation& operation) const {
    require(false, phase_, operation, "behind its product",
            "a bias, a norm of the sums, the residual and its norm, in this order, or a gate alone");
  }

  Phases& phases_;
  const Program& program_;
  Phase phase_;
  bool adds_ = false;
};

}  // namespace

std::string_view to_string(Shared shared) {
  static constexpr std::string_view kNames[] = {"qkv",    "output",   "gate_up", "down",   "logits",
                                                "states", "attended", "squares", "normed", "gated"};
  return enum_name(kNames, shared);
}

Shared shared_of(WeightRole role) {
  switch (role) {
    case WeightRole::qkv: return Shared::qkv;
    case WeightRole::output: return Shared::output;
    case WeightRole::gate_up: return Shared::gate_up;
    case WeightRole::down: return Shared::down;
    default: return Shared::logits;
  }
}

std::span<const Operation> prologue_of(const Phase& phase, const Program& program) {
  return std::span(program.operations).subspan(phase.begin, phase.main - phase.begin);
}
std::span<const Operation> operations_of(const Phase& phase, const Program& program) {
  return std::span(program.operations).subspan(phase.begin, phase.end - phase.begin);
}
std::span<const Operation> epilogue_of(const Phase& phase, const Program& program) {
  return std::span(program.operations).subspan(phase.main + 1, phase.end - phase.main - 1);
}
const Operation& main_of(const Phase& phase, const Program& program) { return program.operations[phase.main]; }

Phases make_phases(const Program& program) {
  Phases phases{.num_layers = program.num_layers, .layer_period = layer_period(program)};
  const std::vector<Operation>& operations = program.operations;
  size_t begin = 0;
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!is_main(operations[i].kind)) continue;
    Phase phase{.layer = operations[i].layer, .begin = begin, .main = i, .end = i + 1};
    if (operations[i].kind == OperationKind::attend) {
      phase.kind = MainKind::attention;
      phase.writes = Shared::states;
      check_heads(phase, program);
      phases.all.push_back(phase);
      phase.kind = MainKind::merge;
      phase.begin = i;  // no prologue
      phase.writes = Shared::attended;
    } else {
      phase.role = phase.layer < 0 ? WeightRole::head : operations[i].weights[0].role;
      phase.writes = shared_of(phase.role);
      if (phases.all.empty()) {
        for (const Operation& operation : prologue_of(phase, program)) {
          phase.is_normed = operation.kind == OperationKind::norm;
          require(operation.kind == OperationKind::embed || operation.kind == OperationKind::norm, phase, operation,
                  "before its product", "embed and norm");
        }
      } else if (const Phase& before = phases.all.back(); before.merges()) {
        for (const Operation& operation : prologue_of(phase, program))
          require(false, phase, operation, "behind attention", "products");
      } else {
        Reductions(phases, program).add(begin, i);
        phase.begin = i;
        phase.is_normed = phases.all.back().writes == Shared::normed;
      }
    }
    phases.all.push_back(phase);
    begin = i + 1;
  }
  check(!phases.all.empty() && phases.all.back().layer < 0, ErrorCode::unsupported,
        "phases: required a program that ends with a product behind its layers; this one has none");
  phases.all.back().end = operations.size();
  check_epilogue(phases.all.back(), program);
  phases.of_layer = (phases.size() - 1) / std::max(program.num_layers, 1);
  check(phases.of_layer * program.num_layers + 1 == phases.size(), ErrorCode::unsupported,
        "phases: required layers of as many phases each; {} layers have {} together", program.num_layers,
        phases.size() - 1);
  return phases;
}

std::string name_of(const Phase& phase) {
  if (phase.layer < 0) return "head";
  const std::string_view role = to_string(phase.role);
  std::string name;
  switch (phase.kind) {
    case MainKind::product: name = role; break;
    case MainKind::attention: name = "attention"; break;
    case MainKind::merge: name = "merge"; break;
    case MainKind::reduce: name = fmt::format("{} of {}", to_string(phase.writes), role); break;
  }
  return fmt::format("layer {}: {}", phase.layer, name);
}

std::string to_string(const Phases& phases, const Program& program) {
  std::string text = fmt::format("{} phases, {} joins: {} a layer, and the head; layers repeat after {}\n",
                                 phases.size(), phases.size() - 1, phases.of_layer, phases.layer_period);
  text += fmt::format("{:<28}  {:<10}  {}\n", "phase", "writes", "operations");
  const auto add = [&](const Phase& phase) {
    std::string names;
    for (const Operation& operation : phase.merges() ? std::span<const Operation>() : operations_of(phase, program))
      names += fmt::format("{}{}", names.empty() ? "" : ", ", to_string(operation.kind));
    text += fmt::format("{:<28}  {:<10}  {}\n", name_of(phase), to_string(phase.writes), names.empty() ? "-" : names);
  };
  // The first layer begins with the embedding, the others with what the layer before left.
  const int shown = std::min(phases.num_layers, phases.layer_period + 1) * phases.of_layer;
  for (int i = 0; i < shown; ++i) add(phases.all[static_cast<size_t>(i)]);
  add(phases.all.back());
  return text;
}

}  // namespace weft::decode::fused
