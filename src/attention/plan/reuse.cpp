// The same plan for other lengths.
#include <algorithm>
#include <cstring>

#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft {

using namespace attention;
using namespace planner;

namespace {

// The input in the terms of the plan; throws for what plan would refuse as well.
Problem same_terms(const Plan::Impl& impl, const PlanInput& input, PlanBuilder& builder) {
  PlanInput relaxed = input;
  relaxed.bounds = nullptr;  // the plan's own room is what counts
  if (relaxed.num_workers == 0) relaxed.num_workers = impl.header().num_workers;
  const Problem problem = check_input(impl.traits, relaxed, builder);
  lay_entries(problem, builder);
  check_mask(problem, builder);
  return problem;
}

// The same rows at the same places of every level, and the same tokens of all but the last one.
bool same_entries(const Plan::Impl& impl, const Problem& p, const PlanBuilder& builder) {
  const PlanHeader& header = impl.header();
  if (p.num_levels != header.num_levels || static_cast<int64_t>(builder.entries.size()) != header.page_lists.count)
    return false;
  if (p.plain) return true;  // requests and their rows are compared one by one
  const PageList* list = section<PageList>(impl.bytes.data(), header.page_lists);
  const PlanRow* rows = section<PlanRow>(impl.bytes.data(), header.rows);
  for (int place = 0; place < p.num_requests; ++place)
    for (int row = builder.row_indptr[place]; row < builder.row_indptr[place + 1]; ++row)
      if (rows[row].request != p.request_at(place)) return false;
  for (const Entry& entry : builder.entries) {
    if (entry.level != list->level || entry.row_begin != list->row_begin || entry.row_end != list->row_end ||
        entry.first_pos != list->first_pos || (list->len >= 0 && entry.len != list->len))
      return false;
    ++list;
  }
  return true;
}

// And the scalars that they name: a variant's text may read those too.
bool same_intervals(const Problem& p, const PlanHeader& header) {
  if (p.num_intervals != header.num_intervals) return false;
  return std::memcmp(p.intervals, header.intervals, sizeof p.intervals) == 0 &&
         std::memcmp(p.scalars, header.scalars, sizeof p.scalars) == 0;
}

bool covered(const Plan::Impl& impl, const Problem& p, const PlanBuilder& builder) {
  if (p.blocks != nullptr) return false;  // lists are of fixed length
  const PlanHeader& header = impl.header();
  if (p.num_requests != header.num_requests || p.num_qo_heads != header.num_qo_heads ||
      p.num_kv_heads != header.num_kv_heads || p.num_workers != header.num_workers || p.mode != impl.mode ||
      p.fixed_split_size != header.fixed_split_size || p.page_size != header.page_size ||
      p.num_rows != header.num_rows_q || !same_intervals(p, header) || !same_entries(impl, p, builder))
    return false;
  const int* qo_len = section<int>(impl.bytes.data(), header.qo_len);
  for (int r = 0; r < p.num_requests; ++r) {
    if (p.qo_len(r) != qo_len[r] || builder.kv_len[r] > impl.max_kv_len) return false;
    const Plan::Impl::Reach& reach = impl.reach[r];
    if (builder.kv_len[r] < reach.min_kv_len || builder.kv_len[r] > reach.max_kv_len) return false;
  }
  return p.num_page_ids <= impl.page_capacity;
}

}  // namespace

bool Plan::covers(const PlanInput& input) const {
  PlanBuilder& builder = scratch();
  const Problem problem = same_terms(impl(), input, builder);
  return covered(impl(), problem, builder);
}

void Plan::update(const PlanInput& input) {
  PlanBuilder& builder = scratch();
  const Problem problem = same_terms(impl(), input, builder);
  check(covered(*impl_, problem, builder), ErrorCode::plan_mismatch,
        "update: the plan does not cover these lengths; ask covers(input) first, and plan again when it says no");
  resize_bytes(problem, impl_->header(), *impl_);
  write_lengths(problem, builder, *impl_);
}

}  // namespace weft
