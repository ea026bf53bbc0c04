#include "sparse/check.h"

#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/fp16.h"
#include "sparse/interpret.h"
#include "sparse/operator.h"

namespace weft::sparse {

std::vector<double> values_of(const TensorView& tensor) {
  std::vector<double> values;
  values.reserve(static_cast<size_t>(tensor.size()));
  for (int64_t i = 0; i < tensor.size(); ++i) {
    switch (tensor.dtype()) {
      case DType::fp32: values.push_back(tensor.as<float>()[i]); break;
      case DType::fp64: values.push_back(tensor.as<double>()[i]); break;
      case DType::int32: values.push_back(tensor.as<int32_t>()[i]); break;
      case DType::int64: values.push_back(static_cast<double>(tensor.as<int64_t>()[i])); break;
      case DType::fp16: values.push_back(from_fp16(tensor.as<uint16_t>()[i])); break;
      case DType::bf16:
        values.push_back(std::bit_cast<float>(static_cast<uint32_t>(tensor.as<uint16_t>()[i]) << 16));
        break;
      default: ensure(false, "values of {}", weft::to_string(tensor.dtype()));
    }
  }
  return values;
}

loop::Memory memory_of(const Operator& op, const RunArguments& arguments) {
  const Compilation& made = op.impl().made;
  Bound bound;
  bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, bound);
  bind_parameters(made.stage1, arguments.scalars, arguments.buffers, bound);
  bind_reals(made.stage1, arguments.reals, bound);
  bind_rows(made.compute2, bound);
  const Names own = made_here(made.stage1);
  bind_buffers(made.stage1, arguments.buffers, {own}, bound);
  loop::Memory memory{.scalars = bound.numbers.scalars, .reals = bound.numbers.reals};
  for (const Axis& axis : made.compute2.axes) {
    const auto add = [&](const std::string& array, int64_t size) {
      if (array.empty()) return;
      const void* values = bound.pointers.at(array);
      if (const auto* wide = static_cast<const int64_t*>(values); axis.index_type == DType::int64)
        memory.buffers[array].assign(wide, wide + size);
      else
        memory.buffers[array].assign(static_cast<const int32_t*>(values), static_cast<const int32_t*>(values) + size);
    };
    if (axis.is_variable) add(axis.indptr, evaluate(made.stage1.num_positions(axis.parent), bound.numbers) + 1);
    const int64_t positions = evaluate(made.stage1.num_positions(axis.name), bound.numbers);
    if (axis.is_sparse) add(axis.indices, positions);
    add(axis.rows, positions);
  }
  for (const SparseBuffer& buffer : made.stage1.buffers) {
    if (const auto array = bound.arrays.find(buffer.name); array != bound.arrays.end())
      memory.buffers[buffer.name].assign(array->second.begin(), array->second.end());
    else if (own.contains(buffer.name))
      memory.buffers[buffer.name].assign(static_cast<size_t>(num_values(made.stage1, buffer, bound.numbers)),
                                         std::nan(""));
    else
      memory.buffers[buffer.name] = values_of(arguments.buffers.at(buffer.name));
  }
  return memory;
}

void interpret_operator(const Operator& op, Stage stage, loop::Memory& memory) {
  const Compilation& made = op.impl().made;
  const bool has_preprocess = !made.parts.preprocess.iterations.empty();
  if (stage == Stage::source) interpret(made.source, memory);
  if (stage == Stage::one) interpret(made.stage1, memory);
  if (stage == Stage::two && has_preprocess) interpret(made.preprocess2, memory);
  if (stage == Stage::two) interpret(made.compute2, memory);
  if (stage == Stage::three && has_preprocess) interpret(made.stage1, made.preprocess3, memory);
  if (stage == Stage::three) interpret(made.stage1, made.compute3, memory);
}

loop::Memory interpret_operator(const Operator& op, const RunArguments& arguments, Stage stage) {
  loop::Memory memory = memory_of(op, arguments);
  interpret_operator(op, stage, memory);
  return memory;
}

namespace {

double num_operations(const Expr& e) {
  double count = 0;
  loop::visit(e, [&](const Expr& node) {
    const bool is_leaf = node->op == Op::load || node->op == Op::real_literal || node->op == Op::to_real;
    count += node->type == Type::real && !is_leaf && node->op != Op::select ? 1 : 0;
  });
  return count;
}

}  // namespace

