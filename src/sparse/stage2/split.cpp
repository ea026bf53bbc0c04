#include "base/check.h"
#include "loop/facts.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void split(Stage2& stage, const std::string& name, int64_t factor, const std::string& outer, const std::string& inner) {
  LoopInNest found = find_loop(stage, name);
  if (factor < 2 || factor > 65536)
    refuse("split", name, fmt::format("the factor is {}; 2 to 65536 are allowed", factor));
  Stmt& loop = found.loop();
  if (loop.loop != loop::LoopKind::serial)
    refuse("split", name, fmt::format("the loop is {} already; split it before", loop::to_string(loop.loop)));
  if (outer == inner) refuse("split", name, fmt::format("both loops would be called '{}'", outer));
  for (const std::string& variable : {outer, inner})
    if (variable != loop.name) check_new_name(stage, found.nest, variable);

  const Expr index = loop::variable(outer) * factor + loop::variable(inner);
  Body body = std::move(loop.body);
  substitute(body, {{loop.name, index}});
  int64_t extent = 0;
  const bool divides = loop::is_integer(loop.value, &extent) && extent % factor == 0;
  if (!divides) body = {loop::make_condition(loop::less(index, loop.value), std::move(body))};
  Stmt inner_loop = loop::make_loop(inner, factor, std::move(body));
  inner_loop.reduction = loop.reduction;
  const Expr iterations = divides ? Expr(extent / factor) : loop::floor_div(loop.value + (factor - 1), factor);
  Stmt outer_loop = loop::make_loop(outer, iterations, {std::move(inner_loop)});
  outer_loop.reduction = loop.reduction;
  outer_loop.annotations = loop.annotations;
  loop = std::move(outer_loop);
}

}  // namespace weft::sparse
