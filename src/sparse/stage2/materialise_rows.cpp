#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// upper_bound(indptr[0, ...], rows, place) - 1, which sparse_fuse makes of a row; null for anything else.
const Expr* search_of_row(const Stmt& stmt) {
  if (stmt.kind != Stmt::Kind::let || stmt.value->op != Op::subtract || !loop::is_literal(stmt.value->operands[1], 1))
    return nullptr;
  const Expr& search = stmt.value->operands[0];
  return search->op == Op::upper_bound ? &search : nullptr;
}

}  // namespace

void materialise_rows(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  bool is_fused = false;
  visit(found.loop().body, [&](Stmt& stmt) {
    const Expr* search = search_of_row(stmt);
    if (search == nullptr) return;
    is_fused = true;
    const Axis* const searched = stage.axis_of_indptr((*search)->name);
    ensure(searched != nullptr, "materialise_rows: '{}' is no indptr", (*search)->name);
    for (Axis& axis : stage.axes) {
      if (axis.name != searched->name) continue;
      if (axis.rows.empty()) {
        axis.rows = loop::fresh_name(axis.name + "_rows", taken_names(stage));
        stage.auxiliaries.push_back({axis.rows, axis.name, Auxiliary::Kind::rows});
      }
      stmt.value = loop::load(axis.rows, {(*search)->operands.back()}, Type::integer);
      break;
    }
  });
  if (!is_fused) refuse("materialise_rows", name, "no row is searched for within it, as in a loop over fused axes");
}

}  // namespace weft::sparse
