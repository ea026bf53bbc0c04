#include "tests/attention/plan/plan_support.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::test {

PlanInput Batch::input() {
  const size_t n = qo.size();
  qo_indptr.assign(n + 1, 0);
  kv_indptr.assign(n + 1, 0);
  last_page_len.assign(n, 0);
  kv_len.assign(kv.begin(), kv.end());
  for (size_t r = 0; r < n; ++r) {
    qo_indptr[r + 1] = qo_indptr[r] + qo[r];
    const int pages = (kv[r] + page_size - 1) / page_size;
    kv_indptr[r + 1] = kv_indptr[r] + (form == KvForm::paged ? pages : kv[r]);
    last_page_len[r] = kv[r] == 0 ? 0 : (kv[r] - 1) % page_size + 1;
  }
  PlanInput in;
  in.num_qo_heads = num_qo_heads;
  in.num_kv_heads = num_kv_heads;
  in.qo_indptr = qo_indptr;
  in.num_workers = workers;
  in.mode = mode;
  in.fixed_split_size = fixed_split_size;
  in.scalars = scalars;
  in.bounds = bounds;
  in.spare_pages = spare_pages;
  in.borrow_page_ids = borrow_page_ids;
  if (form == KvForm::paged) {
    page_ids.resize(static_cast<size_t>(kv_indptr[n]));
    for (size_t i = 0; i < page_ids.size(); ++i) page_ids[i] = static_cast<int32_t>(page_ids.size() - 1 - i);
    in.pages = {page_size, std::max<int64_t>(num_pages, kv_indptr[n]), kv_indptr, page_ids, last_page_len};
  } else if (form == KvForm::ragged) {
    in.kv_indptr = kv_indptr;
  } else {
    in.kv_len = kv_len;
    in.max_kv_len = max_kv_len > 0 || kv.empty() ? max_kv_len : *std::max_element(kv.begin(), kv.end());
  }
  return in;
}

std::vector<Interval> intervals_of(Keys keys) {
  const Bound after_query{.q_pos = true, .constant = 1};
  const Bound window{.q_pos = true, .scalar = "window_left", .scalar_sign = -1};
  switch (keys) {
    case Keys::all: return {};
    case Keys::causal: return {{{}, {after_query}}};
    case Keys::window: return {{{window}, {after_query}}};
    case Keys::sink_and_window: return {{{}, {{.constant = 4}, after_query}}, {{window}, {after_query}}};
    case Keys::prefix: return {{{}, {{.scalar = "prefix"}}}};
  }
  return {};
}

std::vector<ScalarArg> scalars_of(Keys keys, int window_left) {
  if (keys == Keys::window || keys == Keys::sink_and_window) return {{"window_left", static_cast<double>(window_left)}};
  if (keys == Keys::prefix) return {{"prefix", static_cast<double>(window_left)}};
  return {};
}

bool sees(Keys keys, int window_left, int qo_len, int kv_len, int idx, int t) {
  const int pos = kv_len - qo_len + idx;
  if (t < 0 || t >= kv_len) return false;
  const bool in_window = window_left == -1 || t >= pos - window_left;
  switch (keys) {
    case Keys::all: return true;
    case Keys::causal: return t <= pos;
    case Keys::window: return t <= pos && in_window;
    case Keys::sink_and_window: return t <= pos && (t < 4 || in_window);
    case Keys::prefix: return window_left == -1 || t < window_left;
  }
  return false;
}

KernelTraits cpu_like_traits(Keys keys, KvForm form) {
  KernelTraits traits;
  using attention::TileKind;
  traits.classes = {
      {.kind = TileKind::direct, .rows = 16, .all_kv_heads = true, .row = 8, .token = 40, .row_token = 6, .item = 300},
      {.kind = TileKind::streamed, .rows = 64, .row = 8, .token = 60, .row_token = 5, .item = 300},
      {.kind = TileKind::packed, .rows = 128, .row = 8, .token = 60, .row_token = 4.5, .item = 300}};
  traits.thresholds = {.level_enough = 1.02,
                       .granules_per_worker = 16,
                       .shared_cost_at_most = 0.8,
                       .merge_row = 24,
                       .prefix_tree_depth = 16};
  for (TileClass& c : traits.classes) c.default_workers = 3;
  traits.granule = 64;
  traits.head_dim_vo = 128;
  traits.kv_form = form;
  traits.intervals = intervals_of(keys);
  return traits;
}

KernelTraits per_head_traits(Keys keys, KvForm form) {
  KernelTraits traits = cpu_like_traits(keys, form);
  for (TileClass& c : traits.classes) c.all_kv_heads = false;
  traits.item_records = traits.walks_heads = true;
  return traits;
}

Reached reached_by(const Plan& plan) {
  using namespace attention;
  const char* base = plan.impl().bytes.data();
  const PlanHeader& h = plan.impl().header();
  const auto* units = section<Unit>(base, h.units);
  const auto* items = section<WorkItem>(base, h.items);
  const auto* rows = section<PlanRow>(base, h.rows);
  const auto* lists = section<PageList>(base, h.page_lists);
  const int* kv_len = section<int>(base, h.kv_len);
  Reached reached;
  reached.heads = h.num_kv_heads;
  reached.longest = h.num_requests == 0 ? 0 : *std::max_element(kv_len, kv_len + h.num_requests);
  reached.count.assign(static_cast<size_t>(h.num_rows_q) * reached.heads * reached.longest, 0);
  for (long long i = 0; i < h.items.count; ++i) {
    const Unit& unit = units[items[i].unit];
    const PageList& list = lists[unit.page_list];
    const int end = std::min(items[i].kv_end, list.len < 0 ? kv_len[list.request] - list.first_pos : list.len);
    for (int row = unit.row_begin; row < unit.row_end; ++row)
      for (int head = unit.kv_head_begin; head < unit.kv_head_end; ++head)
        for (int t = list.first_pos + items[i].kv_begin; t < list.first_pos + end; ++t)
          ++reached.count[(static_cast<size_t>(rows[row].q_row) * reached.heads + head) * reached.longest + t];
  }
  return reached;
}

std::vector<int> draw_lengths(Lengths kind, int requests, std::mt19937& random) {
  std::vector<int> lengths(static_cast<size_t>(requests), 1024);
  if (kind == Lengths::uniform)
    for (int& n : lengths) n = 512 + static_cast<int>(random() % 1025);
  if (kind == Lengths::zipf) {
    double sum = 0;
    for (int i = 0; i < requests; ++i) sum += 1.0 / (i + 1);
    for (int i = 0; i < requests; ++i) lengths[i] = std::max(1, static_cast<int>(1024.0 * requests / sum / (i + 1)));
    std::shuffle(lengths.begin(), lengths.end(), random);
  }
  if (kind == Lengths::one_long) lengths[lengths.size() / 2] = 131072;
  return lengths;
}

std::string name_of(Lengths kind) {
  switch (kind) {
    case Lengths::constant: return "constant";
    case Lengths::uniform: return "uniform";
    case Lengths::zipf: return "zipf";
    case Lengths::one_long: return "one_long";
  }
  return "";
}

std::string bytes_of(const Plan& plan) { return {plan.impl().bytes.data(), plan.impl().bytes.size()}; }

}  // namespace weft::test
