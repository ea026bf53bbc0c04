#include "sparse/stage1/program.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"

namespace weft::sparse {
namespace {

template <class List>
auto* find_named(const List& list, std::string_view name) {
  const auto found = std::find_if(list.begin(), list.end(), [&](const auto& item) { return item.name == name; });
  return found == list.end() ? nullptr : &*found;
}

}  // namespace

const Axis* Declarations::find_axis(std::string_view axis) const { return find_named(axes, axis); }
const SparseBuffer* Declarations::find_buffer(std::string_view buffer) const { return find_named(buffers, buffer); }
const Iteration* Stage1::find_iteration(std::string_view iteration) const { return find_named(iterations, iteration); }

const Axis& Declarations::axis(std::string_view wanted) const {
  const Axis* found = find_axis(wanted);
  ensure(found != nullptr, "no axis '{}' is declared", wanted);
  return *found;
}

const SparseBuffer& Declarations::buffer(std::string_view wanted) const {
  const SparseBuffer* found = find_buffer(wanted);
  ensure(found != nullptr, "no buffer '{}' is declared", wanted);
  return *found;
}

std::vector<std::string> Declarations::ancestors(std::string_view child) const {
  std::vector<std::string> list;
  for (std::string parent = axis(child).parent; !parent.empty(); parent = axis(parent).parent)
    list.insert(list.begin(), parent);
  return list;
}

Expr Declarations::num_positions(std::string_view wanted) const {
  const Axis& a = axis(wanted);
  if (a.parent.empty()) return a.length;
  return a.is_variable ? a.nnz : num_positions(a.parent) * a.nnz;
}

const Axis* Declarations::axis_of_indptr(std::string_view indptr) const {
  for (const Axis& a : axes)
    if (!indptr.empty() && a.indptr == indptr) return &a;
  return nullptr;
}

const Axis* Declarations::axis_of_indices(std::string_view indices) const {
  for (const Axis& a : axes)
    if (!indices.empty() && a.indices == indices) return &a;
  return nullptr;
}

Names Declarations::all_names() const {
  Names names(params.begin(), params.end());
  names.insert(reals.begin(), reals.end());
  names.insert(name);
  for (const Axis& a : axes)
    for (const std::string& n : {a.name, a.indptr, a.indices, a.rows})
      if (!n.empty()) names.insert(n);
  for (const SparseBuffer& b : buffers) names.insert(b.name);
  return names;
}

bool Declarations::declares(std::string_view wanted) const {
  const auto is_axis = [&](const Axis& a) {
    return a.name == wanted || a.indptr == wanted || a.indices == wanted || a.rows == wanted;
  };
  return wanted == name || std::find(params.begin(), params.end(), wanted) != params.end() ||
         std::find(reals.begin(), reals.end(), wanted) != reals.end() ||
         std::any_of(axes.begin(), axes.end(), is_axis) || find_buffer(wanted) != nullptr;
}

std::vector<std::string> Iteration::flat_axes() const {
  std::vector<std::string> flat;
  for (const auto& group : axes) flat.insert(flat.end(), group.begin(), group.end());
  return flat;
}

std::string problem_of(const Declarations& declared, const Axis& axis) {
  Names own;
  for (const std::string& name : {axis.name, axis.indptr, axis.indices, axis.rows})
    if (!name.empty() && (declared.declares(name) || !own.insert(name).second))
      return fmt::format("'{}' is declared twice", name);
  if (axis.parent.empty()) return {};
  const Axis* parent = declared.find_axis(axis.parent);
  if (parent == nullptr)
    return fmt::format("the parent '{}' of axis '{}' is not declared before it", axis.parent, axis.name);
  if (declared.ancestors(axis.parent).size() >= 6) return fmt::format("axis '{}' has more than 6 ancestors", axis.name);
  return {};
}

std::string problem_of(const Declarations& declared, const SparseBuffer& buffer) {
  if (declared.declares(buffer.name)) return fmt::format("'{}' is declared twice", buffer.name);
  if (buffer.axes.empty()) return fmt::format("buffer '{}' has no axis", buffer.name);
  for (size_t i = 0; i < buffer.axes.size(); ++i) {
    const Axis* axis = declared.find_axis(buffer.axes[i]);
    if (axis == nullptr) return fmt::format("axis '{}' of buffer '{}' is not declared", buffer.axes[i], buffer.name);
    // Trees that interleave or branch have no place for an element that the offsets of positions would give: refused.
    if (!axis->parent.empty() && (i == 0 || buffer.axes[i - 1] != axis->parent))
      return fmt::format(
          "axis '{}' of buffer '{}' does not follow its parent '{}' directly; a buffer's axes are chains "
          "from a root on, one after another",
          axis->name, buffer.name, axis->parent);
    if (std::count(buffer.axes.begin(), buffer.axes.end(), axis->name) > 1)
      return fmt::format("axis '{}' stands twice in buffer '{}'; declare another axis of the same length", axis->name,
                         buffer.name);
  }
  return {};
}

std::string problem_of_apart(const Declarations& declared, const std::vector<std::string>& axes) {
  for (const std::string& name : axes) {
    const Axis* axis = declared.find_axis(name);
    if (axis == nullptr) return fmt::format("axis '{}' is not declared", name);
    if (!axis->is_sparse) return fmt::format("axis '{}' is dense: it stores every coordinate", name);
    if (std::count(axes.begin(), axes.end(), name) > 1) return fmt::format("axis '{}' stands twice", name);
  }
  return {};
}

size_t num_common(const Iteration& a, const Iteration& b) {
  const auto [end, _] = std::mismatch(a.around.begin(), a.around.end(), b.around.begin(), b.around.end());
  return static_cast<size_t>(end - a.around.begin());
}

std::string problem_of_nest(const Iteration& it) {
  if (it.around.empty()) return {};
  return fmt::format("it stands within iteration '{}', whose axes it shares; write it beside that one",
                     it.around.back().name);
}

namespace {

// A sum may be scattered: C[row[e]] = C[row[e]] + x, over a reduction e.
Names variables_outside_loads(const Expr& e) {
  if (e->op == Op::load) return {};
  Names names;
  if (e->op == Op::variable) names.insert(e->name);
  for (const Expr& operand : e->operands) names.merge(variables_outside_loads(operand));
  return names;
}

std::string problem_of_store(const Iteration& it, const Stmt& store, bool is_init) {
  Names written, direct;  // what indices use, and what of it outside of loads
  for (const Expr& index : store.indices) {
    written.merge(loop::variables_of(index));
    direct.merge(variables_outside_loads(index));
  }
  Names used = written;
  used.merge(loop::variables_of(store.value));
  for (size_t a = 0; a < it.iterators.size(); ++a) {
    const std::string& iterator = it.iterators[a];
    if (it.kinds[a] == 'R' && is_init && used.contains(iterator))
      return fmt::format("init of '{}' uses the reduction iterator '{}'; it runs once for all of its values", it.name,
                         iterator);
    if (it.kinds[a] == 'R' && direct.contains(iterator))
      return fmt::format("'{}' is a reduction iterator of '{}', and '{}' is written at it; make it spatial", iterator,
                         it.name, store.name);
    if (it.kinds[a] == 'S' && !written.contains(iterator))
      return fmt::format(
          "'{}' is a spatial iterator of '{}', but '{}' is not written at it: its iterations would meet; "
          "make it a reduction",
          iterator, it.name, store.name);
  }
  return {};
}

}  // namespace

std::string problem_of_axes(const Declarations& declared, const Iteration& it) {
  const std::vector<std::string> axes = it.flat_axes();
  if (axes.empty()) return fmt::format("iteration '{}' has no axis", it.name);
  if (it.kinds.size() != axes.size())
    return fmt::format("iteration '{}' has {} axes and {} kinds in \"{}\"; write S or R for each", it.name, axes.size(),
                       it.kinds.size(), it.kinds);
  if (it.kinds.find_first_not_of("SR") != it.kinds.npos)
    return fmt::format("\"{}\": the kinds of axes are S (spatial) and R (reduction)", it.kinds);
  if (it.iterators.size() != axes.size())
    return fmt::format("iteration '{}' has {} axes and {} iterators", it.name, axes.size(), it.iterators.size());
  for (size_t i = 0; i < axes.size(); ++i) {
    const Axis* axis = declared.find_axis(axes[i]);
    if (axis == nullptr) return fmt::format("axis '{}' of iteration '{}' is not declared", axes[i], it.name);
    const auto end = axes.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find(axes.begin(), end, axes[i]) != end)
      return fmt::format("axis '{}' stands twice in iteration '{}'", axes[i], it.name);
    if (!axis->parent.empty() && std::find(axes.begin(), end, axis->parent) == end)
      return fmt::format("axis '{}' of iteration '{}' depends on its parent '{}', which has to stand before it",
                         axis->name, it.name, axis->parent);
  }
  for (const auto& group : it.axes) {
    if (group.size() == 1) continue;
    for (size_t i = 0; i < group.size(); ++i)
      if (declared.axis(group[i]).parent != (i == 0 ? "" : group[i - 1]))
        return fmt::format("fuse({}) is no chain of axes from a root on: the parent of '{}' is '{}'", joined(group),
                           group[i], declared.axis(group[i]).parent);
  }
  for (size_t i = 0; i < it.iterators.size(); ++i)
    if (declared.declares(it.iterators[i]) || std::count(it.iterators.begin(), it.iterators.end(), it.iterators[i]) > 1)
      return fmt::format("iterator '{}' of '{}' has a name that something else has", it.iterators[i], it.name);
  return {};
}

