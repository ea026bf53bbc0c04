// What tests of forward passes over models with random weights share: the models' files, tokens, and the mean error
// beside the reference in fp64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tests/support/random_model.h"
#include "tests/support/reference_forward.h"
#include "weft/ops.h"

namespace weft::testing {

inline constexpr const char* kArchitectures[] = {"llama", "qwen2", "qwen3", "gemma2", "gemma3"};

inline std::vector<int32_t> random_ids(size_t count, uint64_t seed, int vocab = kRandomModelVocab) {
  std::mt19937_64 random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % static_cast<uint64_t>(vocab));
  return ids;
}

// Small enough for the host machine.
inline RandomModelOptions small_model(const char* architecture, uint32_t weights = GgufWriter::kF32) {
  return {.architecture = architecture,
          .weights = weights,
          .hidden_size = 64,
          .intermediate_size = 96,
          .num_qo_heads = 4,
          .num_kv_heads = 2,
          .head_dim = 16,
          .sliding_window = 5};
}

// Writes models into a folder that goes with the test: for fixtures, whatever else they are.
class RandomModels {
 protected:
  std::string write_file(const GgufWriter& model) {
    const std::string path = folder_.path("model" + std::to_string(count_++) + ".gguf");
    model.write(path);
    return path;
  }
  std::string write(const RandomModelOptions& options) { return write_file(random_model(options)); }

 private:
  TempFolder folder_;
  int count_ = 0;
};
class RandomModelTest : public ::testing::Test, protected RandomModels {};

// Mean |log p - log p*| of the tokens that follow; row_of(i): logits behind token i.
double mean_error_of_next(const std::string& path, const std::vector<int32_t>& ids, const auto& row_of) {
  const std::vector<double> expected = reference_log_probabilities(path, ids);
  const size_t vocab = expected.size() / ids.size();
  double sum = 0;
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    sum += std::abs(log_probability(row_of(i), ids[i + 1]) - expected[i * vocab + static_cast<size_t>(ids[i + 1])]);
  return sum / static_cast<double>(ids.size() - 1);
}

}  // namespace weft::testing
