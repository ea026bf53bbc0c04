// The parameters of a call: scalars and tensors by name become the slots that kernels read.
#pragma once

#include <string>
#include <vector>

#include "attention/spec.h"
#include "tile/abi/leaf.h"

namespace weft {

// What run expects of a spec: made once a kernel, it packs the parameters of each call.
class Params {
 public:
  Params() = default;
  // Its tensors lie on `device`.
  explicit Params(const AttentionSpec& spec, Device device = {});
  size_t num_slots() const { return num_slots_; }
  // Parameters of one call into slots[num_slots()], checked against the declarations: every name known, none missing,
  // dtype, rank and last stride right. Throws Error(invalid_argument | invalid_dtype | invalid_shape | invalid_stride);
  // allocates only then.
  // `plan`: what the plan has of them. Scalars that intervals name: run leaves them out or says the same, else
  // Error(plan_mismatch). Where a custom mask's requests begin: run leaves that out. Null: there is no plan.
  struct Planned {
    const int* scalars;       // PlanHeader::scalars
    const void* mask_indptr;  // on the device
  };
  void pack(float sm_scale, const std::vector<ScalarArg>& scalars, const std::vector<TensorArg>& tensors,
            const Planned* plan, abi::Slot* slots) const;
  // Real numbers of packed slots become floats (Slot::single).
  void narrow(abi::Slot* slots) const;

 private:
  Declarations declared_;
  Device device_;
  std::vector<ScalarDecl> known_;     // those that only intervals name too: plan and run may be given the same list
  std::vector<std::string> planned_;  // that intervals name
  bool has_custom_mask_ = false;      // whose tensors are the last ones that are declared
  size_t num_slots_ = 1;              // sm_scale
};
std::vector<abi::Slot> pack_params(const AttentionSpec& spec, float sm_scale, const std::vector<ScalarArg>& scalars,
                                   const std::vector<TensorArg>& tensors);

}  // namespace weft
