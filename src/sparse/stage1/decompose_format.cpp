#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage1/primitives.h"

namespace weft::sparse {
namespace {

[[noreturn]] void refuse_format(const std::string& iteration, const std::string& buffer, const std::string& why) {
  fail(ErrorCode::invalid_argument, "decompose_format({}, {}): {}", iteration, buffer, why);
}

// Where the axes of `buffer` stand one after another within those of `other`; none where they don't.
size_t place_within(const SparseBuffer& other, const SparseBuffer& buffer) {
  const auto at = std::search(other.axes.begin(), other.axes.end(), buffer.axes.begin(), buffer.axes.end());
  return at == other.axes.end() ? std::string::npos : static_cast<size_t>(at - other.axes.begin());
}

// Whether the store computes an element from other buffers alone, as Y[i, j] = f(X[i, j]) does: nothing is added up.
bool is_assigned(const Iteration& it, const Stmt& store) {
  const auto is_written = [&](const std::string& name) {
    return std::any_of(it.body.begin(), it.body.end(), [&](const Stmt& s) { return s.name == name; });
  };
  bool reads_written = false;
  loop::visit(store.value, [&](const Expr& e) { reads_written |= e->op == Op::load && is_written(e->name); });
  return it.init.empty() && it.kinds.find('R') == it.kinds.npos && !reads_written;
}

// Whether another iteration computes the buffer in each run: copies of it are made then, and not once for new values.
bool is_computed(const Stage1& program, const Iteration& it, const std::string& buffer) {
  return std::any_of(program.iterations.begin(), program.iterations.end(), [&](const Iteration& other) {
    return other.name != it.name && !other.preprocess && stores_to(other.body, buffer);
  });
}

// The iteration that copies the buffer into the format of the rule; the end where there is none.
std::vector<Iteration>::const_iterator copy_by(const Stage1& program, const std::string& buffer,
                                               const FormatRewriteRule& rule) {
  return std::find_if(program.iterations.begin(), program.iterations.end(), [&](const Iteration& it) {
    return !it.body.empty() && it.name == "copy_" + it.body[0].name && loads_from(it.body, buffer) &&
           program.buffer(it.body[0].name).axes == rule.buffer_axes;
  });
}

// Whether results lie on the axes of the decomposed buffer: then each format has results of its own, which are
// gathered.
bool writes_on_axes_of(const Stage1& program, const Iteration& it, const SparseBuffer& buffer) {
  return place_within(program.buffer(it.body[0].name), buffer) != std::string::npos;
}

// Writes the iterations of one rule. `copied`: the buffer in that format, where there is one already.
class Rewriter {
 public:
  Rewriter(Stage1& program, const Iteration& it, const SparseBuffer& buffer, const FormatRewriteRule& rule,
           const std::string& copied)
      : program_(program),
        it_(it),
        buffer_(buffer),
        rule_(rule),
        old_axes_(it.flat_axes()),
        gathers_(writes_on_axes_of(program, it, buffer)),
        copies_(!stores_to(it.body, buffer.name)),
        is_computed_(is_computed(program, it, buffer.name)) {
    name_ = copied.empty() ? loop::fresh_name(buffer.name + "_" + rule.name, program.all_names()) : copied;
    Names taken = program.all_names();
    if (copies_) taken.insert(name_);
    for (size_t a = 0; a < old_axes_.size(); ++a)
      if (!is_replaced(old_axes_[a])) taken.insert(it.iterators[a]);
    for (const std::string& axis : rule.buffer_axes) {
      iterator_[axis] = loop::fresh_name(stem_of(axis), taken);
      taken.insert(iterator_[axis]);
    }
    for (const Stmt& stmt : it.body) {
      result_names_[stmt.name] = loop::fresh_name(stmt.name + "_" + rule.name, taken);
      taken.insert(result_names_[stmt.name]);
    }
    // Old iterators of the new ones: the inverse of f.
    Substitution names;
    for (const auto& [axis, iterator] : iterator_) names[axis] = loop::variable(iterator);
    for (size_t a = 0; a < old_axes_.size(); ++a)
      if (is_replaced(old_axes_[a])) old_[it.iterators[a]] = loop::substitute(rule.to_old.at(old_axes_[a]), names);
  }

  // Whether the iteration reads the buffer; of one that it writes, the format holds results alone.
  bool copies() const { return copies_; }
  SparseBuffer new_buffer() const { return {name_, rule_.buffer_axes, buffer_.dtype, is_computed_}; }

  // Where the format of another rule stores what the iterators stand at: 0 where it does not.
  Expr element_in(const FormatRewriteRule& other, const std::string& name) const {
    Substitution at;
    for (const std::string& axis : buffer_.axes) at[axis] = old_.at(iterator_of(axis));
    return loop::load(name, places_in(other, at), loop::type_of(buffer_.dtype));
  }

