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

void FailureLog::add(const loop::Failure& failure, uint64_t number) {
  const auto [found, is_new] = least_.emplace(failure, number);
  if (!is_new) found->second = std::min(found->second, number);
}

void FailureLog::add(const loop::Failure& failure, const std::vector<int64_t>& coordinates) {
  const std::vector<Expr> at(coordinates.begin(), coordinates.end());
  add(failure, static_cast<uint64_t>(evaluate(failure_number(declared_, failure.buffer, at), numbers_)));
}

void FailureLog::raise() const {
  if (least_.empty()) return;
  auto [failure, number] = *least_.begin();
  const std::vector<std::string>& axes = declared_.buffer(failure.buffer).axes;
  std::string at;
  for (auto axis = axes.rbegin(); axis != axes.rend(); ++axis) {
    const int64_t length = evaluate(declared_.axis(*axis).length, numbers_);
    const auto places = static_cast<uint64_t>(length) + 2;
    const auto x = static_cast<int64_t>(number % places) - 1;
    number /= places;
    at = fmt::format("{}{}{}{}", x < 0 ? "below 0" : fmt::format("{}", x), x == length ? " or beyond" : "",
                     at.empty() ? "" : ", ", at);
  }
  fail(ErrorCode::invalid_argument,
       "{}: iteration '{}' writes '{}' at ({}), where it stores nothing; iterate over what it stores, or leave such "
       "points out by where. What was written is incomplete",
       declared_.name, failure.writer, failure.buffer, at);
}

}  // namespace weft::sparse
