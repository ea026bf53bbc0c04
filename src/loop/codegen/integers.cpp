#include "loop/codegen/integers.h"

#include <algorithm>

namespace weft::loop {

Integers::Integers(const Function& function, Facts& facts)
    : facts_(&facts), ranges_(function), ints_(function.scalars.begin(), function.scalars.end()) {
  for (const std::string& scalar : function.scalars)
    facts.push_condition(operation(Op::less_equal, {variable(scalar), Expr(kMostOfParameter)}));
  for (const char* axis : Ranges::kAxes) ints_.insert(axis);
}

// Products of what varies are places of elements: nothing says more of them than ranges do.
bool Integers::fits_int(const Expr& e) const {
  if (!are_ints()) return false;
  const Interval range = ranges_.of(e);
  const bool may_be_proven = e->op != Op::multiply || is_integer(e->operands[0]) || is_integer(e->operands[1]);
  const auto holds = [&](bool is_known, const Expr& slack) {
    return is_known || (may_be_proven && facts_->is_nonnegative(slack));
  };
  return holds(range.most <= INT32_MAX, Expr(INT32_MAX) - e) && holds(range.least >= INT32_MIN, e - Expr(INT32_MIN));
}

Interval Integers::range_of(const Expr& e, const Written& written) const {
  const Interval range = ranges_.of(e);
  return written.is_int ? range.of_int() : range;
}

const char* Integers::declare(const std::string& variable, const Interval& values) {
  ranges_.set(variable, values);
  ints_.erase(variable);
  if (!are_ints() || !values.fits_int()) return "long long";
  ints_.insert(variable);
  return "int";
}

void Integers::declare_memory(const Stmt& memory, const Body& body) {
  if (!are_ints() || type_of(memory.dtype) != Type::integer) return;
  Interval all{INT64_MAX, INT64_MIN};
  visit(body, [&](const Stmt& stmt) {
    const bool stores = stmt.kind == Stmt::Kind::store || stmt.kind == Stmt::Kind::copy_async;
    if (!stores || stmt.name != memory.name) return;
    const Interval stored = ranges_.of(stmt.value);
    all = {std::min(all.least, stored.least), std::max(all.most, stored.most)};
  });
  ranges_.set_memory(memory.name, all.least <= all.most ? all : Interval());
}

}  // namespace weft::loop
