#include "sparse/operator.h"

#include <chrono>
#include <mutex>

#include "base/check.h"
#include "jit/host/module.h"
#include "loop/codegen/c_family.h"
#include "sparse/interpret.h"

namespace weft::sparse {
namespace {

std::vector<Operator::Impl::Entry> entries_of(const Module& module, const loop::Function& function) {
  std::vector<Operator::Impl::Entry> entries;
  const std::vector<loop::Phase> phases = loop::split_phases(function);
  for (size_t i = 0; i < phases.size(); ++i) {
    const std::string name = loop::phase_name(function, i);
    void* symbol = module.symbol(name.c_str());
    ensure(symbol != nullptr, "the module of {} has no '{}'", function.name, name);
    entries.push_back({reinterpret_cast<Operator::Impl::Phase>(symbol), phases[i].parallel() != nullptr});
  }
  return entries;
}

void run_phases(const std::vector<Operator::Impl::Entry>& phases, const loop::Function& function, const Bound& bound,
                WorkerTeam& team) {
  std::vector<void*> buffers;
  std::vector<long long> scalars;
  for (const loop::Buffer& buffer : function.buffers) buffers.push_back(bound.pointers.at(buffer.name));
  for (const std::string& scalar : function.scalars) scalars.push_back(bound.numbers.scalars.at(scalar));
  for (const Operator::Impl::Entry& phase : phases) {
    if (phase.parallel)
      team.run([&](int worker) { phase.call(buffers.data(), scalars.data(), worker, team.num_workers()); });
    else
      phase.call(buffers.data(), scalars.data(), 0, 1);
  }
}

bool same_structures(const Bound& last, const Bound& now) { return last.held == now.held; }

Operator compile_parsed(const ParsedProgram& parsed, Device device, const CompileOptions& options) {
  check(device == Device::cpu(), ErrorCode::unsupported,
        "compile: device {}: required: a backend that loads kernels there; supported: cpu; `text(\"cuda\")` shows the "
        "kernels",
        weft::to_string(device));
  auto impl = std::make_shared<Operator::Impl>(run_passes(parsed, options));
  if (!options.stop_after.empty()) return Operator(impl);
  const auto start = std::chrono::steady_clock::now();
  const Isa isa = current_isa();
  const Compilation& made = impl->made;
  impl->module = jit::host_module({.name = fmt::format("sparse {} {}", made.stage1.name, to_string(isa)),
                                   .text = made.code,
                                   .target = jit::host_target(isa)})
                     .module;
  if (!made.preprocess3.function.body.empty()) impl->preprocess = entries_of(*impl->module, made.preprocess3.function);
  impl->compute = entries_of(*impl->module, made.compute3.function);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  impl->made.times.push_back({"compile and load", took.count()});
  return Operator(impl);
}

}  // namespace

Program::Program(std::string_view text) : text_(text) { parse_program(text_); }

Operator compile(const Program& program, Device device, const CompileOptions& options) {
  return compile_parsed(parse_program(program.text()), device, options);
}

Operator compile(const Program& program, std::string_view schedule, Device device, const CompileOptions& options) {
  ParsedProgram parsed = parse_program(program.text());
  parsed.schedule = parse_schedule(schedule);
  return compile_parsed(parsed, device, options);
}

void Operator::run(const RunArguments& arguments, Stream stream) const {
  Impl& impl = *impl_;
  const Compilation& made = impl.made;
  check(impl.module != nullptr, ErrorCode::invalid_argument,
        "run: the operator was compiled up to '{}'; compile it without stop_after", made.done);
  const Names filled_here = filled_by_preprocess(made.stage1);
  const bool takes_turns = !impl.preprocess.empty();
  std::unique_lock<std::mutex> turn(impl.mutex, std::defer_lock);
  if (takes_turns) turn.lock();

  // Structures of the last run keep their formats.
  auto bound = std::make_unique<Bound>();
  for (const auto& [name, structure] : arguments.structures)
    if (structure) bound->held.push_back(structure.data());
  const bool is_same = takes_turns && impl.last != nullptr && same_structures(*impl.last, *bound);
  if (is_same) {
    bound = std::move(impl.last);
    bound->numbers = bound->structure_numbers;
  } else {
    bound->held.clear();
    bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, *bound);
    impl.has_values = impl.has_values && !takes_turns;
  }
  Bound& b = *bound;
  const bool keeps_values = is_same && impl.has_values && arguments.values_unchanged;
  if (takes_turns) impl.last = std::move(bound);
  bind_parameters(made.stage1, arguments.scalars, arguments.buffers, b);
  bind_buffers(made.stage1, arguments.buffers, filled_here, b);
  if (takes_turns && !keeps_values) {
    run_phases(impl.preprocess, made.preprocess3.function, b, stream.team());
    impl.has_values = true;
  }
  run_phases(impl.compute, made.compute3.function, b, stream.team());
}

std::string Operator::text(std::string_view stage) const {
  const Compilation& made = impl_->made;
  if (stage == "stage1") return to_text(made.stage1);
  if (stage == "stage2")
    return (made.preprocess2.body.empty() ? "" : to_text(made.preprocess2) + "\n") + to_text(made.compute2);
  if (stage == "stage3")
    return (made.preprocess3.function.body.empty() ? "" : to_text(made.preprocess3) + "\n") + to_text(made.compute3);
  if (stage == "code") return made.code;
  if (stage == "cuda") return cuda_text(made);
  fail(ErrorCode::invalid_argument, "text: '{}' is no stage; allowed are stage1, stage2, stage3, code and cuda", stage);
}

const std::vector<PassTime>& Operator::passes() const { return impl_->made.times; }

}  // namespace weft::sparse
