// Nests that a target has one routine for.
#include "loop/product.h"

#include <utility>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/dot.h"
#include "loop/linear.h"

namespace weft::loop {

void CFamily::emit_product(const Stmt& outer) {
  const ProductNest nest = product_nest(*function_, outer);
  if (!nest.is_whole()) {
    Stmt plain = outer;
    plain.annotations.clear();
    return emit({std::move(plain)});
  }
  const ProductCall call = product_call(*function_, outer, nest);
  check(!is_narrow(dtype_of(call.c.buffer)), ErrorCode::unsupported,
        "{}: loop '{}' is tensorised: required: sums in fp32 or fp64; use cache_write", function_->name, outer.name);
  for (const std::string& name : {call.c.buffer, call.a.buffer, call.b.buffer})
    if (registers_.contains(name)) spilled_.insert(name);
  std::vector<std::string> operands;
  for (const int64_t extent : {call.m, call.n, call.k}) operands.push_back(fmt::format("{}", extent));
  operands.insert(operands.end(),
                  {address(call.c.buffer, call.c.begin), expr(call.c.row), address(call.a.buffer, call.a.begin),
                   expr(call.a.row), expr(call.a.column), address(call.b.buffer, call.b.begin), expr(call.b.row)});
  for (const std::string& share : product_share(outer)) operands.push_back(share);
  line(text_of(Intrinsic::product, operands));
}

bool CFamily::emit_dot(const Stmt& loop) {
  constexpr int64_t kLanes = 16;
  const std::optional<DotNest> nest = dot_nest(loop);
  if (!nest || nest->lanes != kLanes || !registers_.contains(nest->sum)) return false;
  if (dtype_of(nest->a) != DType::bf16 || dtype_of(nest->b) != DType::bf16) return false;
  std::string b = address(nest->b, nest->first_b);
  if (nest->second_b) b += ", " + address(nest->b, nest->second_b);
  line(text_of(Intrinsic::dot, {register_at(nest->sum, nest->first_sum, kLanes), address(nest->a, nest->first_a), b}));
  return true;
}

}  // namespace weft::loop
