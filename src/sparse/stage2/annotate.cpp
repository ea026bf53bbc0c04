#include "base/check.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

void annotate_number(Stmt& loop, const std::string& word, int64_t number) {
  std::erase_if(loop.annotations, [&](const std::string& other) { return other.starts_with(word); });
  loop.annotations.push_back(fmt::format("{}={}", word, number));
}

}  // namespace

void annotate(Stage2& stage, const std::string& name, const std::string& annotation, std::optional<int64_t> number) {
  const LoopInNest found = find_loop(stage, name);
  if (annotation == "dot") {
    int64_t extent = 0;
    if (!found.loop().reduction || !loop::is_integer(found.loop().value, &extent) || extent != 2)
      refuse("annotate", name, "dot: required is a reduction of two; split one by 2");
    found.loop().annotations.emplace_back("dot");
    return;
  }
  if (annotation == "stages") {
    if (found.loop().loop != loop::LoopKind::serial)
      refuse("annotate", name,
             fmt::format("stages: the loop is {}; required: a serial one", to_string(found.loop().loop)));
    const int64_t stages = number.value_or(2);
    if (stages < 2 || stages > 8) refuse("annotate", name, fmt::format("{} stages; 2 to 8 are allowed", stages));
    return annotate_number(found.loop(), annotation, stages);
  }
  if (annotation != "prefetch")
    refuse("annotate", name,
           fmt::format("'{}' means nothing to any generator; allowed are prefetch, stages and dot", annotation));
  const int64_t distance = number.value_or(8);
  if (distance < 1 || distance > 1024)
    refuse("annotate", name, fmt::format("prefetching {} iterations ahead; 1 to 1024 are allowed", distance));
  annotate_number(found.loop(), annotation, distance);
}

}  // namespace weft::sparse
