#include "loop/product.h"

#include <map>
#include <utility>

#include "base/check.h"
#include "loop/linear.h"

namespace weft::loop {
namespace {

[[noreturn]] void stop(const Function& function, const Stmt& outer, const char* why) {
  fail(ErrorCode::unsupported, "{}: loop '{}' is tensorised: {}", function.name, outer.name, why);
}

// Where an element lies: the first one's place, and steps along the loops.
struct Place {
  Expr begin;
  std::map<std::string, Expr> steps;
};

}  // namespace

bool is_mma(const Stmt& stmt) { return stmt.kind == Stmt::Kind::loop && has_annotation(stmt, "mma"); }
bool is_tensorised(const Stmt& stmt) {
  return stmt.kind == Stmt::Kind::loop && (has_annotation(stmt, "product") || is_mma(stmt));
}

ProductNest product_nest(const Function& function, const Stmt& outer) {
  ProductNest nest;
  const Stmt* inner = &outer;
  for (; inner->kind == Stmt::Kind::loop && inner->body.size() == 1; inner = &inner->body[0]) {
    const bool is_serial = inner->loop == LoopKind::serial;
    check(is_serial, ErrorCode::unsupported,
          "{}: loop '{}' is tensorised, and loop '{}' of its product is {}; required: serial loops within a product, "
          "threads and workers around it",
          function.name, outer.name, inner->name, to_string(inner->loop));
    nest.loops.push_back(inner);
  }
  const bool is_product = inner->kind == Stmt::Kind::store && nest.loops.size() <= 3 && !inner->atomic &&
                          inner->value->op == Op::add && inner->value->operands[1]->op == Op::multiply;
  check(is_product, ErrorCode::unsupported,
        "{}: loop '{}' is tensorised, and what stands within is no longer a product of three loops; required: "
        "tensorize after all that changes them",
        function.name, outer.name);
  nest.store = inner;
  return nest;
}

ProductCall product_call(const Function& function, const Stmt& outer, const ProductNest& nest) {
  std::map<std::string, int64_t> extents;
  for (const Stmt* loop : nest.loops)
    if (!is_integer(loop->value, &extents[loop->name])) stop(function, outer, "required: literal extents");
  const Stmt& store = *nest.store;
  const auto& factors = store.value->operands[1]->operands;
  if (factors[0]->op != Op::load || factors[1]->op != Op::load)
    stop(function, outer, "required: factors that are elements");
  const auto place_of = [&](Expr index) {
    Place result;
    for (const auto& [variable, extent] : extents) {
      const auto at = [&, &v = variable](int64_t i) { return linear_of(substitute(index, {{v, Expr(i)}})); };
      const auto difference = [&](int64_t i) {
        Linear step = at(i);
        step.add(at(i - 1), -1);
        return expr_of(step);
      };
      result.steps[variable] = difference(1);
      for (int64_t i = 2; i < extent; ++i)
        if (!(difference(i) == result.steps[variable])) stop(function, outer, "required: places at equal steps");
      index = expr_of(at(0));
    }
    result.begin = index;
    return result;
  };
  const Place c = place_of(store.indices[0]);
  std::string first = factors[0]->name, second = factors[1]->name;
  Place a = place_of(factors[0]->operands[0]), b = place_of(factors[1]->operands[0]);
  std::string m, n, k;
  for (const auto& [variable, extent] : extents)
    (is_literal(c.steps.at(variable), 0) ? k : is_literal(c.steps.at(variable), 1) ? n : m) = variable;
  if (n.empty() || k.empty() || m.empty()) stop(function, outer, "required: rows of the sums in one piece");
  if (is_literal(b.steps.at(n), 0)) std::swap(a, b), std::swap(first, second);
  return {.m = extents.at(m),
          .n = extents.at(n),
          .k = extents.at(k),
          .c = {store.name, c.begin, c.steps.at(m), c.steps.at(n)},
          .a = {first, a.begin, a.steps.at(m), a.steps.at(k)},
          .b = {second, b.begin, b.steps.at(k), b.steps.at(n)}};
}

}  // namespace weft::loop
