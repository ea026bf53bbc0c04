#include "sparse/operator.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "base/check.h"

namespace weft::sparse {
namespace {

bool same_structures(const std::map<std::string, Structure>& a, const std::map<std::string, Structure>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.first == y.first && x.second.data() == y.second.data();
  });
}

bool same_shapes(const std::map<std::string, TensorView>& a, const std::map<std::string, TensorView>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    const TensorView &s = x.second, &t = y.second;
    return x.first == y.first && s.dtype() == t.dtype() && s.device() == t.device() &&
           std::ranges::equal(s.shape(), t.shape()) && std::ranges::equal(s.strides(), t.strides());
  });
}

Operator compile_parsed(const ParsedProgram& parsed, Device device, const CompileOptions& options) {
  const Backend& backend = backend_of(device, "compile");
  auto impl = std::make_shared<Operator::Impl>(run_passes(parsed, options), device);
  if (!options.stop_after.empty()) return Operator(impl);
  for (const std::string& name : made_here(impl->made.stage1))
    if (impl->made.compute3.function.find(name) != nullptr) impl->own.insert(name);
  const auto start = std::chrono::steady_clock::now();
  impl->loaded = backend.load(impl->made, device);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
  impl->made.times.push_back({"compile and load", took.count()});
  return Operator(impl);
}

void bind_rest(const Operator::Impl& impl, const RunArguments& arguments, Bound& bound) {
  bound.numbers = bound.structure_numbers;
  bind_parameters(impl.made.stage1, arguments.scalars, arguments.buffers, bound);
  bind_reals(impl.made.stage1, arguments.reals, bound);
  bind_rows(impl.made.compute2, bound);
  bind_buffers(impl.made.stage1, arguments.buffers, {impl.own, impl.device}, bound);
}

// Beside another run of the operator, which has no formats of its own.
void run_anew(const Operator::Impl& impl, const RunArguments& arguments, Stream stream) {
  Bound bound;
  bind_structures(impl.made.stage1, impl.made.schedule.decompositions(), arguments.structures, bound);
  bind_rest(impl, arguments, bound);
  impl.loaded->place(bound);
  impl.loaded->compute(bound, stream);
}

// How many bindings are kept that no graph runs with: on a card as many as structures of a model's layers tend to be.
// On the CPU, where nothing is captured, one.
size_t num_kept(Device device) { return device == Device::cpu() ? 1 : 8; }

bool is_in_graph(const Operator::Impl& impl, const std::shared_ptr<Bound>& bound) {
  return std::find(impl.captured.begin(), impl.captured.end(), bound) != impl.captured.end();
}

bool is_repeated(const Binding& binding, const RunArguments& arguments) {
  const RunArguments& before = binding.arguments;
  return same_structures(before.structures, arguments.structures) && before.reals == arguments.reals &&
         before.scalars == arguments.scalars && same_shapes(before.buffers, arguments.buffers);
}

// Takes out of the list what the run is bound to already; else what its structures are, and nobody else needs; else
// nothing.
Binding taken(Operator::Impl& impl, const RunArguments& arguments) {
  const auto find = [&](const auto& is_wanted) {
    return std::find_if(impl.bindings.rbegin(), impl.bindings.rend(), is_wanted);
  };
  auto found = find([&](const Binding& b) { return is_repeated(b, arguments); });
  if (found == impl.bindings.rend())
    found = find([&](const Binding& b) {
      return same_structures(b.arguments.structures, arguments.structures) && !is_in_graph(impl, b.bound);
    });
  if (found == impl.bindings.rend()) return {};
  Binding binding = std::move(*found);
  impl.bindings.erase(std::next(found).base());
  return binding;
}

void keep(Operator::Impl& impl, Binding binding) {
  impl.bindings.push_back(std::move(binding));
  const auto is_free = [&](const Binding& b) { return !is_in_graph(impl, b.bound); };
  if (static_cast<size_t>(std::count_if(impl.bindings.begin(), impl.bindings.end(), is_free)) > num_kept(impl.device))
    impl.bindings.erase(std::find_if(impl.bindings.begin(), impl.bindings.end(), is_free));
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
  // On a card a turn only enqueues.
  const bool takes_turns = !impl.own.empty() || impl.device != Device::cpu();
  const bool has_preprocess = !made.preprocess3.function.body.empty();
  std::unique_lock<std::mutex> turn(impl.mutex, std::defer_lock);
  if (takes_turns)
    turn.lock();
  else if (!turn.try_lock())
    return run_anew(impl, arguments, stream);

  const bool is_captured = impl.loaded->is_captured(stream);
  const std::shared_ptr<Bound> last = impl.bindings.empty() ? nullptr : impl.bindings.back().bound;
  Binding binding = taken(impl, arguments);  // what throws leaves none
  const bool repeats = binding.bound != nullptr && is_repeated(binding, arguments);
  const bool same_reals = binding.bound != nullptr && binding.arguments.reals == arguments.reals;
  const bool has_values = std::exchange(impl.has_values, false) && binding.bound == last && same_reals;
  if (!repeats && is_captured) {
    if (binding.bound != nullptr) keep(impl, std::move(binding));
    fail(ErrorCode::invalid_argument,
         "run: its stream is being captured, and memory that a run with these structures, parameters and shapes needs "
         "is not there yet; run once so before the capture");
  }
  if (repeats) {
    rebind_buffers(arguments.buffers, *binding.bound);
  } else {
    if (binding.bound == nullptr) {
      binding.bound = std::make_shared<Bound>();
      bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, *binding.bound);
    }
    bind_rest(impl, arguments, *binding.bound);
    impl.loaded->place(*binding.bound);
    binding.arguments = arguments;
  }
  const std::shared_ptr<Bound> bound = binding.bound;
  if (is_captured && !is_in_graph(impl, bound)) impl.captured.push_back(bound);
  keep(impl, std::move(binding));
  impl.has_values = has_values;
  if (has_preprocess && !(arguments.values_unchanged && has_values)) {
    impl.loaded->preprocess(*bound, stream);
    impl.has_values = !is_captured;  // a graph fills them when it runs
  }
  impl.loaded->compute(*bound, stream);
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
