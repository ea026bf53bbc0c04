#include "attention/traits.h"

#include <algorithm>

#include "attention/spec.h"
#include "attention/variant/text.h"
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

std::vector<std::string_view> interval_scalars(std::span<const Interval> intervals) {
  std::vector<std::string_view> names;
  for (const Interval& interval : intervals)
    for (const std::vector<Bound>* side : {&interval.lower, &interval.upper})
      for (const Bound& bound : *side)
        if (!bound.scalar.empty() && std::find(names.begin(), names.end(), bound.scalar) == names.end())
          names.push_back(bound.scalar);
  return names;
}

std::vector<ScalarArg> plan_scalars(std::span<const Interval> intervals, const attention::PlanHeader& plan) {
  std::vector<ScalarArg> scalars;
  for (const std::string_view name : interval_scalars(intervals))
    scalars.push_back({std::string(name), static_cast<double>(plan.scalars[scalars.size()])});
  return scalars;
}

KernelTraits traits_of(const AttentionSpec& spec) {
  KernelTraits traits;
  traits.head_dim_vo = spec.head_dim_vo;
  traits.use_softmax = spec.variant.use_softmax;
  traits.kv_form = spec.kv_form;
  traits.page_size = spec.page_size;
  traits.custom_mask = leaf_parts(spec).mask;
  traits.intervals = combined_intervals(spec);
  const std::vector<std::string_view> named = interval_scalars(traits.intervals);
  for (const ScalarDecl& scalar : spec.variant.scalars)
    if (scalar.default_value && std::find(named.begin(), named.end(), scalar.name) != named.end())
      traits.defaults.push_back({scalar.name, *scalar.default_value});
  return traits;
}

const TileClass* KernelTraits::find_class(attention::TileKind kind) const {
  const auto found = std::find_if(classes.begin(), classes.end(), [&](const TileClass& c) { return c.kind == kind; });
  return found == classes.end() ? nullptr : &*found;
}

int KernelTraits::default_workers(int kinds, PlanMode mode) const {
  int fewest = most_default_workers();
  for (const TileClass& c : classes)
    if ((kinds & 1 << static_cast<int>(c.kind)) != 0) {
      const bool differs = mode == PlanMode::fixed_split && c.workers_of_fixed_splits > 0;
      fewest = std::min(fewest, differs ? c.workers_of_fixed_splits : c.default_workers);
    }
  return fewest;
}

int KernelTraits::most_default_workers() const {
  int most = 0;
  for (const TileClass& c : classes) most = std::max(most, c.default_workers);
  return most;
}

std::string_view attention::to_string(TileKind kind) {
  switch (kind) {
    case TileKind::direct: return "direct";
    case TileKind::streamed: return "streamed";
    case TileKind::packed: return "packed";
  }
  return "unknown";
}

uint64_t KernelTraits::signature() const {
  Hash64 hash;
  uint64_t sum_of_classes = 0;  // the same in any order
  for (const TileClass& c : classes) {
    Hash64 of_class;
    of_class.add(c.kind).add(c.rows).add(static_cast<int>(c.one_tile));
    of_class.add(static_cast<int>(c.all_kv_heads)).add(c.most_states);
    of_class.add(c.row).add(c.token).add(c.row_token).add(c.item);
    sum_of_classes += of_class.value();
  }
  hash.add(classes.size()).add(sum_of_classes);
  hash.add(granule).add(head_dim_vo).add(static_cast<int>(use_softmax)).add(static_cast<int>(kv_form));
  if (page_size > 0) hash.add(page_size);
  if (custom_mask != Mask::none) hash.add(static_cast<int>(custom_mask));
  if (item_records) hash.add(sizeof(attention::ItemRecord));
  if (walks_heads) hash.add(1);
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
