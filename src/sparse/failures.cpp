#include "sparse/failures.h"

#include <algorithm>

#include "base/check.h"
#include "sparse/interpret.h"

namespace weft::sparse {

Expr failure_number(const Declarations& declared, const std::string& buffer, const std::vector<Expr>& coordinates) {
  Expr number = 0;
  for (size_t d = 0; d < coordinates.size(); ++d) {
    const Expr& length = declared.axis(declared.buffer(buffer).axes[d]).length;
    const Expr within =
        loop::operation(Op::maximum, {loop::operation(Op::minimum, {coordinates[d], length}), Expr(-1)});
    number = number * (length + 2) + within + 1;
  }
  return number;
}

Expr failure_number(const Declarations& declared, const loop::Failure& division, const std::vector<Expr>& coordinates) {
  Expr number = 0;
  for (size_t i = 0; i < coordinates.size(); ++i)
    number = number * declared.axis(division.iterators[i].second).length + coordinates[i];
  return number;
}

namespace {

Expr with_failures(const Expr& e, const Iteration& it, const std::vector<std::string>& axes) {
  std::vector<Expr> operands;
  for (const Expr& x : e->operands) operands.push_back(with_failures(x, it, axes));
  if (!loop::is_division(e->op)) return loop::with_operands(e, std::move(operands));
  loop::Failure failure{.writer = it.name_in_errors()};
  failure.division = loop::to_text(loop::operation(e->op, {e->operands[0], e->operands[1]}));
  std::vector<Expr> at;
  loop::visit(e, [&](const Expr& x) {
    const auto found = std::find(it.iterators.begin(), it.iterators.end(), x->name);
    if (x->op != Op::variable || found == it.iterators.end() || std::find(at.begin(), at.end(), x) != at.end()) return;
    failure.iterators.emplace_back(x->name, axes[static_cast<size_t>(found - it.iterators.begin())]);
    at.push_back(x);
  });
  return loop::checked_division(e->op, operands[0], operands[1],
                                std::make_shared<const loop::Failure>(std::move(failure)), std::move(at));
}

}  // namespace

Iteration with_failures(Iteration it) {
  const std::vector<std::string> axes = it.flat_axes();
  const auto call = [&](const Expr& e) { return with_failures(e, it, axes); };
  rewrite_exprs(it.init, call);
  rewrite_exprs(it.body, call);
  for (Expr& condition : it.where) condition = call(condition);
  return it;
}

void FailureLog::add(const loop::Failure& failure, uint64_t number) {
  const auto [found, is_new] = least_.emplace(failure, number);
  if (!is_new) found->second = std::min(found->second, number);
}

void FailureLog::add(const loop::Failure& failure, const std::vector<int64_t>& coordinates) {
  std::vector<Expr> at(coordinates.begin(), coordinates.end());
  if (!failure.buffer.empty())
    return add(failure, static_cast<uint64_t>(evaluate(failure_number(declared_, failure.buffer, at), numbers_)));
  const auto why = static_cast<uint64_t>(coordinates.back());
  at.pop_back();
  add(failure, static_cast<uint64_t>(evaluate(failure_number(declared_, failure, at), numbers_)) * 2 + why);
}

// "2, 5 or beyond" of a write; "i = 2, j = 5" of a division.
std::string FailureLog::place_of(const loop::Failure& failure, uint64_t number) const {
  std::vector<std::pair<std::string, std::string>> dimensions = failure.iterators;  // names and axes
  const bool is_division = failure.buffer.empty();
  if (!is_division)
    for (const std::string& axis : declared_.buffer(failure.buffer).axes) dimensions.emplace_back("", axis);
  std::string at;
  for (auto d = dimensions.rbegin(); d != dimensions.rend(); ++d) {
    const int64_t length = evaluate(declared_.axis(d->second).length, numbers_);
    const uint64_t places =
        is_division ? std::max<uint64_t>(1, static_cast<uint64_t>(length)) : static_cast<uint64_t>(length) + 2;
    const int64_t x = static_cast<int64_t>(number % places) - (is_division ? 0 : 1);
    number /= places;
    const std::string coordinate = is_division ? fmt::format("{} = {}", d->first, x)
                                   : x < 0     ? "below 0"
                                               : fmt::format("{}{}", x, x == length ? " or beyond" : "");
    at = coordinate + (at.empty() ? "" : ", ") + at;
  }
  return at;
}

void FailureLog::raise() const {
  if (least_.empty()) return;
  const auto& [failure, number] = *least_.begin();
  if (!failure.buffer.empty())
    fail(ErrorCode::invalid_argument,
         "{}: iteration '{}' writes '{}' at ({}), where it stores nothing; iterate over what it stores, or leave such "
         "points out by where. What was written is incomplete",
         declared_.name, failure.writer, failure.buffer, place_of(failure, number));
  const std::string at = place_of(failure, number / 2);
  fail(ErrorCode::invalid_argument,
       "{}: iteration '{}' {}{}: {}; leave such points out by where or select. What was written is incomplete",
       declared_.name, failure.writer,
       number % 2 == 0 ? "divides by 0" : "divides -2^63 by -1, which does not fit 64 bits",
       at.empty() ? "" : fmt::format(" at ({})", at), failure.division);
}

}  // namespace weft::sparse