  // `before`: the formats that took elements before this one, with their buffers. Blocks may have places of those,
  // which stay 0: no element is counted twice.
  Iteration copy(const std::vector<std::pair<const FormatRewriteRule*, std::string>>& before) const {
    Iteration copy{.name = "copy_" + name_, .preprocess = !is_computed_};
    std::vector<Expr> from;
    for (const std::string& axis : rule_.buffer_axes) {
      copy.axes.push_back({axis});
      copy.kinds += 'S';
      copy.iterators.push_back(iterator_.at(axis));
    }
    for (const std::string& axis : buffer_.axes) from.push_back(old_.at(iterator_of(axis)));
    Expr value = loop::load(buffer_.name, from, loop::type_of(buffer_.dtype));
    const Expr zero = loop::type_of(buffer_.dtype) == Type::real ? loop::real(0) : Expr(0);
    if (stores_zeros(rule_))
      for (const auto& [other, name] : before)
        value = loop::select(loop::operation(Op::not_equal, {element_in(*other, name), zero}), zero, value);
    copy.body = {loop::make_store(name_, new_places(), value)};
    return copy;
  }

  // What the iteration writes on the decomposed axes, on those of the format.
  std::vector<SparseBuffer> new_results() const {
    std::vector<SparseBuffer> results;
    for (const Stmt& stmt : gathers_ ? it_.body : Body{}) {
      const SparseBuffer& old = program_.buffer(stmt.name);
      const DType dtype = loop::computed_in(old.dtype);  // rounded once, when it is gathered
      SparseBuffer result{.name = result_name(stmt.name), .dtype = dtype, .temporary = true};
      result.axes = with_places(old, old.axes, rule_.buffer_axes);
      results.push_back(std::move(result));
    }
    return results;
  }

  // The format's result at the coordinates of the old one; 0 where it stores none.
  Expr gathered(const Stmt& store) const {
    Substitution at;
    for (const std::string& axis : buffer_.axes) at[axis] = loop::variable(iterator_of(axis));
    const SparseBuffer& old = program_.buffer(store.name);
    return loop::load(result_name(store.name), with_places(old, store.indices, places_in(rule_, at)),
                      loop::type_of(old.dtype));
  }

  // `is_first`: no other format took elements before this one.
  Iteration compute(bool is_first) const {
    Iteration result{
        .name = fmt::format("{}_{}", it_.name, rule_.name), .preprocess = it_.preprocess, .place = it_.place};
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
    Names not_set;  // results that hold nothing yet: what they begin with is the caller's
    const auto moved = [&](const Expr& e) {
      return loop::substitute(loop::rewrite(e,
                                            [&](const Expr& node) {
                                              if (copies_ && node == old_load) return new_load;
                                              const bool is_own = node->op == Op::load && is_result(node->name) &&
                                                                  !not_set.contains(node->name);
                                              return is_own ? moved_result(node) : node;
                                            }),
                              old_);
    };
    result.body = it_.body;
    if (gathers_) result.init = init_of_result();
    for (const Stmt& stmt : result.init) not_set.insert(stmt.name);
    for (Body* body : {&result.init, &result.body}) {
      for (Stmt& stmt : *body) {
        Body one{std::move(stmt)};
        rewrite_exprs(one, moved);
        stmt = std::move(one[0]);
        not_set.erase(stmt.name);
        if (!gathers_) continue;
        const Expr target = moved_result(loop::load(stmt.name, stmt.indices, Type::real));
        stmt.name = target->name;
        stmt.indices = target->operands;
      }
    }
    result.where = it_.where;
    // Of blocks behind others, places of their elements are 0 in the copy; conditions hold there as they do for those.
    const bool reads_copy = is_first || !stores_zeros(rule_);
    for (Expr& condition : result.where) condition = reads_copy ? moved(condition) : loop::substitute(condition, old_);
    // Coordinates that a block adds at the end of the matrix are none.
    for (const std::string& axis : buffer_.axes) {
      const Expr& place = old_.at(iterator_of(axis));
      if (place->op == Op::variable) continue;
      bool may_be_negative = false;
      loop::visit(place, [&](const Expr& e) { may_be_negative |= e->op == Op::subtract; });
      if (may_be_negative) result.where.push_back(loop::at_least(place, 0));
      result.where.push_back(loop::less(place, program_.axis(axis).length));
    }
    return result;
  }

