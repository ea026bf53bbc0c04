#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage1/primitives.h"

namespace weft::sparse {
namespace {

[[noreturn]] void refuse(const std::string& iteration, const std::string& buffer, const std::string& why) {
  fail(ErrorCode::invalid_argument, "decompose_format({}, {}): {}", iteration, buffer, why);
}

// Writes the iterations of one rule.
class Rewriter {
 public:
  Rewriter(Stage1& program, const Iteration& it, const SparseBuffer& buffer, const FormatRewriteRule& rule)
      : program_(program), it_(it), buffer_(buffer), rule_(rule), old_axes_(it.flat_axes()) {
    name_ = loop::fresh_name(buffer.name + "_" + rule.name, program.all_names());
    Names taken = program.all_names();
    taken.insert(name_);
    for (size_t a = 0; a < old_axes_.size(); ++a)
      if (!is_replaced(old_axes_[a])) taken.insert(it.iterators[a]);
    for (const std::string& axis : rule.buffer_axes) {
      iterator_[axis] = loop::fresh_name(stem_of(axis), taken);
      taken.insert(iterator_[axis]);
    }
    // Old iterators of the new ones: the inverse of f.
    Substitution names;
    for (const auto& [axis, iterator] : iterator_) names[axis] = loop::variable(iterator);
    for (size_t a = 0; a < old_axes_.size(); ++a)
      if (is_replaced(old_axes_[a])) old_[it.iterators[a]] = loop::substitute(rule.to_old.at(old_axes_[a]), names);
  }

  SparseBuffer new_buffer() const { return {name_, rule_.buffer_axes, buffer_.dtype}; }

  Iteration copy() const {
    Iteration copy{.name = "copy_" + name_, .preprocess = true};
    std::vector<Expr> from;
    for (const std::string& axis : rule_.buffer_axes) {
      copy.axes.push_back({axis});
      copy.kinds += 'S';
      copy.iterators.push_back(iterator_.at(axis));
    }
    for (const std::string& axis : buffer_.axes) from.push_back(old_.at(iterator_of(axis)));
    copy.body = {loop::make_store(name_, new_places(), loop::load(buffer_.name, from, loop::type_of(buffer_.dtype)))};
    return copy;
  }

  Iteration compute() const {
    Iteration result{.name = fmt::format("{}_{}", it_.name, rule_.name), .preprocess = it_.preprocess};
    bool inserted = false;
    for (size_t a = 0; a < old_axes_.size(); ++a) {
      if (!is_replaced(old_axes_[a])) {
        result.axes.push_back({old_axes_[a]});
        result.kinds += it_.kinds[a];
        result.iterators.push_back(it_.iterators[a]);
      } else if (!inserted) {
        inserted = true;
        for (const std::string& axis : rule_.buffer_axes) {
          result.axes.push_back({axis});
          result.kinds += kind_of(axis);
          result.iterators.push_back(iterator_.at(axis));
        }
      }
    }
    std::vector<Expr> old_places;
    for (const std::string& axis : buffer_.axes) old_places.push_back(loop::variable(iterator_of(axis)));
    const Type type = loop::type_of(buffer_.dtype);
    const Expr old_load = loop::load(buffer_.name, old_places, type), new_load = loop::load(name_, new_places(), type);
    result.body = it_.body;
    rewrite_exprs(result.body, [&](const Expr& e) {
      const Expr moved = loop::rewrite(e, [&](const Expr& node) { return node == old_load ? new_load : node; });
      return loop::substitute(moved, old_);
    });
    result.where = it_.where;
    for (Expr& condition : result.where) condition = loop::substitute(condition, old_);
    // Coordinates that a block adds at the end of the matrix are none.
    for (const std::string& axis : buffer_.axes)
      if (const Expr& place = old_.at(iterator_of(axis)); place->op != Op::variable)
        result.where.push_back(loop::less(place, program_.axis(axis).length));
    return result;
  }

