#include <algorithm>

#include "base/check.h"
#include "sparse/stage1/primitives.h"

namespace weft::sparse {

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
  *std::find_if(program.iterations.begin(), program.iterations.end(),
                [&](const Iteration& i) { return i.name == name; }) = result;
  return program;
}

}  // namespace weft::sparse