 private:
  // Where a format has the element at these coordinates of the matrix, as its maps say, and of an axis that counts
  // places as the array of them does.
  std::vector<Expr> places_in(const FormatRewriteRule& rule, const Substitution& at) const {
    std::vector<Expr> element, places;
    for (const std::string& axis : buffer_.axes) element.push_back(at.at(axis));
    const std::string counted = counting_axis(rule);
    for (const std::string& axis : rule.buffer_axes) {
      const auto map = rule.to_new.find(axis);
      if (axis == counted)
        places.push_back(loop::load(places_of(axis), element, Type::integer) - 1);
      else
        places.push_back(map == rule.to_new.end() ? Expr(0) : loop::substitute(map->second, at));
    }
    return places;
  }
  const std::string& result_name(const std::string& old) const { return result_names_.at(old); }
  bool is_result(const std::string& name) const {
    return gathers_ && std::any_of(it_.body.begin(), it_.body.end(), [&](const Stmt& s) { return s.name == name; });
  }
  // What stands for the axes of `old`, with `now` in place of those that are decomposed.
  template <class T>
  std::vector<T> with_places(const SparseBuffer& old, const std::vector<T>& list, const std::vector<T>& now) const {
    const auto at = list.begin() + static_cast<std::ptrdiff_t>(place_within(old, buffer_));
    std::vector<T> result(list.begin(), at);
    result.insert(result.end(), now.begin(), now.end());
    result.insert(result.end(), at + static_cast<std::ptrdiff_t>(buffer_.axes.size()), list.end());
    return result;
  }
  Expr moved_result(const Expr& load) const {
    return loop::load(result_name(load->name), with_places(program_.buffer(load->name), load->operands, new_places()),
                      load->type);
  }
  // A sum without init adds to what the caller gives: its formats begin at 0.
  Body init_of_result() const {
    if (!it_.init.empty()) return it_.init;
    Body init = it_.body;
    std::erase_if(init, [&](const Stmt& stmt) { return is_assigned(it_, stmt); });
    for (Stmt& stmt : init)
      stmt.value = loop::type_of(program_.buffer(stmt.name).dtype) == Type::real ? loop::real(0) : Expr(0);
    return init;
  }
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
    if (old.empty()) return gathers_ ? 'S' : 'R';
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
  bool gathers_, copies_, is_computed_;
  std::string name_;
  std::map<std::string, std::string> result_names_;
  std::map<std::string, std::string> iterator_;
  Substitution old_;
};

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

void check_rewritable(const Stage1& program, const std::string& name, const std::string& buffer_name,
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

// Over the spatial axes; each store of what it had, or of nothing yet where init gives that.
Iteration gather_of(const Iteration& it, const Stage1& program) {
  Iteration gather = init_of(it);
  gather.name = it.name + "_gather";
  gather.body = it.body;
  for (Stmt& stmt : gather.body) {
    const bool begins_anew = !it.init.empty() || is_assigned(it, stmt);
    stmt.value =
        begins_anew ? Expr() : loop::load(stmt.name, stmt.indices, loop::type_of(program.buffer(stmt.name).dtype));
  }
  return gather;
}

// Whether others ask for elements of format `r`: what gathers results, or blocks that come behind it.
bool is_asked(const std::vector<FormatRewriteRule>& rules, size_t r, bool gathers) {
  return gathers || std::any_of(rules.begin() + static_cast<std::ptrdiff_t>(r) + 1, rules.end(), stores_zeros);
}

// Parameters and axes of the rule.
void declare(Stage1& program, const FormatRewriteRule& rule, const std::string& iteration, const std::string& buffer) {
  for (const std::string& param : rule.params) {
    if (program.all_names().contains(param))
      refuse_format(iteration, buffer, fmt::format("format {} stands twice", rule.name));
    program.params.push_back(param);
  }
  for (const Axis& axis : rule.axes) {
    if (const std::string problem = problem_of(program, axis); !problem.empty())
      refuse_format(iteration, buffer, fmt::format("format {}: {}", rule.name, problem));
    program.axes.push_back(axis);
  }
}

// The array that tells where the elements of the buffer stand on the rule's counting axis.
void declare_places(Stage1& program, const FormatRewriteRule& rule, const std::string& iteration,
                    const SparseBuffer& buffer) {
  const SparseBuffer places{places_of(counting_axis(rule)), buffer.axes, DType::int32};
  if (program.find_buffer(places.name) != nullptr) return;  // another iteration of the same formats asks it, too
  if (const std::string problem = problem_of(program, places); !problem.empty())
    refuse_format(iteration, buffer.name, fmt::format("format {}: {}", rule.name, problem));
  program.buffers.push_back(places);
}

}  // namespace

std::vector<std::string> copies_of(const Stage1& program, const std::string& iteration, const std::string& buffer,
                                   const std::vector<FormatRewriteRule>& rules) {
  const auto reader = std::find_if(program.iterations.begin(), program.iterations.end(),
                                   [&](const Iteration& it) { return it.name == iteration; });
  if (reader == program.iterations.end() || stores_to(reader->body, buffer)) return {};
  auto first = reader, last = reader;
  std::vector<std::string> copies;
  for (const FormatRewriteRule& rule : rules) {
    const auto copy = copy_by(program, buffer, rule);
    if (copy == program.iterations.end() || copy->preprocess == is_computed(program, *reader, buffer)) return {};
    first = std::min(first, copy);
    last = std::max(last, copy);
    copies.push_back(copy->body[0].name);
  }
  const bool changes = std::any_of(
      first, last, [&](const Iteration& it) { return stores_to(it.body, buffer) || stores_to(it.init, buffer); });
  return changes ? std::vector<std::string>() : copies;
}

Stage1 decompose_format(const Stage1& program, const std::string& name, const std::string& buffer_name,
                        const std::vector<FormatRewriteRule>& rules, const std::vector<std::string>& copied) {
  if (rules.empty()) refuse_format(name, buffer_name, "no format is given");
  check_rewritable(program, name, buffer_name, rules);
  const Iteration it = *program.find_iteration(name);
  const SparseBuffer buffer = program.buffer(buffer_name);

  Stage1 result = program;
  const bool gathers = writes_on_axes_of(program, it, buffer);
  std::vector<Iteration> copies, computes;
  std::map<int64_t, std::vector<std::string>> apart;  // by partition
  std::vector<std::pair<const FormatRewriteRule*, std::string>> before;
  Iteration gather = gathers ? gather_of(it, program) : Iteration{};
  for (size_t r = 0; r < rules.size(); ++r) {
    const FormatRewriteRule& rule = rules[r];
    check_inverse(rule, buffer.axes);
    if (copied.empty()) declare(result, rule, name, buffer_name);
    if (!counting_axis(rule).empty() && is_asked(rules, r, gathers)) declare_places(result, rule, name, buffer);
    const Rewriter rewriter(result, it, buffer, rule, copied.empty() ? "" : copied[r]);
    const bool copies_anew = rewriter.copies() && copied.empty();
    if (copies_anew) {
      copies.push_back(rewriter.copy(before));
      before.emplace_back(&rule, rewriter.new_buffer().name);
    }
    computes.push_back(rewriter.compute(r == 0));
    if (copies_anew) result.buffers.push_back(rewriter.new_buffer());
    for (SparseBuffer& own : rewriter.new_results()) result.buffers.push_back(std::move(own));
    for (size_t s = 0; s < gather.body.size(); ++s) {
      Expr& sum = gather.body[s].value;
      const Expr part = rewriter.gathered(it.body[s]);
      sum = sum ? sum + part : part;
    }
    if (!rule.apart.empty() && copied.empty()) apart[rule.partition].push_back(rule.apart);
  }
  const bool all_say_so =
      std::none_of(rules.begin(), rules.end(), [](const FormatRewriteRule& rule) { return rule.apart.empty(); });
  for (const auto& [partition, axes] : apart)
    if (all_say_so && axes.size() > 1) result.apart.push_back(axes);

  const auto is_copy = [&](const Iteration& other) {
    return std::any_of(copied.begin(), copied.end(), [&](const auto& copy) { return other.name == "copy_" + copy; });
  };
  // Copies that another iteration has are read here, too: those behind this one come before it.
  const auto here = std::find_if(program.iterations.begin(), program.iterations.end(),
                                 [&](const Iteration& other) { return other.name == name; });
  std::copy_if(here, program.iterations.end(), std::back_inserter(copies), is_copy);
  std::vector<Iteration> iterations;
  for (const Iteration& other : program.iterations) {
    if (is_copy(other) && &other > &*here) continue;
    if (other.name != name) {
      iterations.push_back(other);
      continue;
    }
    iterations.insert(iterations.end(), copies.begin(), copies.end());
    if (!it.init.empty() && !gathers) iterations.push_back(init_of(it));
    iterations.insert(iterations.end(), computes.begin(), computes.end());
    if (gathers) iterations.push_back(gather);
  }
  result.iterations = std::move(iterations);
  verify(result);
  return result;
}

Iteration init_of(const Iteration& it) {
  Iteration init{.name = it.name + "_init", .body = it.init, .preprocess = it.preprocess, .place = it.place};
  init.place.iteration = it.name_in_errors();
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
    const auto accesses = [&](const Iteration& it) { return loop::accesses(it.body, buffer.name); };
    const auto& all = split.preprocess.iterations;
    return buffer.temporary && std::none_of(all.begin(), all.end(), accesses);
  });
  return split;
}

}  // namespace weft::sparse
