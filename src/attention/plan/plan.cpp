// The planner's pipeline, and the Plan it returns.
#include "attention/plan/plan_builder.h"
#include "base/check.h"

namespace weft {

using namespace planner;

PlanBuilder& planner::scratch() {
  static thread_local PlanBuilder builder;
  return builder;
}

namespace {

// Up to units.
Problem lay(const KernelTraits& traits, const PlanInput& input, PlanBuilder& builder) {
  Problem problem = check_input(traits, input, builder);
  lay_entries(problem, builder);
  check_mask(problem, builder);
  lay_tiles(problem, builder);
  problem.num_workers = workers_of(problem, tile_kinds_of(problem, builder));
  if (problem.bounds != nullptr) check_within(problem, builder);
  lay_units(problem, builder);
  return problem;
}

}  // namespace

Planner::Outline Planner::outline(const KernelTraits& traits, const PlanInput& input) {
  PlanBuilder& builder = scratch();
  const Problem problem = lay(traits, input, builder);
  check_even(problem, builder);
  Outline outline{.header = outline_header(problem, builder)};
  if (builder.tiles.empty()) return outline;
  const Tile& tile = builder.tiles[0];
  outline.tile_class = &traits.classes[static_cast<size_t>(tile.tile_class)];
  outline.unit_heads = tile.unit_heads;
  return outline;
}

Plan Planner::plan(const KernelTraits& traits, const PlanInput& input) {
  PlanBuilder& builder = scratch();
  const Problem problem = lay(traits, input, builder);
  switch (problem.mode) {
    case PlanMode::balanced: cut_balanced(problem, builder); break;
    case PlanMode::paper: cut_paper(problem, builder); break;
    case PlanMode::fixed_split: cut_fixed(problem, builder); break;
    case PlanMode::no_split: cut_none(problem, builder); break;
    case PlanMode::even: cut_even(problem, builder); break;
  }
  Plan plan;
  plan.impl_ = std::make_unique<Plan::Impl>();
  write_plan(problem, builder, *plan.impl_);
#ifndef NDEBUG
  verify(plan);
#endif
  return plan;
}

Plan::Plan() = default;
Plan::~Plan() = default;
Plan::Plan(Plan&&) noexcept = default;
Plan& Plan::operator=(Plan&&) noexcept = default;

const Plan::Impl& Plan::impl() const { return held(impl_, "plan", "AttentionKernel::plan"); }

size_t Plan::workspace_bytes() const { return static_cast<size_t>(impl().header().total_bytes); }
int Plan::num_workers() const { return impl().header().num_workers; }
int Plan::num_items() const { return static_cast<int>(impl().header().items.count); }
int Plan::num_partials() const { return static_cast<int>(impl().header().partials.count); }
double Plan::makespan() const { return impl().makespan; }
double Plan::lower_bound() const { return impl().lower_bound; }
uint64_t Plan::signature() const { return impl().header().signature; }

}  // namespace weft
