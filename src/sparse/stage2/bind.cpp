#include <algorithm>
#include <functional>
#include <iterator>

#include "base/check.h"
#include "loop/threads.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// Threads add up one sum, target = target + x, or find the largest or least x: one for all their iterations, or one for
// each iteration of spatial loops within, whose extents are literals.
std::string problem_of_thread_sum(const Stmt& loop, const std::string& thread) {
  const std::string is_reduction = "it is a reduction, whose iterations add to the same elements; ";
  if (thread != "threadIdx.x") return is_reduction + "use threadIdx.x, rfactor or atomic";
  const Stmt* store = nullptr;
  int num_stores = 0;
  Names inside{loop.name};
  const std::function<void(const Body&)> look = [&](const Body& body) {  // init will stand before the loop
    for (const Stmt& stmt : body) {
      if (stmt.kind == Stmt::Kind::store) store = &stmt, ++num_stores;
      const bool is_loop = stmt.kind == Stmt::Kind::loop;
      const bool has_sums = is_loop && !stmt.reduction && loop::is_integer(stmt.value);
      if ((is_loop || stmt.kind == Stmt::Kind::let) && !has_sums) inside.insert(stmt.name);
      look(stmt.body);
    }
  };
  look(loop.body);
  if (num_stores != 1)
    return fmt::format("{}threads add up one sum, and {} elements are stored within", is_reduction, num_stores);
  const std::string target = loop::to_words(loop::load(store->name, store->indices, Type::real));
  if (!loop::is_combined(*store))
    return fmt::format("{0}threads add up a sum of the form {1} = {1} + x, or max({1}, x), or min({1}, x)",
                       is_reduction, target);
  for (const Expr& index : store->indices)
    for (const std::string& name : inside)
      if (loop::uses(index, name))
        return fmt::format("{}'{}' within it says where; put the reduction inside", is_reduction, name);
  if (loop::num_loads(loop.body, store->name) != 1)
    return fmt::format("{}threads add up a sum of what does not depend on it, and '{}' is read elsewhere within",
                       is_reduction, store->name);
  return {};
}

}  // namespace

std::string problem_of_binding(const Stage2& stage, const LoopInNest& found, const std::string& thread) {
  const Stmt& loop = found.loop();
  if (loop.reduction && !adds_atomically(loop.body)) return problem_of_thread_sum(loop, thread);
  return problem_of_sharing(stage, found);
}

void bind(Stage2& stage, const std::string& name, const std::string& thread) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("bind", found);
  constexpr const char* kThreads[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                      "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  if (std::find(std::begin(kThreads), std::end(kThreads), thread) == std::end(kThreads))
    refuse("bind", name, fmt::format("'{}' is no thread axis; allowed are blockIdx and threadIdx, .x to .z", thread));
  for (const Stmt* other : found.nest.loops())
    if (other->thread == thread)
      refuse("bind", name, fmt::format("loop '{}' is bound to {} already", other->name, thread));
  if (const std::string problem = problem_of_binding(stage, found, thread); !problem.empty())
    refuse("bind", name, problem);
  loop.loop = LoopKind::bind;
  loop.thread = thread;
}

}  // namespace weft::sparse
