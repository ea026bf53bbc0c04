// What a forward pass on a card is off by, beside the reference in fp64.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/decode/random_forward.h"
#include "weft/model.h"
#include "weft/ops.h"

namespace weft::testing {

// |log p - log p*| of all tokens after each of the ids, the first `at_once` of which run together, the others one by
// one.
struct ForwardErrors {
  double largest = 0, mean = 0;
};
inline ForwardErrors errors_on_card(const std::string& path, const std::vector<int32_t>& ids, size_t at_once,
                                    ForwardOptions options) {
  options.device = Device::cuda(0);
  options.max_tokens = 64;
  const ModelFile file(path);
  ForwardPass forward(file, options);
  const std::vector<double> expected = reference_log_probabilities(path, ids);
  const auto sequence = forward.add_sequence();
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  ForwardErrors errors;
  for (size_t done = 0; done < ids.size();) {
    const size_t count = done == 0 ? at_once : 1;
    const TensorView logits = forward.run(
        {{.sequence = sequence, .tokens = std::span(ids).subspan(done, count), .logit_rows = ForwardPass::kAllRows}});
    for (size_t row = 0; row < count; ++row) {
      const std::span<const float> of_row(logits.as<float>() + row * vocab, vocab);
      for (size_t id = 0; id < vocab; ++id) {
        const double error =
            std::abs(log_probability(of_row, static_cast<int32_t>(id)) - expected[(done + row) * vocab + id]);
        errors.largest = std::max(errors.largest, error);
        errors.mean += error / static_cast<double>(ids.size() * vocab);
      }
    }
    done += count;
  }
  return errors;
}

}  // namespace weft::testing
