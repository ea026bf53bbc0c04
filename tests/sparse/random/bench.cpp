#include <algorithm>
#include <bit>
#include <cstring>

#include "sparse/bind.h"
#include "sparse/interpret.h"
#include "sparse/operator.h"
#include "tests/sparse/random/compiled.h"

namespace weft::sparse::random {

Bench::Bench(const Case& c, const Operator& op, const Make& make) : case_(c) {
  const Compilation& made = op.impl().made;
  const Inputs inputs(c.program);
  const RunArguments arguments = inputs.arguments();
  Bound bound;
  bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, bound);
  bind_parameters(made.stage1, arguments.scalars, arguments.buffers, bound);
  bind_reals(made.stage1, arguments.reals, bound);
  bind_rows(made.compute2, bound);
  const loop::Names own = made_here(made.stage1);
  bind_buffers(made.stage1, arguments.buffers, own, bound);
  scalars_ = bound.numbers.scalars;
  reals_ = bound.numbers.reals;
  if (!made.preprocess3.function.body.empty()) functions_.push_back(&made.preprocess3.function);
  if (!made.compute3.function.body.empty()) functions_.push_back(&made.compute3.function);
  for (const loop::Function* function : functions_) {
    num_failures_ = std::max(num_failures_, loop::failures_of(*function).size());
    for (const loop::Buffer& buffer : function->buffers) {
      if (arrays_.contains(buffer.name)) continue;
      const auto count = static_cast<size_t>(evaluate(buffer.size, bound.numbers));
      const size_t bytes = count * static_cast<size_t>(bits_of(buffer.dtype)) / 8;
      Array array{make(buffer.name, bytes), std::vector<char>(bytes, '\xff')};
      if (!own.contains(buffer.name) && bytes > 0)
        std::memcpy(array.start.data(), bound.pointers.at(buffer.name), bytes);
      arrays_[buffer.name] = std::move(array);
    }
  }
  failed_ = reinterpret_cast<uint64_t*>(make("failures", num_failures_ * sizeof(uint64_t)));
}

void Bench::restore() {
  for (auto& [name, array] : arrays_)
    if (!array.start.empty()) std::memcpy(array.data, array.start.data(), array.start.size());
  std::fill_n(failed_, num_failures_, UINT64_MAX);
}

std::vector<void*> Bench::buffers_of(const loop::Function& function) const {
  std::vector<void*> list;
  for (const loop::Buffer& buffer : function.buffers) list.push_back(arrays_.at(buffer.name).data);
  return list;
}

std::vector<long long> Bench::scalars_of(const loop::Function& function) const {
  std::vector<long long> list;
  for (const std::string& scalar : function.scalars) list.push_back(scalars_.at(scalar));
  for (const std::string& real : function.reals) list.push_back(std::bit_cast<long long>(reals_.at(real)));
  return list;
}

Problem Bench::problem_of(const Results& want) const {
  const bool failed = std::any_of(failed_, failed_ + num_failures_, [](uint64_t n) { return n != UINT64_MAX; });
  if (failed != want.fails) return {failed ? "fails" : "no error", "the run"};
  if (failed) return {};
  for (const auto& [buffer, values] : want.values) {
    const auto array = arrays_.find(buffer);
    if (array == arrays_.end()) continue;  // the program does not name it
    const std::vector<double> got = numbers_of(array->second.data, values.size(), case_.program.buffer(buffer).dtype);
    if (const std::string text = difference(buffer, got, values); !text.empty()) return {"wrong", text};
  }
  return {};
}

}  // namespace weft::sparse::random