RunSize size_of_run(const Operator& op, const RunArguments& arguments, const ArgumentNames& names) {
  const Compilation& made = op.impl().made;
  Bound bound;
  bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, bound, names);
  bind_parameters(made.stage1, arguments.scalars, arguments.buffers, bound, names);
  RunSize size;
  for (const SparseBuffer& buffer : made.source.buffers) {
    if (buffer.temporary) continue;
    RunSize::Tensor& tensor = size.tensors.emplace_back(RunSize::Tensor{buffer.name, buffer.dtype, 1});
    for (size_t i = 0; i < buffer.axes.size(); ++i) {
      if (i + 1 < buffer.axes.size() && !made.source.axis(buffer.axes[i + 1]).parent.empty()) continue;
      tensor.shape.push_back(evaluate(made.source.num_positions(buffer.axes[i]), bound.numbers));
      check(
          !__builtin_mul_overflow(tensor.count, tensor.shape.back(), &tensor.count) && tensor.count < int64_t{1} << 40,
          ErrorCode::invalid_shape, "{}: it has more values than the {} that are allowed", names.buffer(buffer.name),
          (int64_t{1} << 40) - 1);
    }
    const int64_t count = tensor.count;
    size.bytes += static_cast<double>(count) * bits_of(buffer.dtype) / 8;
  }
  for (const Axis& axis : made.source.axes) {
    const int bytes = bits_of(axis.index_type) / 8;
    if (axis.is_variable)
      size.bytes += bytes * (static_cast<double>(evaluate(made.source.num_positions(axis.parent), bound.numbers)) + 1);
    if (axis.is_sparse)
      size.bytes += bytes * static_cast<double>(evaluate(made.source.num_positions(axis.name), bound.numbers));
  }
  for (const Iteration& it : made.source.iterations) {
    double points = 1;
    const std::vector<std::string> axes = it.flat_axes();
    for (const std::string& axis : axes) {
      bool is_last = true;  // of its chain in the iteration
      for (const std::string& other : axes) is_last = is_last && made.source.axis(other).parent != axis;
      if (is_last) points *= static_cast<double>(evaluate(made.source.num_positions(axis), bound.numbers));
    }
    for (const Stmt& stmt : it.body) size.flops += points * num_operations(stmt.value);
  }
  return size;
}

void check_arguments(const Operator& op, const RunArguments& arguments, const ArgumentNames& names) {
  const Compilation& made = op.impl().made;
  Bound bound;
  bind_structures(made.stage1, made.schedule.decompositions(), arguments.structures, bound, names);
  bind_parameters(made.stage1, arguments.scalars, arguments.buffers, bound, names);
  bind_reals(made.stage1, arguments.reals, bound, names);
  bind_rows(made.compute2, bound);
  bind_buffers(made.stage1, arguments.buffers, {op.impl().own}, bound, names);
}

std::vector<std::string> inputs_of(const Stage1& program) {
  std::vector<std::string> names;
  for (const SparseBuffer& buffer : program.buffers) {
    if (buffer.temporary) continue;
    // The first iteration that accesses it decides.
    for (const Iteration& it : program.iterations) {
      const bool is_set = stores_to(it.init, buffer.name);
      bool is_read = false;
      const auto look = [&](const Expr& e) { is_read |= loop::loads_from(e, buffer.name); };
      for (const Expr& condition : it.where) look(condition);
      loop::visit_exprs(it.init, look);
      for (const Stmt& store : it.body) {
        loop::visit_exprs({store}, look);
        if (store.name == buffer.name) break;
      }
      if (is_read && !is_set) names.push_back(buffer.name);
      if (is_read || is_set || stores_to(it.body, buffer.name)) break;
    }
  }
  return names;
}

std::vector<std::string> outputs_of(const Operator& op) {
  const Stage1& program = op.impl().made.stage1;
  std::vector<std::string> names;
  for (const SparseBuffer& buffer : program.buffers) {
    bool written = false;
    if (buffer.temporary) continue;
    for (const Iteration& it : program.iterations) written |= !it.preprocess && stores_to(it.body, buffer.name);
    if (written) names.push_back(buffer.name);
  }
  return names;
}

double max_error(const Operator& op, const RunArguments& before, const std::map<std::string, TensorView>& after) {
  const loop::Memory expected = interpret_operator(op, before, Stage::source);
  double largest = 0, error = 0;
  for (const auto& [name, tensor] : after) {
    const std::vector<double> got = values_of(tensor);
    const std::vector<double>& want = expected.buffers.at(name);
    for (size_t i = 0; i < got.size(); ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;
      if (std::isinf(want[i]) && got[i] == want[i]) continue;
      const double difference = std::fabs(got[i] - want[i]);
      error = difference <= error ? error : difference;  // NaN stays
      largest = std::max(largest, std::fabs(want[i]));
    }
  }
  return largest > 0 ? error / largest : error;
}

}  // namespace weft::sparse
