// Parts of the fused step on a card that is the host machine.
#pragma once

#include "forward_errors.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft::testing {

class FusedParts : public HostCard {
 protected:
  FusedParts() {
    host_multiprocessors = 2;
    driver().free_bytes = size_t{4} << 30;
  }
  ~FusedParts() override {
    host_multiprocessors = 1;
    driver().free_bytes = size_t{1} << 30;
  }
  static ForwardOptions options(StepForm form) {
    return {.device = Device::cuda(0), .max_tokens = 256, .max_sequences = 8, .step = form};
  }
  TempFolder folder_;
};

}  // namespace weft::testing
