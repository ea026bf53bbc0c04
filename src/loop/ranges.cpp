#include "loop/ranges.h"

#include <algorithm>

namespace weft::loop {
namespace {

bool is_bound(int64_t x) { return x != INT64_MIN && x != INT64_MAX; }
bool is_bounded(const Interval& x) { return is_bound(x.least) && is_bound(x.most); }

// Any number, where one of 64 bits may not do.
Interval sum(const Interval& a, const Interval& b) {
  Interval result;
  const bool overflows_below = __builtin_add_overflow(a.least, b.least, &result.least),
             overflows_above = __builtin_add_overflow(a.most, b.most, &result.most);
  return is_bounded(a) && is_bounded(b) && !overflows_below && !overflows_above ? result : Interval{};
}

Interval negated(const Interval& x) { return is_bounded(x) ? Interval{-x.most, -x.least} : Interval{}; }

Interval product(const Interval& a, const Interval& b) {
  if (!is_bounded(a) || !is_bounded(b)) return {};
  Interval result{INT64_MAX, INT64_MIN};
  for (const int64_t x : {a.least, a.most})
    for (const int64_t y : {b.least, b.most}) {
      int64_t end = 0;
      if (__builtin_mul_overflow(x, y, &end)) return {};
      result = {std::min(result.least, end), std::max(result.most, end)};
    }
  return result;
}

// By divisors of 1 or more: nearest to 0 by the largest, farthest by the least.
Interval quotient(const Interval& a, const Interval& b) {
  const auto divided_by = [](int64_t x, int64_t divisor) {
    return is_bound(x) ? divided(Op::floor_div, x, divisor) : x;
  };
  return {divided_by(a.least, a.least < 0 ? b.least : b.most), divided_by(a.most, a.most < 0 ? b.most : b.least)};
}

// The most that is below it.
int64_t below(int64_t x, int64_t at_least) { return is_bound(x) ? std::max(x - 1, at_least) : x; }

}  // namespace

int64_t Ranges::most_of_axis(std::string_view axis) {
  if (axis.starts_with("thread")) return 1023;
  return axis.ends_with("x") ? INT32_MAX - 1 : 65534;
}

Ranges::Ranges(const Function& function) {
  for (const std::string& scalar : function.scalars) variables_[scalar] = {0, kMostOfParameter};
  for (const char* axis : kAxes) variables_[axis] = {0, most_of_axis(axis)};
  for (const Buffer& buffer : function.buffers) {
    Interval& known = buffers_[buffer.name];
    if (buffer.dtype == DType::int32) known = {INT32_MIN, INT32_MAX};
    if (buffer.least) known.least = std::max(known.least, of(buffer.least).least);
    if (buffer.most) known.most = std::min(known.most, of(buffer.most).most);
  }
}

Interval Ranges::of(const Expr& e) const {
  const auto operand = [&](size_t i) { return of(e->operands[i]); };
  const auto known = [&](const std::map<std::string, Interval>& intervals) {
    const auto found = intervals.find(e->name);
    return found == intervals.end() ? Interval{} : found->second;
  };
  const auto most_of_count = [&] { return of(*(e->operands.end() - 2)).most; };
  switch (e->op) {
    case Op::integer_literal: return {e->integer, e->integer};
    case Op::variable: return known(variables_);
    case Op::load: return known(buffers_);
    case Op::add: return sum(operand(0), operand(1));
    case Op::subtract: return sum(operand(0), negated(operand(1)));
    case Op::multiply: return product(operand(0), operand(1));
    case Op::negate: return negated(operand(0));
    case Op::minimum: {
      const Interval a = operand(0), b = operand(1);
      return {std::min(a.least, b.least), std::min(a.most, b.most)};
    }
    case Op::maximum: {
      const Interval a = operand(0), b = operand(1);
      return {std::max(a.least, b.least), std::max(a.most, b.most)};
    }
    case Op::select: {
      const Interval a = operand(1), b = operand(2);
      return {std::min(a.least, b.least), std::max(a.most, b.most)};
    }
    case Op::floor_div: {
      const Interval divisor = operand(1);
      return divisor.least >= 1 ? quotient(operand(0), divisor) : Interval{};
    }
    case Op::modulo: {
      const Interval a = operand(0), divisor = operand(1);
      if (divisor.least < 1) return {};
      const int64_t most = below(divisor.most, 0);
      return {0, a.least >= 0 ? std::min(a.most, most) : most};
    }
    case Op::find: return {-1, below(most_of_count(), -1)};
    case Op::upper_bound: return {0, std::max<int64_t>(most_of_count(), 0)};
    default: return {};
  }
}

}  // namespace weft::loop
