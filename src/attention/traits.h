// What the planner must know of a kernel: its tile classes, costs, thresholds and intervals. Data, no code: the same
// planner serves every backend, and asks nobody else.
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
  attention::TileKind kind = attention::TileKind::direct;  // what its units are called in a plan
  int rows = 0;                                            // fused rows of a tile, at most
  // Serves only entries that one of its tiles holds, and goes before a class of as many rows that serves others too.
  bool one_tile = false;
  // An item carries every KV head (whole-token reads), else one. `balanced` may halve and quarter the heads of an
  // item where whole tokens are too coarse for the workers; the unit's KV-head range says what it carries.
  bool all_kv_heads = false;
  int most_states = std::numeric_limits<int>::max();  // of rows x heads in an item; fewer heads where all are more
  // Cost of an item over one KV head: row * rows + token * visible tokens + row_token * rows * visible + item.
  // A query token whose group has more rows than the largest class is one tile that the kernel walks in several.
  double row = 0, token = 0, row_token = 0, item = 0;
  // Of a plan whose largest tiles are these, where PlanInput::num_workers is 0: so many run at once.
  int default_workers = 0;
  int workers_of_fixed_splits = 0;  // the same of those, where another kernel runs them; 0: default_workers
};

// What the planner holds to be worth it. They follow from the machine as the costs do, so every backend sets
// those that have no value here.
struct PlanThresholds {
  // balanced: tiles dealt whole are not cut where the busiest worker is within this ratio to the lower bound.
  double level_enough = 0;
  // Nor where it is above the lower bound by no more than this, in the unit of costs: what cut tiles cost the busiest
  // worker, whose states are written, read and merged.
  double cut = 0;
  // balanced deals so many tiles for each worker at a time, the costliest of them first, so that what comes last levels
  // the workers and little is cut. 0: in the order of units.
  int dealt_at_once = 0;
  // balanced: of a batch with tiles of the fewest rows and of more, every other worker begins with those of the fewest.
  // They wait for memory, the others for products, so that both are busy at a time.
  bool alternates = false;
  // balanced cuts no share of a worker smaller than this, in the unit of costs: to merge what is cut takes longer.
  double least_share = 0;
  // balanced gives items fewer heads where whole tokens make fewer granules of keys than this for each worker.
  int granules_per_worker = 0;
  // levels_from_page_tables declines where shared levels cost more than this share of the plain plan: a smaller gain is
  // within what the costs miss.
  double shared_cost_at_most = 0;
  // Nor do levels pay that save each worker less than this, in the unit of costs: what levels add to a short
  // run, a start and merges at its end, is not in the costs of its rows.
  double least_saving = 0;
  // Of a fused row over one KV head that has one level more, in the unit of costs: its partial state and that of its
  // other level are written, read and merged.
  double merge_row = 0;
  int prefix_tree_depth = 0;  // of the tree of shared prefixes that is searched, at most
  // balanced cuts no unit that exceeds a worker's room by less than this share of the cap: a sliver costs more than it
  // levels.
  double least_sliver = 1. / 256;
  // balanced cuts units that are alike into the fewest chunks that give each worker one, where that is within this
  // share of the lower bound: more chunks would have to be merged.
  double few_chunks = 1. / 32;
};

struct KernelTraits {
  // 1 to kMaxTileClasses in any order, each of its own kind. An entry takes the one of fewest rows that holds it, else
  // the one of most rows that serves entries of several tiles.
  std::vector<TileClass> classes;
  PlanThresholds thresholds;
  int granule = 64;  // chunk borders are multiples of this many tokens
  int head_dim_vo = 0;
  bool use_softmax = true;
  bool item_records = false;  // plans hold a record of each item (attention/abi.h)
  // Kernels walk an item's KV heads one by one, so that heads which a worker takes whole may as well be one item.
  // `balanced` joins them: its work and bytes follow from requests and workers, not from heads.
  bool walks_heads = false;
  KvForm kv_form = KvForm::paged;
  int page_size = 0;                // that every plan has; 0: any
  Mask custom_mask = Mask::none;    // custom or custom_packed, of the spec or its variant: plans say where it lies
  std::vector<Interval> intervals;  // of mask and variant together, 0 to 2
  std::vector<ScalarArg> defaults;  // of scalars that intervals name, where plan is not given them
  // Hash of what a plan and its kernel must agree in: all of the above but thresholds and default workers, which decide
  // between plans that the kernel runs alike. Costs are in it, as whoever reads a plan counts by them. The order of
  // classes is not: a plan names kinds.
  uint64_t signature() const;

  const TileClass* find_class(attention::TileKind kind) const;  // null: there is none
  // Of a plan that has tiles of these kinds, which are bits: the fewest of any of them.
  int default_workers(int kinds, PlanMode mode) const;
  int most_default_workers() const;
};

// What traits have of the spec alone; tile classes, thresholds, granule and workers are the backend's.
KernelTraits traits_of(const AttentionSpec& spec);

namespace attention {
std::string_view to_string(TileKind kind);
}

// The scalars that bounds of these intervals name, each once, in the order of PlanHeader::scalars.
std::vector<std::string_view> interval_scalars(std::span<const Interval> intervals);
// What a plan was given for them. `intervals`: those of its kernel.
std::vector<ScalarArg> plan_scalars(std::span<const Interval> intervals, const attention::PlanHeader& plan);

}  // namespace weft
