#include "loop/dot.h"

#include "loop/linear.h"

namespace weft::loop {

std::optional<DotNest> dot_nest(const Stmt& loop) {
  const bool is_nest = loop.body.size() == 1 && loop.body[0].kind == Stmt::Kind::loop &&
                       loop.body[0].loop == LoopKind::vectorize && loop.body[0].body.size() == 1;
  if (!is_nest || !is_literal(loop.value, 2)) return std::nullopt;
  const Stmt &lanes = loop.body[0], &store = lanes.body[0];
  DotNest nest{.sum = store.name};
  if (!is_integer(lanes.value, &nest.lanes) || store.kind != Stmt::Kind::store || store.value->op != Op::add)
    return std::nullopt;
  const Expr& product = store.value->operands[1];
  const bool is_sum = store.value->operands[0] == load(store.name, store.indices, Type::real) &&
                      product->op == Op::multiply && !uses(store.indices[0], loop.name);
  int64_t step = 0;
  if (!is_sum || !is_linear_in(store.indices[0], lanes.name, &step, &nest.first_sum) || step != 1) return std::nullopt;
  const Expr* factors = product->operands.data();
  const bool varies = uses(factors[0], lanes.name);
  const Expr &scalar = factors[varies ? 1 : 0], &vector = factors[varies ? 0 : 1];
  if (scalar->op != Op::load || vector->op != Op::load) return std::nullopt;
  nest.a = scalar->name;
  nest.b = vector->name;
  if (!is_linear_in(scalar->operands[0], loop.name, &step, &nest.first_a) || step != 1 ||
      uses(nest.first_a, lanes.name))
    return std::nullopt;
  Expr rows;
  if (!is_linear_in(vector->operands[0], lanes.name, &step, &rows)) return std::nullopt;
  int64_t step_of_pairs = 0;
  if (step == 2 && is_linear_in(rows, loop.name, &step_of_pairs, &nest.first_b) && step_of_pairs == 1) return nest;
  if (step != 1) return std::nullopt;
  nest.first_b = expr_of(linear_of(substitute(rows, {{loop.name, 0}})));
  nest.second_b = expr_of(linear_of(substitute(rows, {{loop.name, 1}})));
  return nest;
}

}  // namespace weft::loop
