// parallel, vectorize, unroll, bind, annotate: how a loop runs.
#include <algorithm>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

using loop::LoopKind;

Stmt& serial_loop(const std::string& primitive, const LoopInNest& found) {
  if (found.loop().loop != LoopKind::serial)
    refuse(primitive, found.name, fmt::format("the loop is {} already", loop::to_string(found.loop().loop)));
  return found.loop();
}

// Different iterations write different elements where the loop is spatial, unless a loaded index may be the same twice:
// those of a structure are checked to be unique, others are not.
void check_writes_apart(const std::string& primitive, const Stage2& stage, const LoopInNest& found) {
  visit(found.loop().body, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::store || stage.find_buffer(stmt.name) == nullptr) return;
    for (const Expr& index : stmt.indices)
      loop::visit(index, [&](const Expr& e) {
        if (e->op == Op::load && stage.find_auxiliary(e->name) == nullptr && loop::uses(e, found.variable))
          refuse(primitive, found.name,
                 fmt::format("'{}' is written at {}, which may be the same in two iterations", stmt.name,
                             loop::to_text(e)));
      });
  });
}

// The indptr that says how much an iteration does: some inner loop runs from indptr[v] to indptr[v + 1].
std::string balance_of(const Stage2& stage, const Stmt& loop) {
  std::string balance;
  const Expr v = loop::variable(loop.name);
  visit(loop.body, [&](const Stmt& stmt) {
    if (!balance.empty() || stmt.kind != Stmt::Kind::loop || stmt.value->op != Op::subtract) return;
    const Expr &next = stmt.value->operands[0], &from = stmt.value->operands[1];
    if (next->op != Op::load || from->op != Op::load || next->name != from->name) return;
    const Auxiliary* array = stage.find_auxiliary(from->name);
    if (array == nullptr || !array->is_indptr || !(from->operands.back() == v)) return;
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
  if (loop.reduction)
    refuse("parallel", name,
           "it is a reduction, whose iterations add to the same elements; use rfactor, or a spatial loop");
  if (found.place != 0)
    refuse(
        "parallel", name,
        fmt::format("it stands within {}; the team shares an outermost loop",
                    found.nest.path[0].stmt().kind == Stmt::Kind::loop ? "loop '" + found.nest.path[0].stmt().name + "'"
                                                                       : "a condition"));
  check_writes_apart("parallel", stage, found);
  loop.loop = LoopKind::parallel;
  loop.balance = balance_of(stage, loop);
}

void vectorize(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("vectorize", found);
  const int64_t extent = literal_extent("vectorize", found);
  if (extent < 2 || extent > 64 || (extent & (extent - 1)) != 0)
    refuse("vectorize", name, fmt::format("its extent is {}; 2, 4, 8, 16, 32 and 64 are allowed", extent));
  if (loop.reduction)
    refuse("vectorize", name,
           "it is a reduction; rfactor makes partial sums of it, one a lane, and a loop to vectorise");
  for (size_t i = found.place + 1; i < found.nest.path.size(); ++i)
    if (found.nest.path[i].stmt().kind == Stmt::Kind::loop)
      refuse("vectorize", name,
             fmt::format("loop '{}' stands within it; reorder first, a vector is innermost",
                         found.nest.path[i].stmt().name));
  check_writes_apart("vectorize", stage, found);
  loop.loop = LoopKind::vectorize;
}

void unroll(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("unroll", found);
  const int64_t extent = literal_extent("unroll", found);
  if (extent > 64) refuse("unroll", name, fmt::format("its extent is {}; at most 64 are allowed", extent));
  loop.loop = LoopKind::unroll;
}

void bind(Stage2& stage, const std::string& name, const std::string& thread) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("bind", found);
  constexpr const char* kThreads[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                      "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  if (std::find(std::begin(kThreads), std::end(kThreads), thread) == std::end(kThreads))
    refuse("bind", name, fmt::format("'{}' is no thread axis; allowed are blockIdx and threadIdx, .x to .z", thread));
  if (loop.reduction) refuse("bind", name, "it is a reduction, whose iterations add to the same elements; use rfactor");
  for (const Stmt* other : found.nest.loops())
    if (other->thread == thread)
      refuse("bind", name, fmt::format("loop '{}' is bound to {} already", other->name, thread));
  check_writes_apart("bind", stage, found);
  loop.loop = LoopKind::bind;
  loop.thread = thread;
}

void annotate(Stage2& stage, const std::string& name, const std::string& annotation) {
  const LoopInNest found = find_loop(stage, name);
  if (annotation != "prefetch")
    refuse("annotate", name, fmt::format("'{}' means nothing to any generator; allowed is prefetch", annotation));
  auto& list = found.loop().annotations;
  if (std::find(list.begin(), list.end(), annotation) == list.end()) list.push_back(annotation);
}

}  // namespace weft::sparse
