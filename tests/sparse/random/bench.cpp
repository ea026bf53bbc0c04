#include <algorithm>
#include <bit>
#include <cstring>

#include "sparse/bind.h"
#include "sparse/failures.h"
#include "sparse/interpret.h"
#include "sparse/operator.h"
#include "tests/sparse/random/compiled.h"
#include "weft/error.h"

namespace weft::sparse::random {
namespace {

constexpr uint64_t kNone = UINT64_MAX;

}  // namespace

Bench::Bench(const Case& c, const Operator& op, const Make& make) : case_(c), declared_(op.impl().made.stage1) {
  const Compilation& made = op.impl().made;
  const Inputs inputs(c.program);
  const RunArguments arguments = inputs.arguments();
  Bound bound;
  bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, bound);
  bind_parameters(made.stage1, arguments.scalars, arguments.buffers, bound);
  bind_reals(made.stage1, arguments.reals, bound);
  bind_rows(made.compute2, bound);
  const loop::Names own = made_here(made.stage1);
  bind_buffers(made.stage1, arguments.buffers, {own}, bound);
  numbers_ = bound.numbers;
  if (!made.preprocess3.function.body.empty()) functions_.push_back(&made.preprocess3.function);
  if (!made.compute3.function.body.empty()) functions_.push_back(&made.compute3.function);
  for (const loop::Function* function : functions_) {
    const size_t num_failures = loop::failures_of(*function).size();
    failed_[function->name] =
        reinterpret_cast<uint64_t*>(make("failures of " + function->name, num_failures * sizeof(uint64_t)));
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
}

void Bench::restore() {
  for (auto& [name, array] : arrays_)
    if (!array.start.empty()) std::memcpy(array.data, array.start.data(), array.start.size());
  for (const loop::Function* function : functions_)
    std::fill_n(failures_of(*function), loop::failures_of(*function).size(), kNone);
}

std::vector<void*> Bench::buffers_of(const loop::Function& function) const {
  std::vector<void*> list;
  for (const loop::Buffer& buffer : function.buffers) list.push_back(arrays_.at(buffer.name).data);
  return list;
}

std::vector<long long> Bench::scalars_of(const loop::Function& function) const {
  std::vector<long long> list;
  for (const std::string& scalar : function.scalars) list.push_back(numbers_.scalars.at(scalar));
  for (const std::string& real : function.reals) list.push_back(std::bit_cast<long long>(numbers_.reals.at(real)));
  return list;
}

std::string Bench::failure() const {
  try {
    for (const loop::Function* function : functions_) {
      FailureLog log(declared_, numbers_);
      const std::vector<loop::Failure> failures = loop::failures_of(*function);
      for (size_t f = 0; f < failures.size(); ++f)
        if (const uint64_t number = failures_of(*function)[f]; number != kNone) log.add(failures[f], number);
      log.raise();
    }
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Problem Bench::problem_of(const Results& want) const {
  if (Problem problem = failure_problem(case_, want, failure())) return problem;
  for (const auto& [buffer, values] : want.values) {
    const auto array = arrays_.find(buffer);
    if (array == arrays_.end()) continue;  // the program does not name it
    const std::vector<double> got = numbers_of(array->second.data, values.size(), case_.program.buffer(buffer).dtype);
    if (const std::string text = difference(buffer, got, values); !text.empty()) return {"wrong", text};
  }
  return {};
}

}  // namespace weft::sparse::random
