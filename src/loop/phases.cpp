#include <algorithm>

#include "loop/codegen/names.h"
#include "loop/passes.h"

namespace weft::loop {

const Stmt* Phase::parallel() const {
  const bool is_loop = !body.empty() && body[0].kind == Stmt::Kind::loop;
  return is_loop && body[0].loop == LoopKind::parallel ? &body[0] : nullptr;
}

namespace {

bool is_nest_of_ctas(const Stmt& stmt) { return stmt.kind == Stmt::Kind::loop && stmt.thread == "blockIdx.x"; }

bool has_bound_loop(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.loop == LoopKind::bind; });
  return found;
}

}  // namespace

bool Phase::is_side_by_side() const {
  return body.size() > 1 && std::all_of(body.begin(), body.end(), is_nest_of_ctas) && body[1].joined;
}

size_t end_of_memory(const Body& body, size_t memory) {
  size_t end = memory + 1;
  for (size_t i = end; i < body.size(); ++i)
    if (accesses({body[i]}, body[memory].name)) end = i + 1;
  for (size_t i = memory + 1; i < end; ++i)
    if (body[i].kind == Stmt::Kind::allocate) end = std::max(end, end_of_memory(body, i));
  return end;
}

std::vector<Phase> split_phases(const Function& function) {
  std::vector<Phase> phases;
  bool is_open = false;  // whether the last phase takes more statements
  for (size_t i = 0; i < function.body.size(); ++i) {
    const Stmt& stmt = function.body[i];
    if (stmt.kind == Stmt::Kind::allocate) {  // what was around it, a block or a loop of one iteration, is gone
      const auto begin = function.body.begin() + static_cast<std::ptrdiff_t>(i);
      const size_t end = end_of_memory(function.body, i);
      Body together(begin, function.body.begin() + static_cast<std::ptrdiff_t>(end));
      if (has_bound_loop(together)) {
        phases.push_back({std::move(together)});
        is_open = false;
        i = end - 1;
        continue;
      }
    }
    const bool parallel = stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::parallel;
    const bool binds = has_bound_loop({stmt});
    const bool follows_parallel = parallel && !phases.empty() && phases.back().parallel() != nullptr;
    const bool follows_nest = is_nest_of_ctas(stmt) && !phases.empty() && is_nest_of_ctas(phases.back().body.back());
    if (stmt.joined && (follows_parallel || follows_nest)) {
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
