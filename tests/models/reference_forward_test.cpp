// The oracle itself: against golden output made by another program, and against properties of the model.
#include "tests/support/reference_forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"

namespace weft::testing {
namespace {

const std::string kStories = WEFT_TEST_DATA "/stories260K.gguf";

nlohmann::json golden() {
  std::ifstream in(WEFT_TEST_DATA "/stories260K_golden.json");
  return nlohmann::json::parse(in);
}

int argmax(const double* row, size_t vocab) { return static_cast<int>(std::max_element(row, row + vocab) - row); }

TEST(ReferenceForward, the_199_greedy_tokens_of_stories260K_follow_from_their_prefixes) {
  const auto ids = golden()["greedy_tokens"].get<std::vector<int32_t>>();
  ASSERT_EQ(ids.size(), 200u);
  const std::vector<double> log_probs = reference_log_probabilities(kStories, ids);
  for (size_t at = 0; at + 1 < ids.size(); ++at)
    ASSERT_EQ(argmax(&log_probs[at * 512], 512), ids[at + 1]) << "after " << at;
}

TEST(ReferenceForward, logits_of_stories260K_differ_as_the_golden_ones_do) {
  const nlohmann::json file = golden();
  const auto ids = file["greedy_tokens"].get<std::vector<int32_t>>();
  const std::vector<double> log_probs = reference_log_probabilities(kStories, std::span(ids).first(16));
  for (size_t at = 0; at < 16; ++at) {
    const auto& top = file["top5_logits_first_16_positions"][at];
    const auto log_prob = [&](size_t rank) { return log_probs[at * 512 + top[rank][0].get<size_t>()]; };
    for (size_t rank = 1; rank < 5; ++rank)  // golden logits have four decimals
      EXPECT_NEAR(log_prob(0) - log_prob(rank), top[0][1].get<double>() - top[rank][1].get<double>(), 2e-4);
  }
}

std::vector<int32_t> some_ids(int count, int first = 7) {
  std::vector<int32_t> ids;
  for (int i = 0; i < count; ++i) ids.push_back((first + i * 53) % static_cast<int>(kRandomModelVocab));
  return ids;
}

TEST(ReferenceForward, later_tokens_do_not_reach_earlier_positions) {
  TempFolder folder;
  random_model({.architecture = "qwen3"}).write(folder.path("model.gguf"));
  std::vector<int32_t> ids = some_ids(20);
  const std::vector<double> before = reference_log_probabilities(folder.path("model.gguf"), ids);
  ids.back() = 3;
  const std::vector<double> after = reference_log_probabilities(folder.path("model.gguf"), ids);
  const auto last = static_cast<std::ptrdiff_t>(19 * kRandomModelVocab);
  EXPECT_TRUE(std::equal(before.begin(), before.begin() + last, after.begin()));
  EXPECT_FALSE(std::equal(before.begin() + last, before.end(), after.begin() + last));
}

double mean_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(a[i] - b[i]);
  return sum / static_cast<double>(a.size());
}

TEST(ReferenceForward, fewer_bits_a_weight_mean_more_error) {
  TempFolder folder;
  const std::vector<int32_t> ids = some_ids(24);
  for (const std::string architecture : {"llama", "qwen2", "qwen3"}) {
    const auto log_probs_of = [&](uint32_t type) {
      random_model({.architecture = architecture, .weights = type}).write(folder.path("model.gguf"));
      return reference_log_probabilities(folder.path("model.gguf"), ids);
    };
    const std::vector<double> exact = log_probs_of(GgufWriter::kF32);
    const double f16 = mean_difference(exact, log_probs_of(GgufWriter::kF16));
    const double bf16 = mean_difference(exact, log_probs_of(GgufWriter::kBF16));
    const double q8_0 = mean_difference(exact, log_probs_of(GgufWriter::kQ8_0));
    const double q5_0 = mean_difference(exact, log_probs_of(GgufWriter::kQ5_0));
    const double q4_0 = mean_difference(exact, log_probs_of(GgufWriter::kQ4_0));
    const double q4_1 = mean_difference(exact, log_probs_of(GgufWriter::kQ4_1));
    EXPECT_GT(f16, 1e-5) << architecture;
    EXPECT_GT(bf16, 4 * f16) << architecture;
    EXPECT_GT(q8_0, bf16) << architecture;
    EXPECT_GT(q5_0, 4 * q8_0) << architecture;
    EXPECT_GT(std::min(q4_0, q4_1), q5_0) << architecture;
    EXPECT_LT(std::max(q4_0, q4_1), 0.8) << architecture;
  }
}

TEST(ReferenceForward, k_types_keep_what_their_bits_allow) {
  TempFolder folder;
  const std::vector<int32_t> ids = some_ids(24);
  const auto log_probs_of = [&](uint32_t type) {
    random_model({.weights = type, .hidden_size = 256, .intermediate_size = 256, .num_qo_heads = 4, .head_dim = 64})
        .write(folder.path("model.gguf"));
    return reference_log_probabilities(folder.path("model.gguf"), ids);
  };
  const std::vector<double> exact = log_probs_of(GgufWriter::kF32);
  const double q8_0 = mean_difference(exact, log_probs_of(GgufWriter::kQ8_0));
  const double q6_k = mean_difference(exact, log_probs_of(GgufWriter::kQ6_K));
  const double q4_k = mean_difference(exact, log_probs_of(GgufWriter::kQ4_K));
  EXPECT_GT(q6_k, q8_0);
  EXPECT_GT(q4_k, 2 * q6_k);
  EXPECT_LT(q6_k, 8 * q8_0);
  EXPECT_LT(q4_k, 0.8);
}

// The rows of q and k, head by head, from pairs (2i, 2i + 1) to pairs (i, i + dim / 2).
void rotate_halves_instead(GgufWriter& gguf, uint64_t head_dim) {
  for (GgufWriter::Tensor& tensor : gguf.tensors) {
    if (tensor.name.find("attn_q.") == std::string::npos && tensor.name.find("attn_k.") == std::string::npos) continue;
    const size_t row_bytes = tensor.data.size() / tensor.extents[1];
    std::string permuted;
    for (uint64_t row = 0; row < tensor.extents[1]; ++row) {
      const uint64_t head = row / head_dim, i = row % head_dim, half = head_dim / 2;
      const uint64_t from = head * head_dim + (i < half ? 2 * i : 2 * (i - half) + 1);
      permuted += tensor.data.substr(from * row_bytes, row_bytes);
    }
    tensor.data = permuted;
  }
  for (GgufWriter::Value& value : gguf.values)
    if (value.key.rfind("llama.", 0) == 0) value.key = "qwen2." + value.key.substr(6);
  gguf.value("general.architecture").data = encode(std::string_view("qwen2"));
}

TEST(ReferenceForward, rotating_halves_is_rotating_adjacent_pairs_of_permuted_rows) {
  TempFolder folder;
  GgufWriter gguf = random_model({});
  gguf.write(folder.path("adjacent.gguf"));
  rotate_halves_instead(gguf, 16);
  gguf.write(folder.path("halves.gguf"));
  const std::vector<int32_t> ids = some_ids(40);
  EXPECT_LT(mean_difference(reference_log_probabilities(folder.path("adjacent.gguf"), ids),
                            reference_log_probabilities(folder.path("halves.gguf"), ids)),
            1e-12);
}

TEST(ReferenceForward, equal_divisors_are_linear_scaling) {
  TempFolder folder;
  GgufWriter plain = random_model({}), linear = plain, divided = plain;
  linear.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.f);
  std::string divisors;
  for (int i = 0; i < 8; ++i) divisors += encode(4.f);
  divided.add_tensor({.name = "rope_freqs.weight", .extents = {8}, .data = divisors});
  plain.write(folder.path("plain.gguf"));
  linear.write(folder.path("linear.gguf"));
  divided.write(folder.path("divided.gguf"));
  const std::vector<int32_t> ids = some_ids(40);
  const std::vector<double> expected = reference_log_probabilities(folder.path("linear.gguf"), ids);
  EXPECT_LT(mean_difference(expected, reference_log_probabilities(folder.path("divided.gguf"), ids)), 1e-12);
  EXPECT_GT(mean_difference(expected, reference_log_probabilities(folder.path("plain.gguf"), ids)), 1e-3);
}

TEST(ReferenceForward, probabilities_sum_to_one_and_do_not_depend_on_threads) {
  TempFolder folder;
  random_model({.architecture = "qwen2", .weights = GgufWriter::kQ4_1, .tied = true}).write(folder.path("model.gguf"));
  const std::vector<int32_t> ids = some_ids(70);  // more than one block of positions
  const std::vector<double> one = reference_log_probabilities(folder.path("model.gguf"), ids, 1);
  EXPECT_EQ(one, reference_log_probabilities(folder.path("model.gguf"), ids, 5));
  for (size_t at = 0; at < ids.size(); ++at) {
    double sum = 0;
    for (size_t i = 0; i < kRandomModelVocab; ++i) sum += std::exp(one[at * kRandomModelVocab + i]);
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

}  // namespace
}  // namespace weft::testing
