#include "decode/fused/phases.h"

#include <fmt/format.h>

#include "base/check.h"
#include "base/enum_names.h"

namespace weft::decode::fused {
namespace {

bool is_main(OperationKind kind) { return kind == OperationKind::project || kind == OperationKind::attend; }

// Throws for a prologue whose operations cannot be done by each worker on what it reads.
void check_prologue(const Phase& phase, const Program& program, const Phase* before) {
  for (const Operation& operation : prologue_of(phase, program)) {
    const bool is_first = before == nullptr;
    const bool fits = operation.kind == OperationKind::embed ? is_first : operation.kind != OperationKind::soft_cap;
    check(fits, ErrorCode::unsupported,
          "phases of {}: required {} before its main operation; supported are operations on rows that follow an "
          "embedding, a product or attention; missing: this one",
          name_of(phase), to_string(operation.kind));
  }
}

void check_epilogue(const Phase& phase, const Program& program) {
  for (const Operation& operation : epilogue_of(phase, program))
    check(operation.kind == OperationKind::soft_cap || operation.kind == OperationKind::add_bias,
          ErrorCode::unsupported,
          "phases of {}: required {} behind its product; supported are soft_cap and add_bias, which need a worker's "
          "own columns alone; missing: this one",
          name_of(phase), to_string(operation.kind));
}

}  // namespace

std::string_view to_string(Shared shared) {
  static constexpr std::string_view kNames[] = {"residual 0", "residual 1", "qkv",    "output",  "gate_up",
                                                "down",       "logits",     "states", "attended"};
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
std::span<const Operation> epilogue_of(const Phase& phase, const Program& program) {
  return std::span(program.operations).subspan(phase.main + 1, phase.end - phase.main - 1);
}
const Operation& main_of(const Phase& phase, const Program& program) { return program.operations[phase.main]; }

bool norms_what_it_adds(const Phase& phase, const Program& program) {
  for (const Operation& operation : prologue_of(phase, program)) {
    if (operation.kind == OperationKind::norm) return phase.makes_residual();
    if (operation.kind == OperationKind::add) break;
  }
  return false;
}

int Phases::last_residual(int phase) const {
  int writer = phase - 1;
  while (writer >= 0 && !all[static_cast<size_t>(writer)].writes_residual) --writer;
  return writer;
}

Phases make_phases(const Program& program) {
  Phases phases{.num_layers = program.num_layers, .layer_period = layer_period(program)};
  const std::vector<Operation>& operations = program.operations;
  size_t begin = 0;
  Shared current = Shared::residual_1;  // the residual as the last phase has left it
  for (size_t i = 0; i < operations.size(); ++i) {
    if (!is_main(operations[i].kind)) continue;
    Phase phase{.layer = operations[i].layer, .begin = begin, .main = i, .end = i + 1};
    if (operations[i].kind == OperationKind::attend) phase.kind = MainKind::attention;
    if (phase.multiplies()) phase.role = phase.layer < 0 ? WeightRole::head : operations[i].weights[0].role;
    phase.writes = phase.attends() ? Shared::states : shared_of(phase.role);
    for (const Operation& operation : prologue_of(phase, program)) {
      if (operation.kind == OperationKind::embed) phase.residual = ResidualFrom::embedding;
      if (operation.kind == OperationKind::add) phase.residual = ResidualFrom::sum;
    }
    phase.residual_from = current;
    phase.residual_to = current == Shared::residual_0 ? Shared::residual_1 : Shared::residual_0;
    if (phase.makes_residual()) current = phase.residual_to;
    phase.writes_residual = phase.makes_residual();
    check_prologue(phase, program, phases.all.empty() ? nullptr : &phases.all.back());
    phases.all.push_back(phase);
    begin = i + 1;
    if (!phase.attends()) continue;
    phase.kind = MainKind::merge;
    phase.begin = i;  // no prologue
    phase.writes = Shared::attended;
    phases.all.push_back(phase);
  }
  check(!phases.all.empty() && phases.all.back().layer < 0, ErrorCode::unsupported,
        "phases: required a program that ends with a product behind its layers; this one has none");
  Phase& last = phases.all.back();
  last.end = operations.size();
  last.writes_residual = false;  // nobody reads it
  check_epilogue(last, program);
  phases.of_layer = (phases.size() - 1) / std::max(program.num_layers, 1);
  check(phases.of_layer * program.num_layers + 1 == phases.size(), ErrorCode::unsupported,
        "phases: required layers of as many phases each; {} layers have {} together", program.num_layers,
        phases.size() - 1);
  return phases;
}

std::string name_of(const Phase& phase) {
  if (phase.layer < 0) return "head";
  return fmt::format("layer {}: {}", phase.layer,
                     phase.attends()  ? "attention"
                     : phase.merges() ? "merge"
                                      : to_string(phase.role));
}

std::string to_string(const Phases& phases, const Program& program) {
  std::string text = fmt::format("{} phases, {} joins: {} a layer, and the head; layers repeat after {}\n",
                                 phases.size(), phases.size() - 1, phases.of_layer, phases.layer_period);
  text += fmt::format("{:<22}  {:<46}  {:<10}  {}\n", "phase", "prologue", "writes", "residual");
  const auto add = [&](const Phase& phase) {
    std::string prologue;
    for (const Operation& operation : prologue_of(phase, program))
      prologue += fmt::format("{}{}", prologue.empty() ? "" : ", ", to_string(operation.kind));
    std::string residual = "-";
    if (phase.makes_residual()) {
      residual = phase.embeds() ? "embedding" : fmt::format("{}", static_cast<int>(phase.residual_from));
      residual += phase.writes_residual ? fmt::format(" -> {}", static_cast<int>(phase.residual_to)) : " -> stays";
    }
    text += fmt::format("{:<22}  {:<46}  {:<10}  {}\n", name_of(phase), prologue.empty() ? "-" : prologue,
                        to_string(phase.writes), residual);
  };
  // The first layer begins with the embedding, the others with what the layer before left.
  const int shown = std::min(phases.num_layers, phases.layer_period + 1) * phases.of_layer;
  for (int i = 0; i < shown; ++i) add(phases.all[static_cast<size_t>(i)]);
  add(phases.all.back());
  return text;
}

}  // namespace weft::decode::fused
