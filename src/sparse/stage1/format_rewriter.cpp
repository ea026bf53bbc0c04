#include "sparse/stage1/format_rewriter.h"

#include <fmt/format.h>

#include <algorithm>

#include "sparse/stage1/decompose.h"

namespace weft::sparse {

FormatRewriter::FormatRewriter(const Stage1& program, const Iteration& it, const SparseBuffer& buffer,
                               const FormatRewriteRule& rule, const std::string& copied)
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

// Where the format of another rule stores what the iterators stand at: 0 where it does not.
Expr FormatRewriter::element_in(const FormatRewriteRule& other, const std::string& name) const {
  Substitution at;
  for (const std::string& axis : buffer_.axes) at[axis] = old_.at(iterator_of(axis));
  return loop::load(name, places_in(other, at), loop::type_of(buffer_.dtype));
}

Iteration FormatRewriter::copy(const std::vector<std::pair<const FormatRewriteRule*, std::string>>& before) const {
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

std::vector<SparseBuffer> FormatRewriter::new_results() const {
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

Expr FormatRewriter::gathered(const Stmt& store) const {
  Substitution at;
  for (const std::string& axis : buffer_.axes) at[axis] = loop::variable(iterator_of(axis));
  const SparseBuffer& old = program_.buffer(store.name);
  return loop::load(result_name(store.name), with_places(old, store.indices, places_in(rule_, at)),
                    loop::type_of(old.dtype));
}

Iteration FormatRewriter::compute(bool is_first) const {
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

// Where a format has the element at these coordinates of the matrix, as its maps say, and of an axis that counts
// places as the array of them does.
std::vector<Expr> FormatRewriter::places_in(const FormatRewriteRule& rule, const Substitution& at) const {
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

bool FormatRewriter::is_result(const std::string& name) const {
  return gathers_ && std::any_of(it_.body.begin(), it_.body.end(), [&](const Stmt& s) { return s.name == name; });
}

// What stands for the axes of `old`, with `now` in place of those that are decomposed.
template <class T>
std::vector<T> FormatRewriter::with_places(const SparseBuffer& old, const std::vector<T>& list,
                                           const std::vector<T>& now) const {
  const auto at = list.begin() + static_cast<std::ptrdiff_t>(place_within(old, buffer_));
  std::vector<T> result(list.begin(), at);
  result.insert(result.end(), now.begin(), now.end());
  result.insert(result.end(), at + static_cast<std::ptrdiff_t>(buffer_.axes.size()), list.end());
  return result;
}

Expr FormatRewriter::moved_result(const Expr& load) const {
  return loop::load(result_name(load->name), with_places(program_.buffer(load->name), load->operands, new_places()),
                    load->type);
}

// A sum without init adds to what the caller gives: its formats begin at 0.
Body FormatRewriter::init_of_result() const {
  if (!it_.init.empty()) return it_.init;
  Body init = it_.body;
  std::erase_if(init, [&](const Stmt& stmt) { return is_assigned(it_, stmt); });
  for (Stmt& stmt : init)
    stmt.value = loop::type_of(program_.buffer(stmt.name).dtype) == Type::real ? loop::real(0) : Expr(0);
  return init;
}

bool FormatRewriter::is_replaced(const std::string& axis) const {
  return std::find(buffer_.axes.begin(), buffer_.axes.end(), axis) != buffer_.axes.end();
}

const std::string& FormatRewriter::iterator_of(const std::string& axis) const {
  return it_.iterators[static_cast<size_t>(std::find(old_axes_.begin(), old_axes_.end(), axis) - old_axes_.begin())];
}

// The old axis that a new one is part of; none for axes that only count places.
std::string FormatRewriter::old_of(const std::string& axis) const {
  for (const auto& [old, list] : rule_.axis_map)
    if (std::find(list.begin(), list.end(), axis) != list.end()) return old;
  return {};
}

std::string FormatRewriter::stem_of(const std::string& axis) const {
  if (const auto named = rule_.iterators.find(axis); named != rule_.iterators.end()) return named->second;
  const std::string old = old_of(axis);
  return old.empty() ? "p" : iterator_of(old);
}

char FormatRewriter::kind_of(const std::string& axis) const {
  const std::string old = old_of(axis);
  if (old.empty()) return gathers_ ? 'S' : 'R';
  return it_.kinds[static_cast<size_t>(std::find(old_axes_.begin(), old_axes_.end(), old) - old_axes_.begin())];
}

std::vector<Expr> FormatRewriter::new_places() const {
  std::vector<Expr> places;
  for (const std::string& axis : rule_.buffer_axes) places.push_back(loop::variable(iterator_.at(axis)));
  return places;
}

}  // namespace weft::sparse
