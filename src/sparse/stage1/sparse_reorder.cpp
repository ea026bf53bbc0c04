#include <algorithm>

#include "base/check.h"
#include "sparse/stage1/primitives.h"
#include "sparse/stage2/nest.h"

namespace weft::sparse {

namespace {

// Two accesses that would run in another order, asked of the loops that lowering makes of the iteration alone.
std::string problem_of_order(const Stage1& program, const Iteration& it, const std::vector<std::string>& order) {
  Stage1 alone{{static_cast<const Declarations&>(program)}, {it}};
  Stage2 stage = materialise_auxiliaries(alone);
  lower_iterations(alone, stage);
  const Nest nest = find_block(stage, it.name);
  std::vector<std::string> from, to;
  for (const Stmt* loop : nest.loops()) from.push_back(loop->name);
  for (const std::string& iterator : order)  // an axis of one position has no loop
    if (nest.find(iterator) < nest.path.size()) to.push_back(iterator);
  if (from.empty()) return {};
  return Dependences(stage, nest.around(0), {&nest.path[0].stmt()}).problem_of_order(from, to);
}

}  // namespace

Stage1 sparse_reorder(Stage1 program, const std::string& name, const std::vector<std::string>& order) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::invalid_argument, "sparse_reorder({}): {}", name, why);
  };
  const Iteration* found = program.find_iteration(name);
  if (found == nullptr) refuse("there is no such iteration");
  if (const std::string problem = problem_of_nest(*found); !problem.empty()) refuse(problem);
  Iteration it = *found;
  const std::vector<std::string> axes = it.flat_axes();
  for (const auto& group : it.axes)
    if (group.size() > 1) refuse("axes of the iteration are fused; reorder before sparse_fuse");
  if (order.size() != axes.size() || !std::is_permutation(order.begin(), order.end(), axes.begin()))
    refuse(fmt::format("the order names {} axes; it has to name each of the iteration's {} once", order.size(),
                       axes.size()));
  Iteration result = it;
  result.axes.clear();
  result.kinds.clear();
  result.iterators.clear();
  for (const std::string& axis : order) {
    const auto place = static_cast<size_t>(std::find(axes.begin(), axes.end(), axis) - axes.begin());
    result.axes.push_back({axis});
    result.kinds += it.kinds[place];
    result.iterators.push_back(it.iterators[place]);
  }
  Declarations declared = program;
  if (const std::string problem = problem_of(declared, result); !problem.empty()) refuse(problem);
  if (const std::string problem = problem_of_order(program, it, result.iterators); !problem.empty()) refuse(problem);
  *std::find_if(program.iterations.begin(), program.iterations.end(),
                [&](const Iteration& i) { return i.name == name; }) = result;
  return program;
}

}  // namespace weft::sparse
