#include "base/check.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {

void annotate(Stage2& stage, const std::string& name, const std::string& annotation, int64_t distance) {
  const LoopInNest found = find_loop(stage, name);
  if (annotation == "dot") {
    int64_t extent = 0;
    if (!found.loop().reduction || !loop::is_integer(found.loop().value, &extent) || extent != 2)
      refuse("annotate", name, "dot: required is a reduction of two; split one by 2");
    found.loop().annotations.emplace_back("dot");
    return;
  }
  if (annotation != "prefetch")
    refuse("annotate", name,
           fmt::format("'{}' means nothing to any generator; allowed are prefetch and dot", annotation));
  if (distance < 1 || distance > 1024)
    refuse("annotate", name, fmt::format("prefetching {} iterations ahead; 1 to 1024 are allowed", distance));
  auto& list = found.loop().annotations;
  std::erase_if(list, [](const std::string& word) { return word.starts_with("prefetch"); });
  list.push_back(fmt::format("prefetch={}", distance));
}

}  // namespace weft::sparse
