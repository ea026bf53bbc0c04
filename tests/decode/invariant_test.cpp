// Inputs that ask for it get the same bits beside any others; and what sequences may hold, to the last token.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>

#include "decode/sequences.h"
#include "decode/step_attention.h"
#include "tests/decode/random_forward.h"
#include "tests/support/sanitizers.h"
#include "weft/model.h"

namespace weft::decode {
namespace {

using testing::random_ids;
using Ids = std::vector<int32_t>;

constexpr int64_t kContext = 2048;

class Invariant : public testing::RandomModelTest {
 protected:
  Invariant() : path_(write({.context_length = kContext})), file_(std::in_place, path_) {}
  // A sequence of so many tokens, written in the same cuts by all.
  static ForwardPass::SequenceId begun(ForwardPass& forward, size_t count, uint32_t seed) {
    const Ids ids = random_ids(count, seed);
    const auto sequence = forward.add_sequence();
    for (size_t done = 0; done < count; done += 256) {
      const auto rest = std::span(ids).subspan(done);
      forward.run(
          {{.sequence = sequence, .tokens = rest.first(std::min<size_t>(256, rest.size())), .invariant = true}});
    }
    return sequence;
  }
  ForwardOptions options(WorkerTeam& team) const {
    return {.precision = Precision::exact, .max_tokens = 8192, .max_sequences = 8, .team = &team};
  }

  std::string path_;
  std::optional<ModelFile> file_;
};

TEST_F(Invariant, InputsGetTheSameBitsBesideAnyOthersAndOnAnyNumberOfWorkers) {
  const Ids next = random_ids(1, 9), rows = random_ids(70, 10);
  std::vector<float> alone;
  // Bits are for builds without a sanitizer; those watch the fewest workers and the most, that of threads the most.
  for (const int workers : {3, 1, 2}) {
    if (testing::kUnderThreadSanitizer ? workers < 3 : testing::kUnderSanitizer && workers == 2) continue;
    WorkerTeam team(workers);
    ForwardPass forward(*file_, options(team));
    const auto own_begun = begun(forward, 1500, 1), other_begun = begun(forward, 700, 2),
               third_begun = begun(forward, 1100, 3);
    for (int others = 0; others < 5; ++others) {
      const auto own = forward.fork(own_begun, 1500), other = forward.fork(other_begun, 700),
                 third = forward.fork(third_begun, 1100);
      const ForwardPass::Input mine{.sequence = own, .tokens = next, .invariant = true};
      const ForwardPass::Input ordinary{.sequence = other, .tokens = rows};
      const ForwardPass::Input equal{.sequence = third, .tokens = next, .invariant = true};
      const std::vector<std::vector<ForwardPass::Input>> all{
          {mine}, {mine, ordinary}, {ordinary, mine}, {equal, mine, ordinary}, {ordinary, equal, mine}};
      const std::vector<ForwardPass::Input>& inputs = all[static_cast<size_t>(others)];
      const TensorView logits = forward.run(inputs);
      size_t place = 0;
      while (inputs[place].sequence != own) ++place;
      const float* row = logits.as<float>() + static_cast<int64_t>(place) * logits.shape(1);
      const std::vector<float> got(row, row + logits.shape(1));
      if (alone.empty()) alone = got;
      EXPECT_EQ(std::memcmp(got.data(), alone.data(), got.size() * sizeof(float)), 0)
          << workers << " workers, case " << others;
      for (const auto sequence : {own, other, third}) forward.release(sequence);
    }
  }
}

TEST_F(Invariant, PrefixesNameANodeForEveryInput) {
  WorkerTeam team(1);
  ForwardPass forward(*file_, options(team));
  const Ids ids = random_ids(40, 1);
  const auto a = begun(forward, 64, 1), b = forward.fork(a, 64);
  const std::vector<ForwardPass::Input> inputs{{.sequence = a, .tokens = ids}, {.sequence = b, .tokens = ids}};
  const std::vector<int32_t> parent{-1}, pages{2}, one{0}, both{0, 0}, three{0, 0, 0};
  EXPECT_THROW(forward.run(inputs, {parent, pages, one}), Error);
  EXPECT_THROW(forward.run(inputs, {parent, pages, three}), Error);
  EXPECT_EQ(forward.length(a), 64);
  forward.run(inputs, {parent, pages, both});
  EXPECT_EQ(forward.length(a), 104);
}

TEST_F(Invariant, SequencesHoldAContextAndAPoolAllOfItsTokensHoweverTheyAreSharedOut) {
  const ModelConfig& config = file_->config();
  WorkerTeam team(1);
  ForwardOptions small = options(team);
  small.max_tokens = 64, small.max_sequences = 4, small.page_size = 16;
  Sequences pool(config, small, DType::fp32);
  for (const int64_t tokens : {13, 17, 17, 17}) pool.append(pool.add(), tokens);
  Sequences sequences(config, options(team), DType::fp32);
  const auto whole = sequences.add();
  sequences.append(whole, kContext);
  EXPECT_THROW(sequences.append(whole, 1), Error);
  const auto again = sequences.add(sequences.pages(whole));
  EXPECT_EQ(sequences.length(again), kContext);
  EXPECT_THROW(sequences.append(again, 1), Error);
}

}  // namespace
}  // namespace weft::decode
