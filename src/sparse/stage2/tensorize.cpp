// Three loops as one routine of the generator. Conditions between them go: what they leave out is multiplied as 0.
#include "base/check.h"
#include "sparse/stage2/padding.h"
#include "sparse/stage2/primitives.h"
#include "sparse/stage2/product.h"

namespace weft::sparse {

void tensorize(Stage2& stage, const std::string& name, const std::string& intrinsic) {
  Stage2 made = stage;  // a refusal leaves the stage as it was
  const LoopInNest found = find_loop(made, name);
  if (intrinsic != "product")
    refuse("tensorize", name,
           fmt::format("'{}' is no intrinsic; allowed is product: c[m, n] = c[m, n] + a[m, k] * b[k, n]", intrinsic));
  const Product product = product_at(found);
  Padding padding(made, found, product);
  const Expr a = padding.factor(product.a, product.m, product.k);
  const Expr b = padding.factor(product.b, product.k, product.n);
  const Expr c = padding.target();
  Body routine = std::move(padding.before);
  routine.push_back(product.nest_of(c, a, b));
  routine.back().annotations.push_back(intrinsic);
  routine.insert(routine.end(), padding.after.begin(), padding.after.end());
  if (const Expr around = all_hold(product.conditions_around()))
    routine = {loop::make_condition(around, std::move(routine))};
  Body& body = *found.nest.path[found.place].body;
  const auto place = body.begin() + static_cast<std::ptrdiff_t>(found.nest.path[found.place].index);
  body.insert(body.erase(place), routine.begin(), routine.end());
  stage = std::move(made);
}

}  // namespace weft::sparse
