#include "attention/traits.h"

#include <algorithm>

#include "base/hash.h"

namespace weft {
namespace {

void add(Hash64& hash, const std::vector<Bound>& bounds) {
  hash.add(bounds.size());
  for (const Bound& bound : bounds) {
    hash.add(static_cast<int>(bound.q_pos)).add(static_cast<int>(bound.kv_len)).add(bound.constant);
    hash.add(bound.scalar_sign).add(bound.scalar.size()).add_bytes(bound.scalar);
  }
}

}  // namespace

bool name_scalar(std::span<const Interval> intervals, std::string_view scalar) {
  const auto names = [&](const Bound& bound) { return bound.scalar == scalar; };
  return std::any_of(intervals.begin(), intervals.end(), [&](const Interval& interval) {
    return std::any_of(interval.lower.begin(), interval.lower.end(), names) ||
           std::any_of(interval.upper.begin(), interval.upper.end(), names);
  });
}

uint64_t KernelTraits::signature() const {
  Hash64 hash;
  hash.add(classes.size());
  for (const TileClass& c : classes) {
    hash.add(c.rows).add(static_cast<int>(c.all_kv_heads)).add(c.most_states);
    hash.add(c.row).add(c.token).add(c.row_token).add(c.item);
  }
  hash.add(granule).add(head_dim_vo).add(static_cast<int>(use_softmax)).add(static_cast<int>(kv_form));
  hash.add(intervals.size());
  for (const Interval& interval : intervals) {
    add(hash, interval.lower);
    add(hash, interval.upper);
  }
  hash.add(defaults.size());
  for (const ScalarArg& scalar : defaults) hash.add(scalar.name.size()).add_bytes(scalar.name).add(scalar.value);
  return hash.value();
}

}  // namespace weft
