#include "base/check.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// The indptr that says how much an iteration does: some inner loop runs from indptr[v] to indptr[v + 1].
std::string balance_of(const Stage2& stage, const Stmt& loop) {
  std::string balance;
  const Expr v = loop::variable(loop.name);
  visit(loop.body, [&](const Stmt& stmt) {
    if (!balance.empty() || stmt.kind != Stmt::Kind::loop || stmt.value->op != Op::subtract) return;
    const Expr &next = stmt.value->operands[0], &from = stmt.value->operands[1];
    if (next->op != Op::load || from->op != Op::load || next->name != from->name) return;
    const Auxiliary* array = stage.find_auxiliary(from->name);
    if (array == nullptr || array->kind != Auxiliary::Kind::indptr || !(from->operands.back() == v)) return;
    // Only where the ancestors' positions make the offset v itself.
    for (size_t i = 0; i + 1 < from->operands.size(); ++i)
      if (!loop::is_literal(from->operands[i], 0)) return;
    balance = from->name;
  });
  return balance;
}

}  // namespace

void parallel(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("parallel", found);
  if (loop.reduction && !adds_atomically(loop.body))
    refuse("parallel", name,
           "it is a reduction, whose iterations add to the same elements; use rfactor, atomic, or a spatial loop");
  if (found.place != 0)
    refuse(
        "parallel", name,
        fmt::format("it stands within {}; the team shares an outermost loop",
                    found.nest.path[0].stmt().kind == Stmt::Kind::loop ? "loop '" + found.nest.path[0].stmt().name + "'"
                                                                       : "a condition"));
  check_apart("parallel", stage, found);
  loop.loop = LoopKind::parallel;
  loop.balance = balance_of(stage, loop);
}

}  // namespace weft::sparse