 private:
  bool is_replaced(const std::string& axis) const {
    return std::find(buffer_.axes.begin(), buffer_.axes.end(), axis) != buffer_.axes.end();
  }
  const std::string& iterator_of(const std::string& axis) const {
    return it_.iterators[static_cast<size_t>(std::find(old_axes_.begin(), old_axes_.end(), axis) - old_axes_.begin())];
  }
  // The old axis that a new one is part of; none for axes that only count places.
  std::string old_of(const std::string& axis) const {
    for (const auto& [old, list] : rule_.axis_map)
      if (std::find(list.begin(), list.end(), axis) != list.end()) return old;
    return {};
  }
  std::string stem_of(const std::string& axis) const {
    if (const auto named = rule_.iterators.find(axis); named != rule_.iterators.end()) return named->second;
    const std::string old = old_of(axis);
    return old.empty() ? "p" : iterator_of(old);
  }
  char kind_of(const std::string& axis) const {
    const std::string old = old_of(axis);
    if (old.empty()) return 'R';
    return it_.kinds[static_cast<size_t>(std::find(old_axes_.begin(), old_axes_.end(), old) - old_axes_.begin())];
  }
  std::vector<Expr> new_places() const {
    std::vector<Expr> places;
    for (const std::string& axis : rule_.buffer_axes) places.push_back(loop::variable(iterator_.at(axis)));
    return places;
  }

