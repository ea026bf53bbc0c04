#include <algorithm>

#include "sparse/stage1/primitives.h"

namespace weft::sparse {

SplitProgram split_preprocess(const Stage1& program) {
  SplitProgram split{program, program};
  split.preprocess.name += "_preprocess";
  split.preprocess.iterations.clear();
  split.compute.iterations.clear();
  for (const Iteration& it : program.iterations)
    (it.preprocess ? split.preprocess : split.compute).iterations.push_back(it);
  std::erase_if(split.preprocess.buffers, [&](const SparseBuffer& buffer) {
    const auto accesses = [&](const Iteration& it) { return loop::accesses(it.body, buffer.name); };
    const auto& all = split.preprocess.iterations;
    return buffer.temporary && std::none_of(all.begin(), all.end(), accesses);
  });
  return split;
}

}  // namespace weft::sparse
