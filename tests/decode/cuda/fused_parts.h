// Fused steps on a card that is the host machine: the card, and models with random weights.
#pragma once

#include <limits>
#include <string>

#include "forward_errors.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/support/random_model.h"
#include "weft/model.h"

namespace weft::testing {

class FusedParts : public HostCard, protected RandomModels {
 protected:
  static constexpr int kWorkers = 2;

  FusedParts() {
    host_multiprocessors = kWorkers;
    driver().free_bytes = size_t{4} << 30;
  }
  ~FusedParts() override {
    host_multiprocessors = 1;
    host_ctas_of_multiprocessor = 2;
    host_absent_ctas = 0;
    host_most_bytes = std::numeric_limits<size_t>::max();
    driver().free_bytes = size_t{1} << 30;
  }
  static ForwardOptions options(StepForm form, int sequences = 8) {
    return {.device = Device::cuda(0), .max_tokens = 512, .max_sequences = sequences, .step = form};
  }
  // Of the types that cards' kernels take.
  static RandomModelOptions model_of(const char* architecture, uint32_t weights = GgufWriter::kBF16) {
    return small_model(architecture, weights);
  }
};

}  // namespace weft::testing