  Stage1& program_;
  const Iteration& it_;
  const SparseBuffer& buffer_;
  const FormatRewriteRule& rule_;
  std::vector<std::string> old_axes_;
  std::string name_;
  std::map<std::string, std::string> iterator_;
  Substitution old_;
};

void check_rewritable(const Stage1& program, const std::string& name, const std::string& buffer_name) {
  const Iteration* it = program.find_iteration(name);
  std::vector<std::string> known;
  for (const Iteration& other : program.iterations) known.push_back(other.name);
  if (it == nullptr)
    refuse(name, buffer_name, fmt::format("there is no iteration '{}'{}", name, did_you_mean(name, known)));
  if (const std::string problem = problem_of_nest(*it); !problem.empty()) refuse(name, buffer_name, problem);
  const SparseBuffer* buffer = program.find_buffer(buffer_name);
  if (buffer == nullptr) refuse(name, buffer_name, fmt::format("there is no buffer '{}'", buffer_name));
  const std::vector<std::string> axes = it->flat_axes();
  std::vector<Expr> places;
  for (const std::string& axis : buffer->axes) {
    const auto found = std::find(axes.begin(), axes.end(), axis);
    if (found == axes.end())
      refuse(name, buffer_name, fmt::format("the iteration does not run over axis '{}' of the buffer", axis));
    places.push_back(loop::variable(it->iterators[static_cast<size_t>(found - axes.begin())]));
  }
  for (const auto& group : it->axes)
    if (group.size() > 1) refuse(name, buffer_name, "axes of the iteration are fused; decompose before sparse_fuse");
  for (const std::string& axis : axes) {
    const Axis& a = program.axis(axis);
    const bool is_own = std::find(buffer->axes.begin(), buffer->axes.end(), axis) != buffer->axes.end();
    if (!is_own && !a.parent.empty())
      refuse(name, buffer_name,
             fmt::format("axis '{}' of the iteration hangs on '{}', and would lose it", axis, a.parent));
  }
  if (stores_to(it->body, buffer_name))
    refuse(name, buffer_name, "the iteration writes the buffer; only what is read changes its format");
  for (const Stmt& stmt : it->body) {
    if (const SparseBuffer& written = program.buffer(stmt.name);
        std::any_of(written.axes.begin(), written.axes.end(),
                    [&](const std::string& a) { return !program.axis(a).parent.empty(); }))
      refuse(name, buffer_name,
             fmt::format("'{}' is written on axes of its own structure, which the new formats do not have", stmt.name));
    bool adds = false;
    loop::visit(stmt.value, [&](const Expr& e) {
      if (e->op != Op::load || e->name != buffer_name) return;
      if (!(e->operands == places))
        refuse(name, buffer_name, fmt::format("it is read at {}, not at the iterators of its axes", loop::to_text(e)));
    });
    const Expr target = loop::load(stmt.name, stmt.indices, loop::type_of(program.buffer(stmt.name).dtype));
    adds = (stmt.value->op == Op::add || stmt.value->op == Op::maximum || stmt.value->op == Op::minimum) &&
           stmt.value->operands[0] == target;
    if (!adds)
      refuse(name, buffer_name,
             fmt::format("'{}' is not accumulated as in C = C + x: parts of it cannot be computed apart", stmt.name));
  }
}

}  // namespace

Stage1 decompose_format(const Stage1& program, const std::string& name, const std::string& buffer_name,
                        const std::vector<FormatRewriteRule>& rules) {
  check_rewritable(program, name, buffer_name);
  if (rules.empty()) refuse(name, buffer_name, "no format is given");
  const Iteration it = *program.find_iteration(name);
  const SparseBuffer buffer = program.buffer(buffer_name);

  Stage1 result = program;
  std::vector<Iteration> copies, computes;
  std::vector<std::string> apart;
  for (const FormatRewriteRule& rule : rules) {
    check_inverse(rule, buffer.axes);
    for (const std::string& param : rule.params) {
      if (result.all_names().contains(param))
        refuse(name, buffer_name, fmt::format("format {} stands twice", rule.name));
      result.params.push_back(param);
    }
    for (const Axis& axis : rule.axes) {
      if (const std::string problem = problem_of(result, axis); !problem.empty())
        refuse(name, buffer_name, fmt::format("format {}: {}", rule.name, problem));
      result.axes.push_back(axis);
    }
    const Rewriter rewriter(result, it, buffer, rule);
    copies.push_back(rewriter.copy());
    computes.push_back(rewriter.compute());
    result.buffers.push_back(rewriter.new_buffer());
    if (!rule.apart.empty()) apart.push_back(rule.apart);
  }
  if (apart.size() > 1 && apart.size() == rules.size()) result.apart.push_back(apart);

  std::vector<Iteration> iterations;
  for (const Iteration& other : program.iterations) {
    if (other.name != name) {
      iterations.push_back(other);
      continue;
    }
    iterations.insert(iterations.end(), copies.begin(), copies.end());
    if (!it.init.empty()) iterations.push_back(init_of(it));
    iterations.insert(iterations.end(), computes.begin(), computes.end());
  }
  result.iterations = std::move(iterations);
  verify(result);
  return result;
}

Iteration init_of(const Iteration& it) {
  Iteration init{.name = it.name + "_init", .body = it.init, .preprocess = it.preprocess};
  const std::vector<std::string> axes = it.flat_axes();
  Names reductions;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (it.kinds[a] == 'R') {
      reductions.insert(it.iterators[a]);
      continue;
    }
    init.axes.push_back({axes[a]});
    init.kinds += 'S';
    init.iterators.push_back(it.iterators[a]);
  }
  for (const Expr& condition : it.where) {
    const Names used = loop::variables_of(condition);
    if (std::none_of(used.begin(), used.end(), [&](const std::string& v) { return reductions.contains(v); }))
      init.where.push_back(condition);
  }
  return init;
}

SplitProgram split_preprocess(const Stage1& program) {
  SplitProgram split{program, program};
  split.preprocess.name += "_preprocess";
  split.preprocess.iterations.clear();
  split.compute.iterations.clear();
  for (const Iteration& it : program.iterations)
    (it.preprocess ? split.preprocess : split.compute).iterations.push_back(it);
  std::erase_if(split.preprocess.buffers, [&](const SparseBuffer& buffer) {
    const auto accesses = [&](const Iteration& it) {
      return stores_to(it.body, buffer.name) || loads_from(it.body, buffer.name);
    };
    const auto& all = split.preprocess.iterations;
    return buffer.temporary && std::none_of(all.begin(), all.end(), accesses);
  });
  return split;
}

}  // namespace weft::sparse
