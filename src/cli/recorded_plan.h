// The plan of a recorded call: as it was for the machine that recorded it, made anew for another.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/plan/planner.h"
#include "cli/recorded_call.h"
#include "weft/attention.h"
#include "weft/device.h"

namespace weft::cli {

class RecordedPlan {
 public:
  // Throws Error(invalid_file | plan_mismatch | unsupported).
  explicit RecordedPlan(const RecordedCall& call);

  // Whether a kernel with these traits runs it as it is.
  bool is_for(const KernelTraits& traits) const { return traits.signature() == header().signature; }
  // As it was recorded.
  Plan as_it_was(const KernelTraits& traits) const { return Planner::restore(traits, call_.plan); }
  // Of the same lengths and pages, in one level.
  Plan anew(const AttentionKernel& kernel) const;

 private:
  const attention::PlanHeader& header() const { return *static_cast<const attention::PlanHeader*>(workspace_.data()); }
  template <class T>
  const T* part(const attention::Section& s) const {
    return attention::section<T>(workspace_.data(), s);
  }
  std::vector<std::vector<int32_t>> pages_of_requests() const;

  const RecordedCall& call_;
  Workspace workspace_;  // where it lies
};

}  // namespace weft::cli
