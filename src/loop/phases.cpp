#include "loop/codegen/names.h"
#include "loop/passes.h"

namespace weft::loop {

const Stmt* Phase::parallel() const {
  const bool is_loop = !body.empty() && body[0].kind == Stmt::Kind::loop;
  return is_loop && body[0].loop == LoopKind::parallel ? &body[0] : nullptr;
}

std::vector<Phase> split_phases(const Function& function) {
  std::vector<Phase> phases;
  bool is_open = false;  // whether the last phase takes more statements
  for (const Stmt& stmt : function.body) {
    const bool parallel = stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::parallel;
    bool binds = false;
    visit(Body{stmt}, [&](const Stmt& inner) { binds |= inner.loop == LoopKind::bind; });
    if (parallel && stmt.joined && !phases.empty() && phases.back().parallel() != nullptr) {
      phases.back().body.push_back(stmt);
      continue;
    }
    const bool alone = parallel || binds;
    if (alone || !is_open) phases.emplace_back();
    phases.back().body.push_back(stmt);
    is_open = !alone;
  }
  return phases;
}

Launches split_launches(const Function& function) {
  const Function renamed = with_free_names(function);
  return {renamed, split_phases(renamed)};
}

}  // namespace weft::loop