bool has_one_position(const Axis& axis) { return axis.parent.empty() && loop::is_literal(axis.length, 1); }

namespace {

// Init runs over the spatial axes alone.
std::string problem_of_init_axes(const Declarations& declared, const Iteration& it) {
  const std::vector<std::string> axes = it.flat_axes();
  for (size_t a = 0; a < axes.size(); ++a) {
    const std::string& parent = declared.axis(axes[a]).parent;
    if (it.kinds[a] == 'R' || parent.empty()) continue;
    const auto at = static_cast<size_t>(std::find(axes.begin(), axes.end(), parent) - axes.begin());
    if (it.kinds[at] == 'R' && !has_one_position(declared.axis(parent)))
      return fmt::format(
          "init of '{}' runs once for each point of the spatial axes, and '{}' hangs on '{}', whose iterator '{}' is a "
          "reduction; write an iteration of its own, over axes of what it sets",
          it.name, axes[a], parent, it.iterators[at]);
  }
  return {};
}

}  // namespace

std::string problem_of(const Declarations& declared, const Iteration& it) {
  if (std::string problem = problem_of_axes(declared, it); !problem.empty()) return problem;
  if (it.body.empty()) return fmt::format("iteration '{}' computes nothing", it.name);
  if (!it.init.empty())
    if (std::string problem = problem_of_init_axes(declared, it); !problem.empty()) return problem;
  for (const auto* body : {&it.init, &it.body})
    for (const Stmt& stmt : *body) {
      if (declared.find_buffer(stmt.name) == nullptr)
        return fmt::format("'{}' is no buffer that a program writes", stmt.name);
      if (std::string problem = problem_of_store(it, stmt, body == &it.init); !problem.empty()) return problem;
    }
  return {};
}

bool divides_by_zero(const Expr& e) {
  bool found = false;
  loop::visit(
      e, [&](const Expr& node) { found |= loop::is_division(node->op) && loop::is_literal(node->operands[1], 0); });
  return found;
}

void verify(const Stage1& program) {
  Stage1 declared{{.name = program.name, .params = program.params, .reals = program.reals}};
  const auto require = [&](const std::string& problem) {
    check(problem.empty(), ErrorCode::invalid_argument, "program {}: {}", program.name, problem);
  };
  for (const Axis& axis : program.axes) {
    require(problem_of(declared, axis));
    declared.axes.push_back(axis);
  }
  for (const SparseBuffer& buffer : program.buffers) {
    require(problem_of(declared, buffer));
    declared.buffers.push_back(buffer);
  }
  for (const auto& axes : program.apart) require(problem_of_apart(declared, axes));
  for (const Iteration& iteration : program.iterations) {
    require(problem_of(declared, iteration));
    require(declared.find_iteration(iteration.name) == nullptr
                ? ""
                : fmt::format("iteration '{}' is declared twice", iteration.name));
    declared.iterations.push_back(iteration);
  }
}

}  // namespace weft::sparse
