#include "weft/weight_type.h"

#include <iterator>

#include "base/enum_names.h"
#include "weft/error.h"

namespace weft {
namespace {

struct Entry {
  std::string_view name;
  WeightBlock block;
};
constexpr Entry kTypes[] = {
    {"F32", {1, 4}},
    {"F16", {1, 2}},
    {"BF16", {1, 2}},
    {"Q8_0", {32, 34, 1, {0}}},
    {"Q5_0", {32, 22, 1, {0}}},
    {"Q4_0", {32, 18, 1, {0}}},
    {"Q4_1", {32, 20, 2, {0, 2}}},
    {"Q4_K", {256, 144, 2, {0, 2}}},
    {"Q6_K", {256, 210, 1, {208}}},
    {"Q4_G128", {128, 66, 1, {0}}},
};
static_assert(std::size(kTypes) == kNumWeightTypes);

}  // namespace

std::string_view to_string(WeightType type) {
  const auto index = static_cast<size_t>(type);
  return index < std::size(kTypes) ? kTypes[index].name : kNoEnumerator;
}

const WeightBlock& weight_block(WeightType type) {
  const auto index = static_cast<size_t>(type);
  if (index >= std::size(kTypes)) throw InternalError("a weight type without blocks");
  return kTypes[index].block;
}

}  // namespace weft
