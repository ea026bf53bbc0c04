// What the planner must know of a kernel: its tile classes, costs and intervals. Data, no code: the same planner
// serves every backend.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "attention/abi.h"
#include "weft/attention.h"

namespace weft {

// Forms whose tokens are found through a page table.
constexpr bool has_page_table(KvForm form) { return form == KvForm::paged || form == KvForm::latent; }

// Rows are fused rows: query tokens x group size.
struct TileClass {
  int rows = 0;  // fused rows of a tile, at most
  // An item carries every KV head (whole-token reads), else one. `balanced` may halve and quarter the heads of an
  // item where whole tokens are too coarse for the workers; the unit's KV-head range says what it carries.
  bool all_kv_heads = false;
  int most_states = std::numeric_limits<int>::max();  // of rows x heads in an item; fewer heads where all are more
  // Cost of an item over one KV head: row * rows + token * visible tokens + row_token * rows * visible + item.
  // A query token whose group has more rows than the largest class is one tile that the kernel walks in several.
  double row = 0, token = 0, row_token = 0, item = 0;
};

struct KernelTraits {
  std::vector<TileClass> classes;  // by rows, ascending, 1 to kMaxTileClasses; entries take the first that holds them
  int granule = 64;                // chunk borders are multiples of this many tokens
  int head_dim_vo = 0;
  bool use_softmax = true;
  KvForm kv_form = KvForm::paged;
  std::vector<Interval> intervals;  // of mask and variant together, 0 to 2
  std::vector<ScalarArg> defaults;  // of scalars that intervals name, where plan is not given them
  uint64_t signature() const;       // hash of all of the above
};

// What traits have of the spec alone; tile classes, granule and costs are the backend's.
KernelTraits traits_of(const AttentionSpec& spec);

// The scalars that bounds of these intervals name, each once, in the order of PlanHeader::scalars.
std::vector<std::string_view> interval_scalars(std::span<const Interval> intervals);
// What a plan was given for them. `intervals`: those of its kernel.
std::vector<ScalarArg> plan_scalars(std::span<const Interval> intervals, const attention::PlanHeader& plan);

}  // namespace weft
