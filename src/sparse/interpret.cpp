#include "sparse/interpret.h"

#include <map>

#include "base/check.h"
#include "sparse/stage2/lower_init.h"

namespace weft::sparse {
namespace {

using loop::Interpreter;
using loop::Memory;

// Where things lie, from the arrays alone.
class Layout {
 public:
  Layout(const Declarations& declared, Memory& memory) : declared_(declared), memory_(memory) {}

  int64_t array(const std::string& name, int64_t index) const {
    const std::vector<double>& values = memory_.buffers.at(name);
    ensure(index >= 0 && index < static_cast<int64_t>(values.size()), "interpreter: '{}' has no element {}", name, index);
    return static_cast<int64_t>(values[static_cast<size_t>(index)]);
  }

  // The first offset below the parent's offset, and how many positions follow.
  int64_t first_below(const Axis& axis, int64_t parent) const {
    if (axis.parent.empty()) return 0;
    return axis.is_variable ? array(axis.indptr, parent) : parent * evaluate(axis.nnz, memory_);
  }
  int64_t num_below(const Axis& axis, int64_t parent) const {
    if (axis.parent.empty()) return evaluate(axis.length, memory_);
    return axis.is_variable ? array(axis.indptr, parent + 1) - array(axis.indptr, parent) : evaluate(axis.nnz, memory_);
  }

  // The position of a coordinate below the parent's offset; none where it is absent.
  std::optional<int64_t> find(const Axis& axis, int64_t parent, int64_t coordinate) const {
    const int64_t count = num_below(axis, parent);
    if (!axis.is_sparse) {
      if (coordinate < 0 || coordinate >= count) return std::nullopt;
      return coordinate;
    }
    if (coordinate >= evaluate(axis.length, memory_)) return std::nullopt;  // padding holds the length
    for (int64_t p = 0; p < count; ++p)
      if (array(axis.indices, first_below(axis, parent) + p) == coordinate) return p;
    return std::nullopt;
  }

  // Of a buffer on `axes`, from coordinates or positions.
  std::optional<int64_t> place(const std::vector<std::string>& axes, const std::vector<int64_t>& at, bool coordinates) const {
    int64_t place = 0, offset = 0;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Axis& axis = declared_.axis(axes[i]);
      const int64_t parent = axis.parent.empty() ? 0 : offset;
      const std::optional<int64_t> position = coordinates ? find(axis, parent, at[i]) : at[i];
      if (!position) return std::nullopt;
      offset = first_below(axis, parent) + *position;
      if (i + 1 < axes.size() && !declared_.axis(axes[i + 1]).parent.empty()) continue;
      place = place * evaluate(declared_.num_positions(axis.name), memory_) + offset;
    }
    return place;
  }

 private:
  const Declarations& declared_;
  Memory& memory_;
};

// Walks the coordinates that the axes of one iteration store.
class Walker {
 public:
  Walker(const Stage1& program, const Iteration& it, const Layout& layout, Interpreter& interpreter, bool init)
      : program_(program), it_(it), layout_(layout), interpreter_(interpreter), init_(init), axes_(it.flat_axes()) {}

  void walk(size_t index = 0) {
    if (index == axes_.size()) return compute();
    if (init_ && it_.kinds[index] == 'R') return walk(index + 1);
    const Axis& axis = program_.axis(axes_[index]);
    if (!axis.parent.empty())
      check(offset_.contains(axis.parent), ErrorCode::unsupported,
            "iteration '{}': init runs over '{}', below the reduction '{}'", it_.name, axis.name, axis.parent);
    const int64_t parent = axis.parent.empty() ? 0 : offset_.at(axis.parent);
    const int64_t first = layout_.first_below(axis, parent), count = layout_.num_below(axis, parent);
    for (int64_t p = 0; p < count; ++p) {
      const int64_t coordinate = axis.is_sparse ? layout_.array(axis.indices, first + p) : p;
      if (axis.is_sparse && !axis.is_variable && coordinate >= interpreter_.integer(axis.length)) continue;
      offset_[axis.name] = first + p;
      interpreter_.set(it_.iterators[index], coordinate);
      walk(index + 1);
    }
  }

 private:
  void compute() {
    for (const Expr& condition : it_.where) {
      bool known = true;  // init has no reduction iterators
      for (size_t a = 0; a < axes_.size(); ++a)
        known = known && !(init_ && it_.kinds[a] == 'R' && loop::uses(condition, it_.iterators[a]));
      if (known && !interpreter_.condition(condition)) return;
    }
    interpreter_.run(init_ ? it_.init : it_.body);
  }

  const Stage1& program_;
  const Iteration& it_;
  const Layout& layout_;
  Interpreter& interpreter_;
  bool init_;
  std::vector<std::string> axes_;
  std::map<std::string, int64_t> offset_;
};

}  // namespace

int64_t evaluate(const Expr& e, const Memory& memory) {
  Memory scalars{.scalars = memory.scalars};
  return Interpreter(scalars, [](const std::string&, const std::vector<int64_t>&) { return std::nullopt; }).integer(e);
}

int64_t num_values(const Declarations& declared, const SparseBuffer& buffer, const Memory& memory) {
  int64_t count = 1;
  for (size_t i = 0; i < buffer.axes.size(); ++i)
    if (i + 1 == buffer.axes.size() || declared.axis(buffer.axes[i + 1]).parent.empty())
      count *= evaluate(declared.num_positions(buffer.axes[i]), memory);
  return count;
}

void interpret(const Stage1& program, Memory& memory) {
  const Layout layout(program, memory);
  Interpreter interpreter(memory, [&](const std::string& buffer, const std::vector<int64_t>& at) {
    return layout.place(program.buffer(buffer).axes, at, true);
  });
  for (const Iteration& it : program.iterations)
    for (const bool init : {true, false})
      if (!init || !it.init.empty()) Walker(program, it, layout, interpreter, init).walk();
}

void interpret(Stage2 stage, Memory& memory) {
  lower_init(stage);
  const Layout layout(stage, memory);
  Interpreter interpreter(memory, [&](const std::string& name, const std::vector<int64_t>& at) {
    if (const SparseBuffer* buffer = stage.find_buffer(name)) return layout.place(buffer->axes, at, false);
    const Auxiliary* array = stage.find_auxiliary(name);
    ensure(array != nullptr, "interpreter: no buffer '{}'", name);
    std::vector<std::string> axes = stage.ancestors(array->axis);
    if (!array->is_indptr) axes.push_back(array->axis);
    return layout.place(axes, at, false);
  });
  interpreter.run(stage.body);
}

void interpret(const Stage3& stage, Memory& memory) { loop::interpret(stage.function, memory); }

}  // namespace weft::sparse
