#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage1/decompose.h"

namespace weft::sparse {
namespace {

// Whether a term is 0 where `zero` is.
bool vanishes(const Expr& term, const Expr& zero) {
  if (term == zero || (term->op == Op::real_literal && term->real == 0)) return true;
  const auto& operands = term->operands;
  switch (term->op) {
    case Op::multiply: return vanishes(operands[0], zero) || vanishes(operands[1], zero);
    case Op::divide:
    case Op::negate:
    case Op::absolute:
    case Op::hyperbolic_tangent:
    case Op::square_root: return vanishes(operands[0], zero);
    case Op::add:
    case Op::subtract:
    case Op::minimum:
    case Op::maximum: return vanishes(operands[0], zero) && vanishes(operands[1], zero);
    case Op::select: return vanishes(operands[1], zero) && vanishes(operands[2], zero);
    default: return false;
  }
}

// Of results on the decomposed axes: each element is one format's.
void check_gathered(const Stage1& program, const Iteration& it, const SparseBuffer& buffer,
                    const std::vector<Expr>& places) {
  for (const Stmt& stmt : it.body) {
    const SparseBuffer& written = program.buffer(stmt.name);
    const size_t at = place_within(written, buffer);
    if (at == std::string::npos)
      refuse_format(it.name, buffer.name,
                    fmt::format("'{}' is written beside results on the buffer's axes", stmt.name));
    for (size_t a = 0; a < written.axes.size(); ++a)
      if ((a < at || a >= at + buffer.axes.size()) && !program.axis(written.axes[a]).parent.empty())
        refuse_format(it.name, buffer.name,
                      fmt::format("'{}' is written on axes of its own structure, too", stmt.name));
    if (!std::equal(places.begin(), places.end(), stmt.indices.begin() + static_cast<std::ptrdiff_t>(at)))
      refuse_format(it.name, buffer.name,
                    fmt::format("'{}' is not written at the iterators of the buffer's axes", stmt.name));
    // Gathered once for all iterations of the reductions.
    for (size_t a = 0; a < it.iterators.size(); ++a)
      for (const Expr& index : stmt.indices)
        if (it.kinds[a] == 'R' && loop::uses(index, it.iterators[a]))
          refuse_format(it.name, buffer.name,
                        fmt::format("'{}' is written at {}, another element in each iteration of the reduction '{}'",
                                    stmt.name, loop::to_words(index), it.iterators[a]));
    const auto same = [&](const Stmt& other) { return other.name == stmt.name; };
    size_t num_loads = 0;
    loop::visit(stmt.value, [&](const Expr& e) {
      num_loads += e->op == Op::load &&
                   std::any_of(it.body.begin(), it.body.end(), [&](const Stmt& s) { return s.name == e->name; });
    });
    const bool assigned = is_assigned(it, stmt);
    if (num_loads != (assigned ? 0 : 1) || std::count_if(it.body.begin(), it.body.end(), same) > 1)
      refuse_format(it.name, buffer.name, fmt::format("'{}' is read or written besides", stmt.name));
    if (!it.init.empty() && !stores_to(it.init, stmt.name))
      refuse_format(it.name, buffer.name, fmt::format("init sets other results, and not '{}'", stmt.name));
    // At its own place init begins with what the caller gives, or what init has set before.
    for (const Stmt& init : it.init)
      loop::visit(init.value, [&](const Expr& e) {
        if (e->op == Op::load && e->name == stmt.name && e->operands != stmt.indices)
          refuse_format(it.name, buffer.name,
                        fmt::format("init reads {}, another element than is written at its point", loop::to_words(e)));
      });
    if (it.init.empty() && stmt.value->op != Op::add && !assigned)
      refuse_format(it.name, buffer.name, fmt::format("'{}' has no init, and is no sum", stmt.name));
  }
}

// Whether sums begin at 0, in init or without one.
bool begins_at_zero(const Iteration& it, const Stmt& store) {
  return std::all_of(it.init.begin(), it.init.end(), [&](const Stmt& init) {
    return init.name != store.name || loop::is_literal(init.value, 0) ||
           (init.value->op == Op::real_literal && init.value->real == 0);
  });
}

}  // namespace

void refuse_format(const std::string& iteration, const std::string& buffer, const std::string& why) {
  fail(ErrorCode::invalid_argument, "decompose_format({}, {}): {}", iteration, buffer, why);
}

size_t place_within(const SparseBuffer& other, const SparseBuffer& buffer) {
  const auto at = std::search(other.axes.begin(), other.axes.end(), buffer.axes.begin(), buffer.axes.end());
  return at == other.axes.end() ? std::string::npos : static_cast<size_t>(at - other.axes.begin());
}

bool is_assigned(const Iteration& it, const Stmt& store) {
  const auto is_written = [&](const std::string& name) {
    return std::any_of(it.body.begin(), it.body.end(), [&](const Stmt& s) { return s.name == name; });
  };
  bool reads_written = false;
  loop::visit(store.value, [&](const Expr& e) { reads_written |= e->op == Op::load && is_written(e->name); });
  return it.init.empty() && it.kinds.find('R') == it.kinds.npos && !reads_written;
}

bool is_computed(const Stage1& program, const Iteration& it, const std::string& buffer) {
  return std::any_of(program.iterations.begin(), program.iterations.end(), [&](const Iteration& other) {
    return other.name != it.name && !other.preprocess && stores_to(other.body, buffer);
  });
}

bool writes_on_axes_of(const Stage1& program, const Iteration& it, const SparseBuffer& buffer) {
  return place_within(program.buffer(it.body[0].name), buffer) != std::string::npos;
}

void check_decomposable(const Stage1& program, const std::string& name, const std::string& buffer_name,
                        const std::vector<FormatRewriteRule>& rules) {
  const Iteration* it = program.find_iteration(name);
  std::vector<std::string> known;
  for (const Iteration& other : program.iterations) known.push_back(other.name);
  if (it == nullptr)
    refuse_format(name, buffer_name, fmt::format("there is no iteration '{}'{}", name, did_you_mean(name, known)));
  if (const std::string problem = problem_of_nest(*it); !problem.empty()) refuse_format(name, buffer_name, problem);
  const SparseBuffer* buffer = program.find_buffer(buffer_name);
  if (buffer == nullptr) refuse_format(name, buffer_name, fmt::format("there is no buffer '{}'", buffer_name));
  const std::vector<std::string> axes = it->flat_axes();
  std::vector<Expr> places;
  for (const std::string& axis : buffer->axes) {
    const auto found = std::find(axes.begin(), axes.end(), axis);
    if (found == axes.end())
      refuse_format(name, buffer_name, fmt::format("the iteration does not run over axis '{}' of the buffer", axis));
    places.push_back(loop::variable(it->iterators[static_cast<size_t>(found - axes.begin())]));
  }
  for (const auto& group : it->axes)
    if (group.size() > 1)
      refuse_format(name, buffer_name, "axes of the iteration are fused; decompose before sparse_fuse");
  for (const std::string& axis : axes) {
    const Axis& a = program.axis(axis);
    const bool is_own = std::find(buffer->axes.begin(), buffer->axes.end(), axis) != buffer->axes.end();
    if (!is_own && !a.parent.empty())
      refuse_format(name, buffer_name,
                    fmt::format("axis '{}' of the iteration hangs on '{}', and would lose it", axis, a.parent));
  }
  const auto check_divisions = [&](const Expr& e) {
    const auto stores = std::find_if(rules.begin(), rules.end(), stores_zeros);
    if (stores != rules.end() && loop::divides_by_any(e))
      refuse_format(name, buffer_name,
                    fmt::format("format {} also stores places of no element, where {} may divide by 0", stores->name,
                                loop::to_words(e)));
  };
  visit_exprs(it->body, check_divisions);
  std::for_each(it->where.begin(), it->where.end(), check_divisions);
  const bool gathers = writes_on_axes_of(program, *it, *buffer);
  for (const Stmt& stmt : it->init)
    if ((gathers || stmt.name == buffer_name) && !stores_to(it->body, stmt.name))
      refuse_format(name, buffer_name, fmt::format("init sets '{}', which the iteration does not compute", stmt.name));
  if (gathers) check_gathered(program, *it, *buffer, places);
  for (const Stmt& stmt : it->body) {
    if (const SparseBuffer& written = program.buffer(stmt.name);
        !gathers && std::any_of(written.axes.begin(), written.axes.end(),
                                [&](const std::string& a) { return !program.axis(a).parent.empty(); }))
      refuse_format(
          name, buffer_name,
          fmt::format("'{}' is written on axes of its own structure, which the new formats do not have", stmt.name));
    bool adds = false;
    loop::visit(stmt.value, [&](const Expr& e) {
      if (e->op != Op::load || e->name != buffer_name) return;
      if (!(e->operands == places))
        refuse_format(name, buffer_name,
                      fmt::format("it is read at {}, not at the iterators of its axes", loop::to_words(e)));
    });
    const Expr target = loop::load(stmt.name, stmt.indices, loop::type_of(program.buffer(stmt.name).dtype));
    const bool assigned = is_assigned(*it, stmt);
    adds = (stmt.value->op == Op::add || stmt.value->op == Op::maximum || stmt.value->op == Op::minimum) &&
           stmt.value->operands[0] == target;
    if (!adds && !assigned)
      refuse_format(
          name, buffer_name,
          fmt::format("'{}' is not accumulated as in C = C + x, nor computed of other buffers alone: parts of "
                      "it cannot be computed apart",
                      stmt.name));
    const Expr element = loop::load(buffer_name, places, loop::type_of(buffer->dtype));
    const bool is_zero = assigned ? vanishes(stmt.value, element)
                                  : stmt.value->op == Op::add && vanishes(stmt.value->operands[1], element);
    for (size_t r = 0; r < rules.size(); ++r) {
      // Results are gathered where elements are: only behind other formats may there be places of theirs.
      if (!stores_zeros(rules[r]) || (gathers && r == 0)) continue;
      const std::string what = fmt::format("format {} also stores places of no element", rules[r].name);
      if (gathers && stores_to(it->body, buffer_name))
        refuse_format(name, buffer_name,
                      fmt::format("{}: what formats before it compute of '{}' would be counted twice; put it first",
                                  what, buffer_name));
      if (assigned && !gathers)
        refuse_format(name, buffer_name, fmt::format("{}, where it would overwrite what '{}' has", what, stmt.name));
      if (!is_zero)
        refuse_format(name, buffer_name,
                      fmt::format("{}, where '{}' is 0: what is {} '{}' has to be 0 there, as a product with '{}' is",
                                  what, buffer_name, assigned ? "written to" : "added to", stmt.name, buffer_name));
      if (gathers && !assigned && !begins_at_zero(*it, stmt))
        refuse_format(name, buffer_name,
                      fmt::format("format {0} also stores places whose elements formats before it have: every format "
                                  "begins '{1}' with what init gives, which would be counted twice there; allowed are "
                                  "an init of 0, or {0} as the first format",
                                  rules[r].name, stmt.name));
    }
  }
}

}  // namespace weft::sparse
