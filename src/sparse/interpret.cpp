#include "sparse/interpret.h"

#include <map>

#include "base/check.h"
#include "sparse/failures.h"
#include "sparse/stage2/lower_init.h"

namespace weft::sparse {
namespace {

using loop::Interpreter;
using loop::Memory;

// Where things lie, from the arrays alone.
class Layout {
 public:
  // An axis with its numbers and arrays.
  struct Level {
    const Axis* axis = nullptr;
    int64_t length = 0, num_positions = 0, per_parent = 0;
    const std::vector<double>*indptr = nullptr, *indices = nullptr;
    bool has_parent() const { return !axis->parent.empty(); }
    // The first offset below the parent's offset, and how many positions follow.
    int64_t first_below(int64_t parent) const {
      if (!has_parent()) return 0;
      return indptr != nullptr ? at(*indptr, parent) : parent * per_parent;
    }
    int64_t num_below(int64_t parent) const {
      if (!has_parent()) return length;
      return indptr != nullptr ? at(*indptr, parent + 1) - at(*indptr, parent) : per_parent;
    }
    int64_t index(int64_t offset) const { return at(*indices, offset); }
    static int64_t at(const std::vector<double>& array, int64_t place) {
      ensure(place >= 0 && place < static_cast<int64_t>(array.size()),
             "interpreter: an array of {} elements has none at {}", array.size(), place);
      return static_cast<int64_t>(array[static_cast<size_t>(place)]);
    }
    // The position of a coordinate below the parent's offset; none where it is absent.
    std::optional<int64_t> find(int64_t parent, int64_t coordinate) const {
      const int64_t count = num_below(parent);
      if (!axis->is_sparse) return coordinate >= 0 && coordinate < count ? std::optional(coordinate) : std::nullopt;
      if (coordinate >= length) return std::nullopt;  // padding holds the length
      const int64_t first = first_below(parent);
      for (int64_t p = 0; p < count; ++p)
        if (index(first + p) == coordinate) return p;
      return std::nullopt;
    }
  };

  Layout(const Declarations& declared, const Memory& memory) {
    for (const Axis& axis : declared.axes) {
      Level level{.axis = &axis, .length = evaluate(axis.length, memory)};
      level.num_positions = evaluate(declared.num_positions(axis.name), memory);
      if (axis.is_variable) level.indptr = &memory.buffers.at(axis.indptr);
      if (axis.is_sparse) level.indices = &memory.buffers.at(axis.indices);
      if (!axis.parent.empty() && !axis.is_variable) level.per_parent = evaluate(axis.nnz, memory);
      levels_[axis.name] = level;
    }
  }
  const Level& level(const std::string& axis) const { return levels_.at(axis); }

  // Of a buffer on `axes`, from coordinates or positions.
  std::optional<int64_t> place(const std::vector<std::string>& axes, const std::vector<int64_t>& at,
                               bool coordinates) const {
    int64_t place = 0, offset = 0;
    const Level* last = nullptr;
    for (size_t i = 0; i < axes.size(); ++i) {
      const Level& level = levels_.at(axes[i]);
      if (!level.has_parent() && last != nullptr) place = place * last->num_positions + offset;  // a chain ends
      const int64_t parent = level.has_parent() ? offset : 0;
      const std::optional<int64_t> position = coordinates ? level.find(parent, at[i]) : at[i];
      if (!position) return std::nullopt;
      offset = level.first_below(parent) + *position;
      last = &level;
    }
    return place * last->num_positions + offset;
  }

 private:
  std::map<std::string, Level> levels_;
};

// Walks the coordinates that the axes of one iteration store.
class Walker {
 public:
  Walker(const Stage1& program, const Iteration& it, const Layout& layout, Interpreter& interpreter, bool init)
      : program_(program), it_(it), layout_(layout), interpreter_(interpreter), init_(init), axes_(it.flat_axes()) {}

  void walk(size_t index = 0) {
    if (index == axes_.size()) return compute();
    const Axis& axis = program_.axis(axes_[index]);
    if (init_ && it_.kinds[index] == 'R' && !has_one_position(axis)) return walk(index + 1);
    const int64_t parent = axis.parent.empty() ? 0 : offset_.at(axis.parent);
    const Layout::Level& level = layout_.level(axis.name);
    const int64_t first = level.first_below(parent), count = level.num_below(parent);
    for (int64_t p = 0; p < count; ++p) {
      const int64_t coordinate = axis.is_sparse ? level.index(first + p) : p;
      if (axis.is_sparse && !axis.is_variable && coordinate >= level.length) continue;  // padding
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

Evaluator::Evaluator(Memory memory)
    : memory_(std::move(memory)),
      interpreter_(memory_, [](const std::string&, const std::vector<int64_t>&) { return std::nullopt; }) {}

int64_t evaluate(const Expr& e, const Memory& memory) { return Evaluator({.scalars = memory.scalars})(e); }

int64_t num_values(const Declarations& declared, const SparseBuffer& buffer, const Memory& memory) {
  int64_t count = 1;
  for (size_t i = 0; i < buffer.axes.size(); ++i)
    if (i + 1 == buffer.axes.size() || declared.axis(buffer.axes[i + 1]).parent.empty())
      count *= evaluate(declared.num_positions(buffer.axes[i]), memory);
  return count;
}

void interpret(const Stage1& program, Memory& memory) {
  const Layout layout(program, memory);
  FailureLog failures(program, memory);
  std::string writer;
  Interpreter interpreter(
      memory,
      [&](const std::string& buffer, const std::vector<int64_t>& at) {
        return layout.place(program.buffer(buffer).axes, at, true);
      },
      [&](const loop::Failure& failure, const std::vector<int64_t>& at) {
        failures.add(failure.buffer.empty() ? failure : loop::Failure{writer, failure.buffer}, at);
      });
  for (const Iteration& iteration : program.iterations) {
    const Iteration it = with_failures(iteration);
    writer = it.name_in_errors();
    for (const bool init : {true, false})
      if (!init || !it.init.empty()) Walker(program, it, layout, interpreter, init).walk();
  }
  failures.raise();
}

void interpret(Stage2 stage, Memory& memory) {
  lower_init(stage);
  const Layout layout(stage, memory);
  FailureLog failures(stage, memory);
  const auto place = [&](const std::string& name, const std::vector<int64_t>& at) {
    if (const SparseBuffer* buffer = stage.find_buffer(name)) return layout.place(buffer->axes, at, false);
    const Auxiliary* array = stage.find_auxiliary(name);
    ensure(array != nullptr, "interpreter: no buffer '{}'", name);
    return array->kind == Auxiliary::Kind::rows ? at[0] : layout.place(axes_of(stage, *array), at, false);
  };
  const auto failed = [&](const loop::Failure& failure, const std::vector<int64_t>& at) { failures.add(failure, at); };
  Interpreter(memory, place, failed).run(stage.body);
  failures.raise();
}

void interpret(const Declarations& declared, const Stage3& stage, Memory& memory) {
  FailureLog failures(declared, memory);
  loop::interpret(stage.function, memory, [&](const loop::Failure& failure, const std::vector<int64_t>& at) {
    const auto number = static_cast<uint64_t>(at[0]);
    failures.add(failure, failure.buffer.empty() ? number * 2 + static_cast<uint64_t>(at[1]) : number);
  });
  failures.raise();
}

}  // namespace weft::sparse
