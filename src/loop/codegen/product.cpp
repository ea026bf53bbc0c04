// Nests that a target has one routine for.
#include "loop/product.h"

#include <utility>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/dot.h"
#include "loop/threads/fragments.h"

namespace weft::loop {

void CFamily::emit_product(const Stmt& outer) {
  const ProductNest nest = product_nest(*function_, outer);
  if (!nest.is_whole() || (is_mma(outer) && !has(Intrinsic::mma, target()))) {
    Stmt plain = outer;
    plain.annotations.clear();
    return emit({std::move(plain)});
  }
  const ProductCall call = product_call(*function_, outer, nest);
  if (is_mma(outer)) return line(text_of(Intrinsic::mma, mma_operands(call)));
  check(is_literal(call.b.column, 1), ErrorCode::unsupported,
        "{}: loop '{}' is tensorised: required: rows of the second operand in one piece", function_->name, outer.name);
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

// Tiles are taken from c, or, where it is turned, from what lies across it.
std::vector<std::string> CFamily::mma_operands(const ProductCall& call) {
  const Fragment f = *fragment_of(call.m, call.n);
  struct Factor {
    std::string begin;
    bool has_depths_side_by_side;
    Expr step;
  };
  const auto factor = [&](const ProductCall::Operand& operand, const Expr& along_k, const Expr& across) {
    const bool side_by_side = is_literal(along_k, 1);
    return Factor{address(operand.buffer, operand.begin), side_by_side, side_by_side ? across : along_k};
  };
  Factor a = factor(call.a, call.a.column, call.a.row), b = factor(call.b, call.b.row, call.b.column);
  if (f.is_turned) std::swap(a, b);
  std::vector<std::string> operands{dtype_of(call.a.buffer) == DType::bf16 ? "true" : "false"};
  for (const int64_t number : {f.tiles_m, f.tiles_n, f.warps_m, f.warps_n, call.k})
    operands.push_back(fmt::format("{}", number));
  for (const Factor& x : {a, b}) operands.emplace_back(x.has_depths_side_by_side ? "true" : "false");
  operands.push_back(call.c.buffer);
  for (const Factor& x : {a, b}) operands.insert(operands.end(), {x.begin, expr(x.step)});
  return operands;
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
