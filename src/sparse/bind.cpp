#include "sparse/bind.h"

#include <algorithm>

#include "base/check.h"
#include "base/format_tensor.h"
#include "base/names.h"
#include "sparse/interpret.h"

namespace weft::sparse {

std::string ArgumentNames::structure(const std::string& axis) const { return fmt::format("structures['{}']", axis); }
std::string ArgumentNames::scalar(const std::string& param) const { return fmt::format("scalars['{}']", param); }
std::string ArgumentNames::real(const std::string& param) const { return fmt::format("reals['{}']", param); }
std::string ArgumentNames::buffer(const std::string& name) const { return fmt::format("buffers['{}']", name); }

void ArgumentNames::lacks_structure(const std::string& axis, const std::string& axes, const std::string& why) const {
  fail(ErrorCode::invalid_argument, "structures: '{}' is missing{}{}; structures are taken by {}", axis,
       why.empty() ? "" : ": ", why, axes);
}

void ArgumentNames::lacks_parameters(const std::vector<std::string>& params) const {
  fail(ErrorCode::invalid_argument, "parameters {}: no structure and no shape tells them; give them in scalars",
       joined(params));
}

void ArgumentNames::lacks_reals(const std::vector<std::string>& params) const {
  fail(ErrorCode::invalid_argument, "real parameters {}: nothing else tells them; give them in reals", joined(params));
}

const ArgumentNames& ArgumentNames::of_library() {
  static const ArgumentNames names;
  return names;
}

std::string last_below(const Stage1& program, const std::string& axis) {
  for (const Axis& child : program.axes)
    if (child.parent == axis) return last_below(program, child.name);
  return axis;
}

namespace {

// The last axes of chains that are more than their root, but for those of formats that are made here.
std::vector<std::string> structured_axes(const Stage1& program, const Names& made) {
  std::vector<std::string> axes;
  for (const Axis& axis : program.axes)
    if (!axis.parent.empty() && !made.contains(axis.name) && last_below(program, axis.name) == axis.name)
      axes.push_back(axis.name);
  return axes;
}

// "'J' (I, J)"
std::string text_of_structured(const Stage1& program, const Names& made) {
  const std::vector<std::string> axes = structured_axes(program, made);
  if (axes.empty()) return "no axis of the program";
  return joined(axes, [&](const std::string& axis) {
    return fmt::format("'{}' ({}, {})", axis, joined(program.ancestors(axis)), axis);
  });
}

bool is_known(const Expr& e, const Bound& bound) {
  const Names used = loop::variables_of(e);
  return std::all_of(used.begin(), used.end(), [&](const std::string& v) { return bound.numbers.scalars.contains(v); });
}

// A length that the program writes as `e` is `value`: sets the parameter that it is, or compares.
void equate(const Expr& e, int64_t value, const std::string& what, Bound& bound) {
  if (e->op == Op::variable && !bound.numbers.scalars.contains(e->name)) {
    bound.numbers.scalars[e->name] = value;
    return;
  }
  if (!is_known(e, bound)) return;  // compared later, through sizes
  const int64_t expected = evaluate(e, bound.numbers);
  check(expected == value, ErrorCode::invalid_shape, "{} is {}; the program has {}{} there", what, value,
        loop::is_integer(e) ? "" : loop::to_text(e) + " = ", expected);
}

// `given`: what messages call the structure.
void bind_level(const Axis& axis, const Level& level, const std::string& given, Bound& bound) {
  check(axis.is_sparse == level.is_sparse && axis.is_variable == level.is_variable, ErrorCode::invalid_argument,
        "{}: axis '{}' is {} and {}, and the structure is {} and {} there", given, axis.name,
        axis.is_sparse ? "sparse" : "dense", axis.is_variable ? "variable" : "fixed",
        level.is_sparse ? "sparse" : "dense", level.is_variable ? "variable" : "fixed");
  equate(axis.length, level.length, fmt::format("{}: the length of axis '{}'", given, axis.name), bound);
  if (axis.nnz)
    equate(axis.nnz, axis.is_variable ? level.num_positions : level.per_parent,
           fmt::format("{}: the number of positions of axis '{}'", given, axis.name), bound);
  const auto bind_array = [&](const std::string& array, const std::vector<int32_t>& values) {
    if (array.empty()) return;
    if (axis.index_type == DType::int64)
      bound.pointers[array] = (bound.wide_arrays[array] = {values.begin(), values.end()}).data();
    else
      bound.pointers[array] = const_cast<int32_t*>(values.data());
  };
  bind_array(axis.indptr, level.indptr);
  bind_array(axis.indices, level.indices);
}

// That no coordinate is stored on two axes of a list; loops over them write one buffer at the same time. What the
// library decomposes is so by its rules.
void check_apart(const Stage1& program, const std::map<std::string, const Level*>& levels) {
  for (const auto& list : program.apart) {
    std::map<int32_t, std::string> owner;  // of each coordinate
    for (const std::string& axis : list) {
      const auto found = levels.find(axis);
      if (found == levels.end()) continue;
      for (const int32_t index : found->second->indices) {
        if (index == found->second->length) continue;  // padding
        const std::string& first = owner.emplace(index, axis).first->second;
        check(first == axis, ErrorCode::invalid_argument,
              "structures: coordinate {} is stored on '{}' and on '{}', which are apart", index, first, axis);
      }
    }
  }
}

}  // namespace

namespace {

// What a format stores whose own arrays are made here: another format is made of it.
Coordinates stored_here(const Stage1& program, const std::string& axis, const Bound& bound) {
  std::vector<std::string> chain = program.ancestors(axis);
  chain.push_back(axis);
  std::vector<Level> levels;
  for (const std::string& name : chain) {
    const Axis& one = program.axis(name);
    const auto array = [&](const std::string& of) { return of.empty() ? std::vector<int32_t>() : bound.arrays.at(of); };
    levels.push_back({.is_sparse = one.is_sparse,
                      .is_variable = one.is_variable,
                      .length = evaluate(one.length, bound.numbers),
                      .indptr = array(one.indptr),
                      .indices = array(one.indices)});
  }
  return coordinates_of(Structure::Data(std::move(levels)));
}

}  // namespace

Names made_here(const Stage1& program) {
  Names names;
  for (const SparseBuffer& buffer : program.buffers)
    if (buffer.temporary) names.insert(buffer.name);
  for (const Iteration& it : program.iterations)
    if (it.preprocess)
      for (const Stmt& stmt : it.body) names.insert(stmt.name);
  return names;
}

void bind_structures(const Stage1& program, const std::vector<Decomposition>& decompositions,
                     const std::map<std::string, Structure>& structures, Bound& bound, const ArgumentNames& names) {
  Names made;
  for (const Decomposition& decomposition : decompositions)
    for (const FormatRewriteRule& rule : decomposition.rules)
      for (const Axis& axis : rule.axes) made.insert(axis.name);
  std::map<std::string, const Level*> levels;
  for (const auto& [name, structure] : structures) {
    const std::string given = names.structure(name);
    if (program.find_axis(name) == nullptr)
      fail(ErrorCode::invalid_argument, "{}: there is no such axis{}; structures are taken by {}", given,
           did_you_mean(name, structured_axes(program, made)), text_of_structured(program, made));
    std::vector<std::string> chain = program.ancestors(name);
    chain.push_back(name);
    const Structure::Data& data = data_of(structure, given.c_str());
    check(chain.size() == data.levels.size(), ErrorCode::invalid_argument,
          "{}: the axis has {} ancestors, and the structure {} levels above its last", given, chain.size() - 1,
          data.levels.size() - 1);
    for (size_t l = 0; l < chain.size(); ++l) {
      bind_level(program.axis(chain[l]), data.levels[l], given, bound);
      levels[chain[l]] = &data.levels[l];
    }
    bound.held[name] = structure.data();
  }
  check_apart(program, levels);
  for (const Decomposition& decomposition : decompositions) {
    const auto found = structures.find(decomposition.col_axis);
    const bool is_made_here = bound.arrays.contains(program.axis(decomposition.col_axis).indices);
    if (found == structures.end() && !is_made_here)
      names.lacks_structure(decomposition.col_axis, text_of_structured(program, made),
                            "its matrix is decomposed, and the formats are made of it");
    Names wanted;
    for (const FormatRewriteRule& rule : decomposition.rules)
      if (const std::string places = places_of(counting_axis(rule)); program.find_buffer(places) != nullptr)
        wanted.insert(places);
    Coordinates stored =
        is_made_here ? stored_here(program, decomposition.col_axis, bound) : coordinates_of(*found->second.data());
    for (FormatArrays& format : take_all(decomposition.rules, std::move(stored), wanted)) {
      bound.numbers.scalars.insert(format.scalars.begin(), format.scalars.end());
      for (auto& [array, values] : format.arrays) {
        bound.arrays[array] = std::move(values);
        bound.pointers[array] = bound.arrays[array].data();
      }
    }
  }
  bound.structure_numbers = bound.numbers;
}

namespace {

// [0, 0, 2, 2, 2] of an indptr of [0, 2, 2, 5].
template <class Index>
void* expanded(const Index* indptr, int64_t num_parents, std::vector<Index>& rows) {
  rows.resize(static_cast<size_t>(indptr[num_parents]));
  for (int64_t parent = 0; parent < num_parents; ++parent)
    std::fill(rows.begin() + indptr[parent], rows.begin() + indptr[parent + 1], static_cast<Index>(parent));
  return rows.data();
}

}  // namespace

void bind_rows(const Declarations& declared, Bound& bound) {
  for (const Axis& axis : declared.axes) {
    if (axis.rows.empty() || bound.pointers.contains(axis.rows)) continue;
    const int64_t parents = evaluate(declared.num_positions(axis.parent), bound.numbers);
    const void* indptr = bound.pointers.at(axis.indptr);
    bound.pointers[axis.rows] =
        axis.index_type == DType::int64
            ? expanded(static_cast<const int64_t*>(indptr), parents, bound.wide_arrays[axis.rows])
            : expanded(static_cast<const int32_t*>(indptr), parents, bound.arrays[axis.rows]);
  }
}

namespace {

// Parameters may make it a number that no axis has.
int64_t value_of_length(const Axis& axis, const Expr& length, const Bound& bound) {
  loop::visit(length, [&](const Expr& e) {
    if (!loop::is_division(e->op)) return;
    check(evaluate(e->operands[1], bound.numbers) != 0, ErrorCode::invalid_argument,
          "axis '{}': its length {} divides by {}, which is 0", axis.name, loop::to_text(length),
          loop::to_text(e->operands[1]));
  });
  return evaluate(length, bound.numbers);
}

}  // namespace

void bind_shapes(const Stage1& program, const std::map<std::string, TensorView>& buffers, Bound& bound,
                 const ArgumentNames& names) {
  for (const SparseBuffer& buffer : program.buffers) {
    const auto found = buffers.find(buffer.name);
    if (found == buffers.end() || found->second.rank() != static_cast<int>(buffer.axes.size())) continue;
    for (size_t d = 0; d < buffer.axes.size(); ++d)
      if (const Axis& axis = program.axis(buffer.axes[d]); axis.parent.empty())
        equate(axis.length, found->second.shape(static_cast<int>(d)),
               fmt::format("{}: extent {}", names.buffer(buffer.name), d), bound);
  }
  // Lengths below structured axes, as those of blocks in [num_blocks, 2, 2].
  for (const SparseBuffer& buffer : program.buffers) {
    const auto found = buffers.find(buffer.name);
    if (found == buffers.end()) continue;
    std::vector<const Axis*> last;  // of each chain
    for (size_t i = 0; i < buffer.axes.size(); ++i)
      if (i + 1 == buffer.axes.size() || program.axis(buffer.axes[i + 1]).parent.empty())
        last.push_back(&program.axis(buffer.axes[i]));
    if (found->second.rank() != static_cast<int>(last.size())) continue;
    for (size_t d = 0; d < last.size(); ++d)
      if (last[d]->parent.empty())
        equate(last[d]->length, found->second.shape(static_cast<int>(d)),
               fmt::format("{}: extent {}", names.buffer(buffer.name), d), bound);
  }
}

void bind_parameters(const Stage1& program, const std::map<std::string, int64_t>& scalars,
                     const std::map<std::string, TensorView>& buffers, Bound& bound, const ArgumentNames& names) {
  for (const auto& [name, value] : scalars) {
    const std::string given = names.scalar(name);
    check(std::find(program.reals.begin(), program.reals.end(), name) == program.reals.end(),
          ErrorCode::invalid_argument, "{}: it is a real parameter; give it in reals", given);
    check(std::find(program.params.begin(), program.params.end(), name) != program.params.end(),
          ErrorCode::invalid_argument, "{}: there is no such parameter{}", given, did_you_mean(name, program.params));
    check(value >= 0 && value <= INT32_MAX, ErrorCode::invalid_argument, "{}: is {}; 0 to {} are allowed", given, value,
          INT32_MAX);
    equate(loop::variable(name), value, given, bound);
  }
  bind_shapes(program, buffers, bound, names);
  Names made;
  for (const Axis& axis : program.axes)
    if (bound.arrays.contains(axis.indptr) || bound.arrays.contains(axis.indices)) made.insert(axis.name);
  for (const Axis& axis : program.axes)
    for (const std::string& array : {axis.indptr, axis.indices})
      if (!array.empty() && !bound.pointers.contains(array))
        names.lacks_structure(last_below(program, axis.name), text_of_structured(program, made), {});
  std::vector<std::string> missing;
  for (const std::string& param : program.params)
    if (!bound.numbers.scalars.contains(param)) missing.push_back(param);
  if (!missing.empty()) names.lacks_parameters(missing);
  for (const Axis& axis : program.axes)
    for (const Expr& length : {axis.length, axis.nnz}) {
      if (!length) continue;
      const int64_t value = value_of_length(axis, length, bound);
      check(value >= 0, ErrorCode::invalid_argument, "axis '{}': {} is {}; 0 and more are allowed", axis.name,
            loop::to_text(length), value);
    }
}

void bind_reals(const Stage1& program, const std::map<std::string, double>& reals, Bound& bound,
                const ArgumentNames& names) {
  for (const auto& [name, value] : reals)
    check(std::find(program.reals.begin(), program.reals.end(), name) != program.reals.end(),
          ErrorCode::invalid_argument, "{}: there is no such real parameter{}", names.real(name),
          did_you_mean(name, program.reals));
  std::vector<std::string> missing;
  for (const std::string& name : program.reals)
    if (!reals.contains(name)) missing.push_back(name);
  if (!missing.empty()) names.lacks_reals(missing);
  bound.numbers.reals = reals;
}

void bind_buffers(const Stage1& program, const std::map<std::string, TensorView>& buffers, const OwnBuffers& own,
                  Bound& bound, const ArgumentNames& names) {
  Names made = made_here(program);
  for (const auto& [array, values] : bound.arrays) made.insert(array);
  std::vector<std::string> known;
  for (const SparseBuffer& buffer : program.buffers)
    if (!made.contains(buffer.name)) known.push_back(buffer.name);
  for (const auto& [name, tensor] : buffers)
    check(program.find_buffer(name) != nullptr && !made.contains(name), ErrorCode::invalid_argument,
          "{}: the program has no such buffer to give{}", names.buffer(name), did_you_mean(name, known));
  bound.given.clear();
  for (const SparseBuffer& buffer : program.buffers) {
    const std::string given = names.buffer(buffer.name);
    const int64_t count = num_values(program, buffer, bound.numbers);
    check(count >= 0 && count < int64_t{1} << 40, ErrorCode::invalid_shape, "{}: {} values are too many", given, count);
    const size_t bytes = static_cast<size_t>(count) * static_cast<size_t>(bits_of(buffer.dtype)) / 8;
    if (made.contains(buffer.name) && !own.names.contains(buffer.name)) continue;  // kept in memory of the code
    if (own.names.contains(buffer.name)) {
      Workspace& memory = bound.values[buffer.name];
      if (memory.bytes() < bytes || memory.bytes() == 0) memory = Workspace(own.device, std::max<size_t>(bytes, 64));
      bound.pointers[buffer.name] = memory.data();
      continue;
    }
    const auto found = buffers.find(buffer.name);
    if (found == buffers.end() || !found->second)
      fail(ErrorCode::invalid_argument, "buffers: '{}' is missing; the program takes {}", buffer.name, joined(known));
    const TensorView& tensor = found->second;
    check(tensor.dtype() == buffer.dtype, ErrorCode::invalid_dtype, "{}: is of {}; the program has {}", given,
          weft::to_string(tensor.dtype()), weft::to_string(buffer.dtype));
    check(tensor.device() == own.device, ErrorCode::invalid_device, "{}: lies on {}; the operator runs on {}", given,
          weft::to_string(tensor.device()), weft::to_string(own.device));
    check(tensor.is_contiguous(), ErrorCode::invalid_stride, "{}: is not contiguous", given);
    check(tensor.size() == count, ErrorCode::invalid_shape, "{}: {} has {} values; the program has {} there", given,
          tensor, tensor.size(), count);
    bound.given.push_back({buffer.name, bytes, writes(program, buffer.name), &bound.pointers[buffer.name]});
  }
  std::sort(bound.given.begin(), bound.given.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  rebind_buffers(buffers, bound);
}

bool writes(const Stage1& program, const std::string& buffer) {
  return std::ranges::any_of(program.iterations, [&](const Iteration& it) {
    return stores_to(it.body, buffer) || stores_to(it.init, buffer);
  });
}

void rebind_buffers(const std::map<std::string, TensorView>& buffers, Bound& bound) {
  auto tensor = buffers.begin();
  for (const Bound::Given& given : bound.given) *given.pointer = (tensor++)->second.data();
  for (const Bound::Given& a : bound.given)
    for (const Bound::Given& b : bound.given) {
      if (!a.written || &a == &b) continue;
      const auto* at = static_cast<const char*>(*a.pointer);
      const auto* other = static_cast<const char*>(*b.pointer);
      check(at + a.bytes <= other || other + b.bytes <= at, ErrorCode::invalid_argument,
            "buffers['{}'] is written and overlaps with buffers['{}']; give it memory of its own", a.name, b.name);
    }
}

}  // namespace weft::sparse
