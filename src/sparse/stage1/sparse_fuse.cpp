#include <algorithm>

#include "base/check.h"
#include "sparse/stage1/primitives.h"

namespace weft::sparse {

Stage1 sparse_fuse(Stage1 program, const std::string& name, const std::vector<std::string>& fused) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorCode::invalid_argument, "sparse_fuse({}): {}", name, why);
  };
  const auto at = std::find_if(program.iterations.begin(), program.iterations.end(),
                               [&](const Iteration& i) { return i.name == name; });
  if (at == program.iterations.end()) refuse("there is no such iteration");
  if (fused.size() < 2) refuse("two axes or more are fused");
  if (const std::string problem = problem_of_nest(*at); !problem.empty()) refuse(problem);
  Iteration it = *at;
  size_t first = 0;  // the group that the first axis is
  while (first < it.axes.size() && it.axes[first] != std::vector<std::string>{fused[0]}) ++first;
  if (first == it.axes.size()) refuse(fmt::format("axis '{}' is none of the iteration, or is fused already", fused[0]));
  for (size_t a = 0; a < fused.size(); ++a)
    if (first + a >= it.axes.size() || it.axes[first + a] != std::vector<std::string>{fused[a]})
      refuse(fmt::format("axis '{}' does not follow the one before it in the iteration; sparse_reorder them first",
                         fused[a]));
  const auto begin = it.axes.begin() + static_cast<std::ptrdiff_t>(first);
  it.axes.erase(begin + 1, begin + static_cast<std::ptrdiff_t>(fused.size()));
  it.axes[first] = fused;

  size_t place = 0;
  for (size_t g = 0; g < first; ++g) place += it.axes[g].size();
  const std::string kinds = it.kinds.substr(place, fused.size());
  const bool mixed = kinds.find('S') != kinds.npos && kinds.find('R') != kinds.npos;
  Iteration init;
  if (mixed && !it.init.empty()) {
    init = init_of(*at);
    it.init.clear();
  }
  if (const std::string problem = problem_of(static_cast<const Declarations&>(program), it); !problem.empty())
    refuse(problem);
  *at = it;
  if (!init.name.empty()) program.iterations.insert(at, init);
  verify(program);
  return program;
}

}  // namespace weft::sparse
