// A recorded call in the terms of the reference: keys and values request by request, whatever form and page table the
// plan had, and the scalars that plan was given.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention/reference/error_model/error_model.h"
#include "attention/traits.h"
#include "cli/recorded_call.h"

namespace weft::cli {

class RaggedCall {
 public:
  // `plan` was verified, its sections follow it in memory, where they stay, and a run has checked that the tensors fit
  // it.
  RaggedCall(const RecordedCall& call, const attention::PlanHeader& plan);
  MeasuredReference reference(const attention::Rounding& rounding, const ReferenceScope& scope) const;

 private:
  AttentionSpec spec_;
  AttentionTensors tensors_;
  std::vector<ScalarArg> scalars_;  // of plan
  std::vector<int32_t> qo_indptr_{0}, kv_indptr_{0};
  std::span<const int64_t> mask_indptr_;  // of the plan
  std::vector<char> k_, v_, k_scale_, v_scale_, latent_;
  int num_qo_heads_, num_kv_heads_;
};

}  // namespace weft::cli
