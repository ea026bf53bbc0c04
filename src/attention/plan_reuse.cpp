// A plan in a workspace, and the same plan for other lengths.
#include <algorithm>
#include <cstring>

#include "attention/plan_draft.h"
#include "base/check.h"

namespace weft {

using namespace attention;
using namespace planner;

namespace {

// The input in the terms of the plan; throws for what plan would refuse as well.
Problem same_terms(const Plan::Impl& impl, const PlanInput& input, Draft& draft) {
  PlanInput relaxed = input;
  relaxed.bounds = nullptr;  // the plan's own room is what counts
  if (relaxed.num_workers == 0) relaxed.num_workers = impl.header().num_workers;
  return check_input(impl.traits, relaxed, draft);
}

bool same_intervals(const Problem& p, const PlanHeader& header) {
  if (p.num_intervals != header.num_intervals) return false;
  return std::memcmp(p.intervals, header.intervals, sizeof p.intervals) == 0;
}

bool covered(const Plan::Impl& impl, const Problem& p, const Draft& draft) {
  const PlanHeader& header = impl.header();
  if (p.num_requests != header.num_requests || p.num_qo_heads != header.num_qo_heads ||
      p.num_kv_heads != header.num_kv_heads || p.num_workers != header.num_workers || p.mode != impl.mode ||
      p.fixed_split_size != header.fixed_split_size || p.page_size != header.page_size || !same_intervals(p, header))
    return false;
  const int* qo_len = section<int>(impl.bytes.data(), header.qo_len);
  for (int r = 0; r < p.num_requests; ++r) {
    if (p.qo_len(r) != qo_len[r] || draft.kv_len[r] > impl.max_kv_len) return false;
    const Plan::Impl::Reach& reach = impl.reach[r];
    if (draft.kv_len[r] < reach.min_kv_len || draft.kv_len[r] > reach.max_kv_len) return false;
  }
  return static_cast<int64_t>(p.pages.kv_page_indices.size()) <= impl.page_capacity;
}

Draft& scratch() {
  static thread_local Draft draft;
  return draft;
}

}  // namespace

bool Plan::covers(const PlanInput& input) const {
  check(impl_ != nullptr, ErrorCode::plan_mismatch, "plan: is empty; make one with AttentionKernel::plan");
  Draft& draft = scratch();
  const Problem problem = same_terms(*impl_, input, draft);
  return covered(*impl_, problem, draft);
}

void Plan::update(const PlanInput& input) {
  check(impl_ != nullptr, ErrorCode::plan_mismatch, "plan: is empty; make one with AttentionKernel::plan");
  Draft& draft = scratch();
  const Problem problem = same_terms(*impl_, input, draft);
  check(covered(*impl_, problem, draft), ErrorCode::plan_mismatch,
        "update: the plan does not cover these lengths; ask covers(input) first, and plan again when it says no");
  // Page ids come last in bytes, which may grow into room that only the workspace had.
  const int64_t ids = problem.borrow_page_ids ? 0 : static_cast<int64_t>(problem.pages.kv_page_indices.size());
  impl_->bytes.resize(static_cast<size_t>(impl_->header().page_indices.offset + ceil_div(ids * 4, 64) * 64));
  std::memset(impl_->bytes.data() + impl_->header().page_indices.offset + ids * 4, 0,
              impl_->bytes.size() - static_cast<size_t>(impl_->header().page_indices.offset + ids * 4));
  write_lengths(problem, draft, *impl_);
}

void Plan::upload(Workspace& workspace, Stream stream) const {
  check(impl_ != nullptr, ErrorCode::plan_mismatch, "plan: is empty; make one with AttentionKernel::plan");
  check(workspace.device() == Device::cpu() && stream.device() == Device::cpu(), ErrorCode::invalid_device,
        "workspace on {}, stream of {}: this plan is for cpu; make both there", weft::to_string(workspace.device()),
        weft::to_string(stream.device()));
  check(workspace.bytes() >= workspace_bytes(), ErrorCode::workspace_too_small,
        "workspace: has {} bytes, the plan needs {}; ask Plan::workspace_bytes, or kernel.workspace_bytes(bounds)",
        workspace.bytes(), workspace_bytes());
  char* const target = static_cast<char*>(workspace.data());
  const char* const source = impl_->bytes.data();
  const PlanHeader& from = impl_->header();
  const PlanHeader& to = impl_->placed;
  if (std::memcmp(&from, &to, sizeof from) == 0) {
    std::memcpy(target, source, impl_->bytes.size());
  } else {
    std::memcpy(target, &to, sizeof to);
    for (const CopiedSection& copied : copied_sections()) {
      if (copied.section == &PlanHeader::page_indices && !impl_->borrowed_page_ids.empty()) continue;
      const Section& s = from.*copied.section;
      std::memcpy(target + (to.*copied.section).offset, source + s.offset,
                  static_cast<size_t>(s.count * copied.element_bytes));
    }
  }
  if (!impl_->borrowed_page_ids.empty())
    std::memcpy(target + to.page_indices.offset, impl_->borrowed_page_ids.data(),
                impl_->borrowed_page_ids.size_bytes());
  std::memset(target + to.counters.offset, 0, static_cast<size_t>(to.counters.count) * sizeof(int));
}

}  // namespace weft
