// The planner's pipeline, and the Plan it returns.
#include "attention/plan_draft.h"
#include "base/check.h"

namespace weft {

using namespace planner;

Plan Planner::plan(const KernelTraits& traits, const PlanInput& input) {
  static thread_local Draft draft;
  const Problem problem = check_input(traits, input, draft);
  lay_entries(problem, draft);
  if (problem.bounds != nullptr) check_within(problem, draft);
  lay_units(problem, draft);
  switch (problem.mode) {
    case PlanMode::balanced: cut_balanced(problem, draft); break;
    case PlanMode::paper: cut_paper(problem, draft); break;
    case PlanMode::fixed_split: cut_fixed(problem, draft); break;
    case PlanMode::no_split: cut_none(problem, draft); break;
  }
  Plan plan;
  plan.impl_ = std::make_unique<Plan::Impl>();
  write_plan(problem, draft, *plan.impl_);
#ifndef NDEBUG
  verify(plan);
#endif
  return plan;
}

Plan::Plan() = default;
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

namespace {
const Plan::Impl& checked(const std::unique_ptr<Plan::Impl>& impl) {
  check(impl != nullptr, ErrorCode::plan_mismatch, "plan: is empty; make one with AttentionKernel::plan");
  return *impl;
}
}  // namespace

size_t Plan::workspace_bytes() const { return static_cast<size_t>(checked(impl_).placed.total_bytes); }
int Plan::num_workers() const { return checked(impl_).header().num_workers; }
int Plan::num_items() const { return static_cast<int>(checked(impl_).header().items.count); }
int Plan::num_partials() const { return static_cast<int>(checked(impl_).header().partials.count); }
double Plan::makespan() const { return checked(impl_).makespan; }
double Plan::lower_bound() const { return checked(impl_).lower_bound; }
uint64_t Plan::signature() const { return checked(impl_).header().signature; }

}  // namespace weft
