#include "sparse/operator.h"

#include <chrono>
#include <mutex>

#include "base/check.h"

namespace weft::sparse {
namespace {

bool same_structures(const Bound& last, const Bound& now) { return last.held == now.held; }

Operator compile_parsed(const ParsedProgram& parsed, Device device, const CompileOptions& options) {
  check(device == Device::cpu(), ErrorCode::unsupported,
        "compile: device {}: required: a backend that loads kernels there; supported: cpu; `text(\"cuda\")` shows the "
        "kernels",
        weft::to_string(device));
  auto impl = std::make_shared<Operator::Impl>(run_passes(parsed, options));
  if (!options.stop_after.empty()) return Operator(impl);
  const auto start = std::chrono::steady_clock::now();
  impl->loaded = load_on_cpu(impl->made);
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
  check(impl.loaded != nullptr, ErrorCode::invalid_argument,
        "run: the operator was compiled up to '{}'; compile it without stop_after", made.done);
  const bool has_preprocess = !made.preprocess3.function.body.empty();
  Names own;  // memory that is made here; a schedule may have kept a temporary buffer in registers
  for (const std::string& name : made_here(made.stage1))
    if (made.compute3.function.find(name) != nullptr) own.insert(name);
  const bool takes_turns = !own.empty();
  std::unique_lock<std::mutex> turn(impl.mutex, std::defer_lock);
  if (takes_turns) turn.lock();

  // Structures of the last run keep their formats.
  auto bound = std::make_unique<Bound>();
  for (const auto& [name, structure] : arguments.structures) bound->held[name] = structure.data();
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
  bind_buffers(made.stage1, arguments.buffers, own, b);
  if (has_preprocess && !keeps_values) {
    impl.loaded->preprocess(b, stream);
    impl.has_values = true;
  }
  impl.loaded->compute(b, stream);
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
