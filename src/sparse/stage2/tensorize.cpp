// Three loops as one routine of the generator. Conditions between them go: what they leave out is multiplied as 0.
#include <optional>

#include "base/check.h"
#include "loop/threads/fragments.h"
#include "sparse/stage2/padding.h"
#include "sparse/stage2/primitives.h"
#include "sparse/stage2/product.h"

namespace weft::sparse {
namespace {

Stmt& memory_named(Stage2& stage, const LoopInNest& found, const std::string& name, loop::Scope scope,
                   const char* made_by) {
  Stmt* memory = nullptr;
  visit(stage.body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::allocate && stmt.name == name && stmt.scope == scope) memory = &stmt;
  });
  if (memory == nullptr)
    refuse("tensorize", found.name,
           fmt::format("mma: '{}' does not lie in memory of scope {}; {} makes some", name, to_string(scope), made_by));
  return *memory;
}

// The type that memory has copies of: nothing else is stored there but 0. Of memory that holds 16 bits, that.
DType copied_type(const Stage2& stage, const LoopInNest& found, const Stmt& allocation) {
  const std::string& memory = allocation.name;
  if (loop::is_narrow(allocation.dtype)) return allocation.dtype;
  std::optional<DType> dtype;
  bool is_copy = true;
  visit(stage.body, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::store || stmt.name != memory) return;
    const Expr& value = stmt.value->op == Op::select ? stmt.value->operands[1] : stmt.value;
    const bool is_zero_else = stmt.value->op != Op::select ||
                              (stmt.value->operands[2]->op == Op::real_literal && stmt.value->operands[2]->real == 0);
    const SparseBuffer* buffer = value->op == Op::load ? stage.find_buffer(value->name) : nullptr;
    is_copy &= is_zero_else && buffer != nullptr && (!dtype || *dtype == buffer->dtype);
    if (buffer != nullptr) dtype = buffer->dtype;
  });
  if (allocation.dtype == DType::fp32 && !(is_copy && dtype && loop::is_narrow(*dtype))) return DType::fp32;
  if (!is_copy || !dtype || !loop::is_narrow(*dtype))
    refuse("tensorize", found.name,
           fmt::format("mma: '{}' holds {}; required: numbers of bf16, fp16 or fp32", memory,
                       weft::to_string(allocation.dtype)));
  return *dtype;
}

// Sums stay where they are, in a fragment, and factors in shared memory, which from now on holds copies of numbers of
// 16 bits as these.
void annotate_mma(Stage2& stage, const LoopInNest& found, const Product& product, Padding& padding) {
  memory_named(stage, found, product.c->name, loop::Scope::fragment, "cache_write");
  const auto extent = [&](const std::string& variable) {
    int64_t value = 0;
    loop::is_integer(product.extent_of(variable), &value);
    return value;
  };
  if (!loop::fragment_of(extent(product.m), extent(product.n)) || extent(product.k) % loop::kTileDepth != 0)
    refuse(
        "tensorize", found.name,
        fmt::format("mma: it is a product of {} x {} x {}; required: {}, and a reduction of a multiple of {}",
                    extent(product.m), extent(product.n), extent(product.k), loop::kFragmentShapes, loop::kTileDepth));
  if (const Expr read = padding.read_where_left_out())
    refuse("tensorize", found.name,
           fmt::format("mma: a condition leaves some of its sums out, and {} may be one of them; required: conditions "
                       "of factors, or sums that are read where the condition holds",
                       loop::to_words(read)));
  std::vector<DType> types;
  for (const Expr& factor : {padding.factor_in_memory(product.a, product.m, product.k),
                             padding.factor_in_memory(product.b, product.k, product.n)}) {
    Stmt& memory = memory_named(stage, found, factor->name, loop::Scope::shared, "cache_read");
    memory.dtype = copied_type(stage, found, memory);
    types.push_back(memory.dtype);
  }
  if (types[0] != types[1])
    refuse("tensorize", found.name,
           fmt::format("mma: its factors are of {} and {}; required: one type", weft::to_string(types[0]),
                       weft::to_string(types[1])));
  Stmt routine = product.nest_of(product.c, product.a, product.b);
  routine.annotations.emplace_back("mma");
  const Nest::Level& level = found.nest.path[found.place];
  Stmt& place = (*level.body)[level.index];
  if (const Expr around = all_hold(product.conditions_around()))
    place = loop::make_condition(around, {std::move(routine)});
  else
    place = std::move(routine);
}

}  // namespace

void tensorize(Stage2& stage, const std::string& name, const std::string& intrinsic) {
  Stage2 made = stage;  // a refusal leaves the stage as it was
  const LoopInNest found = find_loop(made, name);
  if (intrinsic != "product" && intrinsic != "mma")
    refuse("tensorize", name,
           fmt::format("'{}' is no intrinsic; allowed are product and mma: c[m, n] = c[m, n] + a[m, k] * b[k, n]",
                       intrinsic));
  const Product product = product_at(found);
  Padding padding(made, found, product);
  if (intrinsic == "mma") {
    annotate_mma(made, found, product, padding);
    stage = std::move(made);
    return;
  }
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
