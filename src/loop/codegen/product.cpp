// Loops that are tensorised.
#include "loop/product.h"

#include <utility>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/linear.h"
#include "loop/operators.h"

namespace weft::loop {

void CFamily::emit_product(const Stmt& outer) {
  const ProductNest nest = product_nest(*function_, outer);
  if (!nest.is_whole()) {
    Stmt plain = outer;
    plain.annotations.clear();
    return emit({std::move(plain)});
  }
  const auto stop = [&](const std::string& why) {
    fail(ErrorCode::unsupported, "{}: loop '{}' is tensorised: {}", function_->name, outer.name, why);
  };
  std::map<std::string, int64_t> extents;
  for (const Stmt* loop : nest.loops)
    if (!is_integer(loop->value, &extents[loop->name])) stop("required: literal extents");
  const Stmt& store = *nest.store;
  const auto& factors = store.value->operands[1]->operands;
  if (factors[0]->op != Op::load || factors[1]->op != Op::load) stop("required: factors that are elements");
  if (is_narrow(dtype_of(store.name))) stop("required: sums in fp32 or fp64; use cache_write");
  for (const std::string& name : {store.name, factors[0]->name, factors[1]->name})
    if (registers_.contains(name)) spilled_.insert(name);
  // Where each operand begins, and its step along each loop.
  struct Operand {
    std::string begin;
    std::map<std::string, Expr> steps;
  };
  const auto operand = [&](const std::string& name, Expr index) {
    Operand result;
    for (const auto& [variable, extent] : extents) {
      const auto place = [&, &v = variable](int64_t i) { return linear_of(substitute(index, {{v, Expr(i)}})); };
      const auto difference = [&](int64_t i) {
        Linear step = place(i);
        step.add(place(i - 1), -1);
        return expr_of(step);
      };
      result.steps[variable] = difference(1);
      for (int64_t i = 2; i < extent; ++i)
        if (!(difference(i) == result.steps[variable])) stop("required: places at equal steps");
      index = expr_of(place(0));
    }
    result.begin = fmt::format("{} + {}", name, expr(index, kSumPrecedence));
    return result;
  };
  const Operand c = operand(store.name, store.indices[0]);
  Operand a = operand(factors[0]->name, factors[0]->operands[0]),
          b = operand(factors[1]->name, factors[1]->operands[0]);
  std::string m, n, k;
  for (const auto& [variable, extent] : extents)
    (is_literal(c.steps.at(variable), 0) ? k : is_literal(c.steps.at(variable), 1) ? n : m) = variable;
  if (n.empty() || k.empty() || m.empty()) stop("required: rows of the sums in one piece");
  if (is_literal(b.steps.at(n), 0)) std::swap(a, b);
  if (!is_literal(b.steps.at(n), 1)) stop("required: rows of the second operand in one piece");
  line(fmt::format("weft_product<{}, {}, {}>({}, {}, {}, {}, {}, {}, {}{});", extents.at(m), extents.at(n),
                   extents.at(k), c.begin, expr(c.steps.at(m)), a.begin, expr(a.steps.at(m)), expr(a.steps.at(k)),
                   b.begin, expr(b.steps.at(k)), product_share(outer)));
}

}  // namespace weft::loop
