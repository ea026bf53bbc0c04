#include "decode/fused/attention_items.h"

#include <algorithm>

#include "attention/plan/planner.h"
#include "base/check.h"

namespace weft::decode::fused {
namespace {

// All items cost the same, whatever tokens the last one of a request has: so they are dealt alike as long as there are
// as many.
KernelTraits traits_for(const Program& program, const Machine& machine, int window) {
  AttentionSpec spec;
  spec.head_dim_qk = spec.head_dim_vo = program.head_dim;
  spec.mask = Mask::causal;
  spec.sliding_window = window > 0;
  KernelTraits traits = traits_of(spec);
  const int group = program.num_qo_heads / program.num_kv_heads;
  traits.classes = {{.kind = attention::TileKind::direct,
                     .rows = kItemRows / group * group,
                     .item = 1,
                     .default_workers = machine.workers}};
  traits.thresholds.level_enough = 1;
  traits.thresholds.granules_per_worker = 1;
  traits.thresholds.shared_cost_at_most = 1;
  traits.thresholds.prefix_tree_depth = 1;
  traits.granule = machine.kv_chunk;
  return traits;
}

}  // namespace

std::pair<int, int> AttentionItems::appended_rows(const AttentionItem& item) const {
  const StepRequest& of = requests[static_cast<size_t>(item.request)];
  const int first = of.first_row - of.cached();  // token + first: its row
  const int begin = std::max(item.row_begin, item.kv_begin + first);
  return {begin, std::max(begin, std::min(item.row_end, item.kv_end + first))};
}

std::vector<int> AttentionItems::states_of(int row, int head, int group) const {
  std::vector<std::pair<int, int>> found;  // first key, state
  for (const AttentionItem& item : items) {
    if (row < item.row_begin || row >= item.row_end || head / group != item.kv_head) continue;
    found.emplace_back(item.kv_begin, item.first_state + (row - item.row_begin) * group + head % group);
  }
  std::ranges::sort(found);
  std::vector<int> states;
  for (const auto& [first_key, state] : found) states.push_back(state);
  return states;
}

AttentionItems attention_items(const Partition& partition, const Step& step, int window) {
  std::optional<Plan> plan;
  AttentionItems items;
  update_items(partition, step, window, plan, items);
  return items;
}

bool update_items(const Partition& partition, const Step& step, int window, std::optional<Plan>& plan,
                  AttentionItems& items) {
  const Program& program = partition.program;
  const Machine& machine = partition.machine;
  check(step.rows() >= 1 && step.rows() <= kMostRows, ErrorCode::unsupported,
        "the fused step: required {} rows; supported are 1 to {}; missing: kernels for others; run them by layers",
        step.rows(), kMostRows);
  PlanInput input{.num_qo_heads = program.num_qo_heads,
                  .num_kv_heads = program.num_kv_heads,
                  .qo_indptr = step.qo_indptr,
                  .pages = step.pages.get(),
                  .num_workers = machine.workers,
                  .mode = PlanMode::fixed_split,
                  .fixed_split_size = machine.kv_chunk,
                  .borrow_page_ids = true};
  // A plan covers lengths up to the end of their chunks.
  input.spare_pages = static_cast<int64_t>(step.qo_indptr.size()) * (machine.kv_chunk / input.pages.page_size + 1);
  if (window > 0) input.scalars = {{"window_left", static_cast<double>(window - 1)}};
  const bool plans = !plan || !plan->covers(input);
  if (plans)
    plan = Planner::plan(traits_for(program, machine, window), input);
  else
    plan->update(input);

  using namespace attention;
  const void* bytes = plan->impl().bytes.data();
  const PlanHeader& header = plan->impl().header();
  const auto* kv_len = section<int>(bytes, header.kv_len);
  const auto* qo_len = section<int>(bytes, header.qo_len);
  const auto* indptr = section<int>(bytes, header.worker_indptr);
  const auto* work = section<WorkItem>(bytes, header.items);
  const auto* units = section<Unit>(bytes, header.units);
  const auto* rows = section<PlanRow>(bytes, header.rows);
  items.requests.clear();
  items.items.clear();
  items.num_states = 0;
  for (int r = 0; r < header.num_requests; ++r)
    items.requests.push_back({step.qo_indptr[static_cast<size_t>(r)], qo_len[r], kv_len[r]});
  const int group = program.num_qo_heads / program.num_kv_heads;
  for (int i = 0; i < indptr[header.num_workers]; ++i) {
    const Unit& unit = units[work[i].unit];
    const PlanRow& first = rows[unit.row_begin];
    const AttentionItem item{.request = first.request,
                             .row_begin = first.q_row,
                             .row_end = first.q_row + unit.row_end - unit.row_begin,
                             .kv_head = unit.kv_head_begin,
                             .kv_begin = work[i].kv_begin,
                             .kv_end = std::min(work[i].kv_end, kv_len[first.request]),
                             .first_state = items.num_states};
    ensure(unit.kv_head_end == unit.kv_head_begin + 1 && item.kv_end - item.kv_begin <= machine.kv_chunk &&
               item.num_states(group) <= kItemRows,
           "an item of {} KV heads, {} rows and {} tokens", unit.kv_head_end - unit.kv_head_begin, item.num_rows(),
           item.kv_end - item.kv_begin);
    items.num_states += item.num_states(group);
    items.items.push_back(item);
  }
  // A plan may be for fewer workers than there are.
  items.worker_indptr.assign(indptr, indptr + header.num_workers + 1);
  items.worker_indptr.resize(static_cast<size_t>(machine.workers) + 1, static_cast<int32_t>(items.items.size()));
  return plans;
}

}  // namespace weft::decode::fused
