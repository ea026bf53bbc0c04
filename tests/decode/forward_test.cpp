#include "decode/forward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "tests/decode/random_forward.h"
#include "weft/model.h"

namespace weft {
namespace {

using testing::GgufWriter;
using testing::random_ids;
using testing::random_model;
using testing::RandomModelOptions;
using testing::TempFolder;
using Ids = std::vector<int32_t>;
using Row = std::vector<float>;

const std::string kStories = std::string(WEFT_TEST_DATA) + "/stories260K.gguf";

ErrorCode code_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::io_error;
}

Row row_of(const TensorView& logits, int64_t row = -1) {
  const int64_t vocab = logits.shape(1), at = row < 0 ? logits.shape(0) + row : row;
  const float* data = logits.as<float>() + at * vocab;
  return Row(data, data + vocab);
}

double largest_difference(const Row& a, const Row& b) {
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, std::abs(double{a[i]} - double{b[i]}));
  return largest;
}

// Mean |log p - log p*| of the tokens that follow, over the whole text at once.
double mean_error(const std::string& path, const Ids& ids, const ForwardOptions& options) {
  const ModelFile file(path);
  ForwardPass forward(file, options);
  const TensorView logits =
      forward.run({{.sequence = forward.add_sequence(), .tokens = ids, .logit_rows = ForwardPass::kAllRows}});
  return testing::mean_error_of_next(path, ids, [&](size_t i) { return row_of(logits, static_cast<int64_t>(i)); });
}

double allowed_error(Precision precision) {
  return precision == Precision::exact ? 0.001 : precision == Precision::standard ? 0.015 : 0.07;
}
// Limits for these models, so that no change rounds more than before: no bounds of others (docs/precision.md). Random
// weights amplify the 8 bits of activations that bf16 dots take.
double allowed_error_of_random(uint32_t type, Precision precision) {
  const bool bf16_dot = type == GgufWriter::kBF16 && current_isa() == Isa::avx512_bf16;
  return (bf16_dot && precision == Precision::standard ? 2 : 1) * allowed_error(precision);
}

using RandomModel = testing::RandomModelTest;

TEST_F(RandomModel, AgreesWithTheReferenceInEveryWeightTypeAndPrecision) {
  for (uint32_t type : {GgufWriter::kF32, GgufWriter::kF16, GgufWriter::kBF16, GgufWriter::kQ8_0, GgufWriter::kQ5_0,
                        GgufWriter::kQ4_0, GgufWriter::kQ4_1, GgufWriter::kQ4_K, GgufWriter::kQ6_K}) {
    RandomModelOptions model{.weights = type, .tied = type % 2 == 0, .seed = type + 1};
    if (type == GgufWriter::kQ4_K || type == GgufWriter::kQ6_K) {  // in blocks of 256
      model.hidden_size = model.intermediate_size = 256;
      model.num_qo_heads = 4;
      model.head_dim = 64;
    }
    const std::string path = write(model);
    for (Precision precision : {Precision::exact, Precision::standard, Precision::fast})
      EXPECT_LE(mean_error(path, random_ids(70, type), {.precision = precision}),
                allowed_error_of_random(type, precision))
          << "type " << type << " precision " << to_string(precision);
  }
}

TEST_F(RandomModel, AgreesWithTheReferenceInEveryArchitecture) {
  for (const char* architecture : testing::kArchitectures) {
    RandomModelOptions model{.architecture = architecture, .num_qo_heads = 4, .num_kv_heads = 1, .head_dim = 32};
    model.theta = 500.f;
    if (architecture == std::string("gemma3")) model.num_layers = 7;  // one of them sees all
    const std::string path = write(model);
    for (DType dtype : {DType::fp32, DType::fp16, DType::bf16})
      EXPECT_LE(mean_error(path, random_ids(50, 3), {.kv_dtype = dtype}), allowed_error(Precision::standard))
          << architecture;
    EXPECT_LE(mean_error(path, random_ids(50, 3), {.precision = Precision::fast, .kv_dtype = DType::int8}),
              allowed_error(Precision::fast))
        << architecture;
    EXPECT_LE(mean_error(path, random_ids(50, 4), {.precision = Precision::exact}), 1e-4) << architecture;
    // Groups of three, heads that together are wider than the model, a head of its own or not.
    model.num_qo_heads = 9, model.num_kv_heads = 3, model.head_dim = 24, model.tied = true;
    EXPECT_LE(mean_error(write(model), random_ids(50, 5), {.precision = Precision::exact}), 1e-4) << architecture;
  }
}

TEST_F(RandomModel, AgreesWithTheReferenceWithABiasOfTheOutputProjection) {
  for (const char* architecture : {"llama", "qwen2", "gemma2"}) {
    const std::string path = write({.architecture = architecture, .output_bias = true});
    EXPECT_LE(mean_error(path, random_ids(50, 6), {.precision = Precision::exact}), 1e-4) << architecture;
  }
}

void add_divisors(GgufWriter& gguf, const std::vector<float>& divisors) {
  std::string data;
  for (const float divisor : divisors) data += testing::encode(divisor);
  gguf.add_tensor({.name = "rope_freqs.weight", .extents = {divisors.size()}, .data = data});
}

TEST_F(RandomModel, AgreesWithTheReferenceInEveryScalingOfRope) {
  using Add = void (*)(GgufWriter&);
  const Add scalings[] = {
      [](GgufWriter& g) { g.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 4.f); },
      [](GgufWriter& g) {
        g.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 4.f);
        g.add("llama.rope.scaling.original_context_length", 64u).add("llama.rope.scaling.attn_factor", 0.9f);
      },
      // Without an original context that of the model; other bounds of the ramp.
      [](GgufWriter& g) {
        g.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 8.f);
        g.add("llama.rope.scaling.yarn_beta_fast", 16.f).add("llama.rope.scaling.yarn_beta_slow", 2.f);
      },
      // Divisors of no known scaling, alone and beside others.
      [](GgufWriter& g) {
        add_divisors(g, {1.f, 0.5f, 3.f, 7.f, 1.f, 1e30f, 2.f, 0.1f});
      },
      [](GgufWriter& g) {
        g.add("llama.rope.scaling.type", "linear").add("llama.rope.scaling.factor", 2.f);
        add_divisors(g, {1.f, 0.5f, 3.f, 7.f, 1.f, 2.f, 2.f, 0.1f});
      },
      [](GgufWriter& g) {
        g.add("llama.rope.scaling.type", "yarn").add("llama.rope.scaling.factor", 4.f);
        g.add("llama.rope.scaling.original_context_length", 64u);
        add_divisors(g, {1.f, 0.5f, 3.f, 7.f, 1.f, 2.f, 2.f, 0.1f});
      },
      // Llama 3: what converters write, for 4 and 1 turns within 64 tokens.
      [](GgufWriter& g) {
        std::string divisors;
        for (int pair = 0; pair < 8; ++pair) {
          const double turns = 64 * std::pow(500.0, -pair / 8.0) / (2 * std::acos(-1.0));
          const double share = std::clamp((turns - 1) / 3, 0.0, 1.0);
          divisors += testing::encode(static_cast<float>(1 / ((1 - share) / 8 + share)));
        }
        g.add("llama.rope.scaling.original_context_length", 64u);
        g.add_tensor({.name = "rope_freqs.weight", .extents = {8}, .data = divisors});
      }};
  const Ids ids = random_ids(90, 5);
  const auto log_probs = [&](const Add add) {
    GgufWriter gguf = random_model({.context_length = 256, .theta = 500.f});
    if (add != nullptr) add(gguf);
    const std::string path = write_file(gguf);
    EXPECT_LE(mean_error(path, ids, {.precision = Precision::exact}), 1e-4) << path;
    return testing::reference_log_probabilities(path, ids);
  };
  const std::vector<double> plain = log_probs(nullptr);
  for (const Add add : scalings) {
    const std::vector<double> scaled = log_probs(add);
    double sum = 0;
    for (size_t i = 0; i < plain.size(); ++i) sum += std::abs(plain[i] - scaled[i]);
    EXPECT_GT(sum / static_cast<double>(plain.size()), 1e-2);  // the scaling is felt
  }
}

// Each would make every logit NaN, which no answer could say the file of.
TEST_F(RandomModel, RefusesVectorsOfAFileThatHoldWhatIsNoFiniteNumber) {
  for (const auto& [name, value] : {std::pair("blk.1.attn_q.bias", NAN), std::pair("blk.0.attn_norm.weight", INFINITY),
                                    std::pair("output_norm.weight", -INFINITY)}) {
    GgufWriter gguf = random_model({.architecture = "qwen2"});
    gguf.tensor(name).data.replace(4 * sizeof(float), sizeof(float), testing::encode(static_cast<float>(value)));
    const std::string path = write_file(gguf);
    const ModelFile file(path);
    try {
      const ForwardPass forward(file, {});
      ADD_FAILURE() << name << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_file);
      EXPECT_NE(std::string(error.what()).find(path + ": tensor '" + name + "': element 4 is "), std::string::npos)
          << error.what();
    }
  }
}

// Sliding layers keep their own plan through chunks of rows, single tokens and forks.
TEST_F(RandomModel, SlidingLayersAgreeWhetherTokensComeAtOnceOrInParts) {
  const std::string path = write({.architecture = "gemma3", .num_layers = 7, .sliding_window = 33});
  const ModelFile file(path);
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 4096, .max_sequences = 2, .page_size = 7});
  const Ids ids = random_ids(600, 9);
  const auto sequence = forward.add_sequence();
  size_t done = 0;
  for (size_t count : {1, 1, 40, 500, 57}) {
    forward.run({{.sequence = sequence, .tokens = std::span(ids).subspan(done, count)}});
    done += count;
  }
  const Row got = row_of(forward.run({{.sequence = sequence, .tokens = std::span(ids).last(1)}}));
  ASSERT_EQ(done + 1, ids.size());
  const std::vector<double> expected = testing::reference_log_probabilities(path, ids);
  for (int32_t id = 0; id < static_cast<int32_t>(testing::kRandomModelVocab); ++id)
    ASSERT_NEAR(log_probability(got, id),
                expected[(ids.size() - 1) * testing::kRandomModelVocab + static_cast<size_t>(id)], 1e-3);
}

TEST_F(RandomModel, GivesARequestTheSameBitsAloneAndInABatchUnderFixedSplits) {
  const ModelFile file(write({.weights = GgufWriter::kQ4_1}));
  for (Precision precision : {Precision::exact, Precision::standard, Precision::fast}) {
    WorkerTeam two(2), five(5);
    ForwardOptions options{.precision = precision,
                           .max_sequences = 3,
                           .plan_mode = PlanMode::fixed_split,
                           .fixed_split_size = 64,
                           .team = &five};
    // The third goes through the layers in other chunks of rows than it does alone.
    const Ids a = random_ids(150, 1), b = random_ids(1, 2), c = random_ids(700, 3);
    ForwardPass batch(file, options);
    const auto sa = batch.add_sequence(), sb = batch.add_sequence(), sc = batch.add_sequence();
    const TensorView logits =
        batch.run({{.sequence = sa, .tokens = a}, {.sequence = sb, .tokens = b}, {.sequence = sc, .tokens = c}});
    ASSERT_EQ(logits.shape(0), 3);
    options.team = &two;
    const Ids* ids[] = {&a, &b, &c};
    for (int i = 0; i < 3; ++i) {
      ForwardPass alone(file, options);
      const Row expected = row_of(alone.run({{.sequence = alone.add_sequence(), .tokens = *ids[i]}}));
      const Row got = row_of(logits, i);
      EXPECT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
          << i << " " << to_string(precision);
    }
  }
}

TEST_F(RandomModel, AgreesWhetherTokensComeAtOnceInChunksOrOneByOne) {
  const ModelFile file(write({.hidden_size = 64, .intermediate_size = 64, .num_qo_heads = 4, .head_dim = 16}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 4096, .max_sequences = 3, .page_size = 5});
  const Ids ids = random_ids(1100, 9);  // three chunks of rows
  const auto at_once = forward.add_sequence(), parts = forward.add_sequence();
  const Row expected = row_of(forward.run({{.sequence = at_once, .tokens = ids}}));
  Row got;
  size_t done = 0;
  for (size_t count : {1, 1, 7, 500, 513, 1, 1, 76}) {
    got = row_of(forward.run({{.sequence = parts, .tokens = std::span(ids).subspan(done, count)}}));
    done += count;
  }
  ASSERT_EQ(done, ids.size());
  EXPECT_LE(largest_difference(got, expected), 1e-4);
  EXPECT_EQ(forward.length(parts), 1100);
}

TEST_F(RandomModel, GivesLogitsOfAsManyRowsAsAnInputAsksFor) {
  const ModelFile file(write({}));
  for (const int64_t max_rows : {512, 7}) {  // at once, and cut into several steps
    ForwardPass forward(file, {.precision = Precision::exact, .max_sequences = 4, .max_rows = max_rows});
    const Ids a = random_ids(30, 1), b = random_ids(20, 2), c = random_ids(10, 3);
    const auto run = [&](int64_t rows_a, int64_t rows_b, int64_t rows_c) {
      const auto s0 = forward.add_sequence(), s1 = forward.add_sequence(), s2 = forward.add_sequence();
      const TensorView logits = forward.run({{.sequence = s0, .tokens = a, .logit_rows = rows_a},
                                             {.sequence = s1, .tokens = b, .logit_rows = rows_b},
                                             {.sequence = s2, .tokens = c, .logit_rows = rows_c}});
      std::vector<Row> rows;
      for (int64_t row = 0; row < logits.shape(0); ++row) rows.push_back(row_of(logits, row));
      for (const auto sequence : {s0, s1, s2}) forward.release(sequence);
      return rows;
    };
    const std::vector<Row> all = run(ForwardPass::kAllRows, 20, 1000), some = run(0, 3, 1);
    ASSERT_EQ(all.size(), 60u);
    ASSERT_EQ(some.size(), 4u);
    for (size_t i = 0; i < 3; ++i) EXPECT_LE(largest_difference(some[i], all[47 + i]), 1e-4) << i;
    EXPECT_LE(largest_difference(some[3], all[59]), 1e-4);
    EXPECT_EQ(run(0, 0, 0).size(), 0u);
    EXPECT_EQ(code_of([&] { run(1, -1, 1); }), ErrorCode::invalid_argument);
  }
}

// A prefix cache holds whole pages of a sequence that is gone; another one begins with them.
TEST_F(RandomModel, SequencesBeginWithPagesThatOthersHold) {
  const ModelFile file(write({}));
  for (const DType kv_dtype : {DType::fp32, DType::int8}) {
    const Precision precision = kv_dtype == DType::int8 ? Precision::fast : Precision::exact;
    ForwardPass forward(
        file, {.precision = precision, .max_tokens = 256, .max_sequences = 3, .page_size = 8, .kv_dtype = kv_dtype});
    const int64_t free = forward.num_free_pages();
    EXPECT_EQ(free, forward.num_pages());
    EXPECT_EQ(forward.page_size(), 8);
    const Ids ids = random_ids(45, 1);
    const auto first = forward.add_sequence();
    const Row expected = row_of(forward.run({{.sequence = first, .tokens = ids}}));
    const std::vector<int32_t> pages(forward.pages(first).begin(), forward.pages(first).begin() + 4);
    forward.hold_pages(pages);
    forward.release(first);
    EXPECT_EQ(forward.num_free_pages(), free - 4);
    const auto second = forward.add_sequence(pages);
    EXPECT_EQ(forward.length(second), 32);
    const Row got = row_of(forward.run({{.sequence = second, .tokens = std::span(ids).subspan(32)}}));
    EXPECT_LE(largest_difference(got, expected), precision == Precision::exact ? 1e-4 : 0.2);
    // Cut inside a page that is held, it goes on with one of its own.
    forward.truncate(second, 29);
    const Row again = row_of(forward.run({{.sequence = second, .tokens = std::span(ids).subspan(29)}}));
    EXPECT_LE(largest_difference(again, expected), precision == Precision::exact ? 1e-4 : 0.2);
    EXPECT_NE(forward.pages(second)[3], pages[3]);
    forward.release(second);
    forward.unhold_pages(pages);
    EXPECT_EQ(forward.num_free_pages(), free);
    EXPECT_EQ(code_of([&] { forward.unhold_pages(pages); }), ErrorCode::invalid_argument);
    EXPECT_EQ(code_of([&] { forward.add_sequence(pages); }), ErrorCode::invalid_argument);
  }
}

// Many steps of sequences that share pages, as a prefix cache says: what a plan of an earlier step, brought up to date,
// attends is what each sequence alone does.
TEST_F(RandomModel, SequencesOfKnownPrefixesAgreeWithSequencesAlone) {
  const ModelFile file(write({.context_length = 1024}));
  for (const PlanMode mode : {PlanMode::balanced, PlanMode::fixed_split}) {
    WorkerTeam team(3);
    ForwardPass forward(file, {.precision = Precision::exact,
                               .max_tokens = 4096,
                               .max_sequences = 6,
                               .page_size = 16,
                               .plan_mode = mode,
                               .fixed_split_size = mode == PlanMode::fixed_split ? 64 : 0,
                               .team = &team});
    const Ids trunk = random_ids(512, 1), stranger = random_ids(90, 2);
    std::vector<ForwardPass::SequenceId> sequences{forward.add_sequence(), forward.add_sequence()};
    forward.run({{.sequence = sequences[0], .tokens = trunk}, {.sequence = sequences[1], .tokens = stranger}});
    const std::vector<int32_t> pages(forward.pages(sequences[0]).begin(), forward.pages(sequences[0]).end());
    for (const size_t kept : {32u, 32u, 16u}) sequences.push_back(forward.add_sequence(std::span(pages).first(kept)));
    std::vector<Ids> whole{trunk, stranger, trunk, trunk, Ids(trunk.begin(), trunk.begin() + 256)};
    const std::vector<int32_t> parent{-1, 0}, num_pages{16, 32}, node{1, -1, 1, 1, 0};
    const SharedPrefixes prefixes{parent, num_pages, node};
    TensorView logits;
    for (int step = 0; step < 40; ++step) {  // over two borders of pages
      std::vector<Ids> next;
      std::vector<ForwardPass::Input> inputs;
      for (size_t i = 0; i < sequences.size(); ++i) next.push_back(random_ids(step == 0 ? 5 : 1, 100 * step + i));
      for (size_t i = 0; i < sequences.size(); ++i) {
        inputs.push_back({.sequence = sequences[i], .tokens = next[i]});
        whole[i].insert(whole[i].end(), next[i].begin(), next[i].end());
      }
      logits = forward.run(inputs, prefixes);
    }
    ForwardPass alone(file, {.precision = Precision::exact, .max_tokens = 1024, .team = &team});
    const auto only = alone.add_sequence();
    for (size_t i = 0; i < sequences.size(); ++i) {
      alone.truncate(only, 0);
      EXPECT_LE(largest_difference(row_of(logits, static_cast<int64_t>(i)),
                                   row_of(alone.run({{.sequence = only, .tokens = whole[i]}}))),
                1e-4)
          << i;
    }
  }
}

TEST_F(RandomModel, KnownPrefixesDoNotChangeABitUnderFixedSplits) {
  const ModelFile file(write({.num_qo_heads = 4, .num_kv_heads = 1, .head_dim = 32, .context_length = 8192}));
  WorkerTeam team(3);
  const Ids trunk = random_ids(4096, 1);
  const std::vector<int32_t> parent{-1}, num_pages{256}, node(8, 0);
  std::vector<std::vector<Row>> results;
  for (const bool together : {true, false}) {
    ForwardPass forward(file, {.precision = Precision::exact,
                               .max_tokens = 8192,
                               .max_sequences = 9,
                               .plan_mode = PlanMode::fixed_split,
                               .fixed_split_size = 128,
                               .team = &team});
    const auto first = forward.add_sequence();
    forward.run({{.sequence = first, .tokens = trunk, .logit_rows = 0}});
    const std::vector<int32_t> pages(forward.pages(first).begin(), forward.pages(first).end());
    std::vector<ForwardPass::Input> inputs;
    std::vector<Ids> next;
    for (size_t i = 0; i < 8; ++i) next.push_back(random_ids(1 + i % 3, 10 + i));
    for (size_t i = 0; i < 8; ++i) inputs.push_back({.sequence = forward.add_sequence(pages), .tokens = next[i]});
    std::vector<Row>& rows = results.emplace_back();
    for (int step = 0; step < 3; ++step) {
      if (together) {
        const TensorView logits = forward.run(inputs, {parent, num_pages, node});
        for (int64_t row = 0; row < 8; ++row) rows.push_back(row_of(logits, row));
      } else {
        for (const ForwardPass::Input& input : inputs) rows.push_back(row_of(forward.run({input})));
      }
    }
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_F(RandomModel, RefusesPrefixesThatAreNotThoseOfItsSequencesAndChangesNothing) {
  const ModelFile file(write({}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 512, .max_sequences = 2, .page_size = 8});
  const auto a = forward.add_sequence(), b = forward.add_sequence();
  const Ids ids = random_ids(40, 1), one = random_ids(1, 2);
  forward.run({{.sequence = a, .tokens = ids}, {.sequence = b, .tokens = ids}});
  const int64_t free = forward.num_free_pages();
  const std::vector<ForwardPass::Input> inputs{{.sequence = a, .tokens = one}, {.sequence = b, .tokens = one}};
  const std::vector<int32_t> parent{-1}, num_pages{4}, node{0, 0}, short_list{0};
  EXPECT_EQ(code_of([&] { forward.run(inputs, {parent, num_pages, node}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { forward.run(inputs, {parent, num_pages, short_list}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(forward.length(a), 40);
  EXPECT_EQ(forward.num_free_pages(), free);
  forward.run(inputs);
  EXPECT_EQ(forward.length(a), 41);
}

TEST_F(RandomModel, GivesAllLogitsOrTheLastOfEachInput) {
  const ModelFile file(write({}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_sequences = 4});
  const Ids a = random_ids(30, 1), b = random_ids(20, 2);
  const auto s0 = forward.add_sequence(), s1 = forward.add_sequence(), s2 = forward.add_sequence(),
             s3 = forward.add_sequence();
  const TensorView last = forward.run({{.sequence = s0, .tokens = a}, {.sequence = s1, .tokens = b}});
  const Row last_a = row_of(last, 0), last_b = row_of(last, 1);
  const TensorView mixed =
      forward.run({{.sequence = s2, .tokens = a, .logit_rows = ForwardPass::kAllRows}, {.sequence = s3, .tokens = b}});
  ASSERT_EQ(mixed.shape(0), 31);
  EXPECT_LE(largest_difference(row_of(mixed, 29), last_a), 1e-4);
  EXPECT_LE(largest_difference(row_of(mixed, 30), last_b), 1e-4);
  EXPECT_GT(largest_difference(row_of(mixed, 3), last_a), 1e-2);
}

TEST_F(RandomModel, ForksShareTheirBeginningAndNothingElse) {
  const ModelFile file(write({}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 512, .max_sequences = 4, .page_size = 8});
  const Ids prefix = random_ids(29, 1), x = random_ids(12, 2), y = random_ids(12, 3);
  Ids prefix_x = prefix, prefix_y = prefix;
  prefix_x.insert(prefix_x.end(), x.begin(), x.end());
  prefix_y.insert(prefix_y.end(), y.begin(), y.end());
  const auto alone = [&](const Ids& ids) {
    const auto sequence = forward.add_sequence();
    const Row row = row_of(forward.run({{.sequence = sequence, .tokens = ids}}));
    forward.release(sequence);
    return row;
  };
  const Row expected_x = alone(prefix_x), expected_y = alone(prefix_y);
  const auto first = forward.add_sequence();
  forward.run({{.sequence = first, .tokens = prefix}});
  const auto second = forward.fork(first, 29);
  EXPECT_EQ(forward.length(second), 29);
  const Row got_x = row_of(forward.run({{.sequence = first, .tokens = x}}));
  const Row got_y = row_of(forward.run({{.sequence = second, .tokens = y}}));
  EXPECT_LE(largest_difference(got_x, expected_x), 1e-4);
  EXPECT_LE(largest_difference(got_y, expected_y), 1e-4);
  EXPECT_GT(largest_difference(expected_x, expected_y), 1e-2);
}

// In one call, where what they share is attended once for all of them, beside a request that shares nothing.
TEST_F(RandomModel, ForksThatRunTogetherAgreeWithRequestsAlone) {
  const ModelFile file(write({.context_length = 1024}));
  for (PlanMode mode : {PlanMode::balanced, PlanMode::fixed_split}) {
    WorkerTeam team(3);
    ForwardPass forward(file, {.precision = Precision::exact,
                               .max_tokens = 8192,
                               .max_sequences = 6,
                               .page_size = 16,
                               .plan_mode = mode,
                               .fixed_split_size = mode == PlanMode::fixed_split ? 64 : 0,
                               .team = &team});
    const Ids prefix = random_ids(700, 1), stranger = random_ids(90, 2);
    std::vector<ForwardPass::SequenceId> sequences{forward.add_sequence(), forward.add_sequence()};
    forward.run({{.sequence = sequences[0], .tokens = prefix}, {.sequence = sequences[1], .tokens = stranger}});
    for (const int64_t kept : {700, 650, 333, 700}) sequences.push_back(forward.fork(sequences[0], kept));
    std::vector<Ids> whole{prefix, stranger};
    for (const int64_t kept : {700, 650, 333, 700}) whole.emplace_back(prefix.begin(), prefix.begin() + kept);
    for (const size_t count : {3u, 1u}) {
      std::vector<Ids> next;
      std::vector<ForwardPass::Input> inputs;
      for (size_t i = 0; i < sequences.size(); ++i) next.push_back(random_ids(count, 10 + i));
      for (size_t i = 0; i < sequences.size(); ++i) {
        inputs.push_back({.sequence = sequences[i], .tokens = next[i]});
        whole[i].insert(whole[i].end(), next[i].begin(), next[i].end());
      }
      const TensorView logits = forward.run(inputs);
      std::vector<Row> got;
      for (size_t i = 0; i < sequences.size(); ++i) got.push_back(row_of(logits, static_cast<int64_t>(i)));
      ForwardPass alone(file, {.precision = Precision::exact, .max_tokens = 1024, .team = &team});
      const auto only = alone.add_sequence();
      for (size_t i = 0; i < sequences.size(); ++i) {
        alone.truncate(only, 0);
        EXPECT_LE(largest_difference(got[i], row_of(alone.run({{.sequence = only, .tokens = whole[i]}}))), 1e-4) << i;
      }
    }
  }
}

TEST_F(RandomModel, TruncatesWithinASharedPageWithoutTouchingItsOtherOwner) {
  const ModelFile file(write({}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 256, .max_sequences = 4, .page_size = 16});
  const Ids ids = random_ids(32, 1), other = random_ids(6, 2), next = random_ids(1, 3);
  const auto first = forward.add_sequence();
  forward.run({{.sequence = first, .tokens = ids}});
  const auto second = forward.fork(first, 32);  // both pages are full and shared
  forward.truncate(second, 27);
  EXPECT_EQ(forward.length(second), 27);
  forward.run({{.sequence = second, .tokens = other}});
  const Row got = row_of(forward.run({{.sequence = first, .tokens = next}}));
  Ids whole = ids;
  whole.push_back(next[0]);
  const Row expected = row_of(forward.run({{.sequence = forward.add_sequence(), .tokens = whole}}));
  EXPECT_LE(largest_difference(got, expected), 1e-4);
}

TEST_F(RandomModel, HoldsAsManyTokensAsTheModelsContextAndNoMore) {
  const ModelFile file(write({.context_length = 20}));
  ForwardPass forward(file, {.max_tokens = 64, .max_sequences = 2});
  const auto whole = forward.add_sequence(), parts = forward.add_sequence();
  EXPECT_EQ(code_of([&] { forward.run({{.sequence = whole, .tokens = random_ids(21, 1)}}); }), ErrorCode::context_full);
  forward.run({{.sequence = whole, .tokens = random_ids(20, 1)}});
  forward.run({{.sequence = parts, .tokens = random_ids(19, 1)}});
  forward.run({{.sequence = parts, .tokens = random_ids(1, 1)}});
  for (const auto sequence : {whole, parts}) {
    EXPECT_EQ(code_of([&] { forward.run({{.sequence = sequence, .tokens = random_ids(1, 1)}}); }),
              ErrorCode::context_full);
    EXPECT_EQ(forward.length(sequence), 20);
  }
}

TEST_F(RandomModel, ChangesNothingWhenItRefuses) {
  const ModelFile file(write({.context_length = 100}));
  ForwardPass forward(file, {.precision = Precision::exact, .max_tokens = 128, .max_sequences = 2, .page_size = 16});
  const auto a = forward.add_sequence(), b = forward.add_sequence();
  const Ids ids = random_ids(60, 1);
  forward.run({{.sequence = a, .tokens = ids}, {.sequence = b, .tokens = ids}});
  // Beyond the model's context, beyond the pool, ids outside the vocabulary, sequences that are not there or twice.
  EXPECT_EQ(code_of([&] { forward.run({{.sequence = a, .tokens = random_ids(41, 2)}}); }), ErrorCode::context_full);
  const Ids much = random_ids(36, 2);
  EXPECT_EQ(code_of([&] {
              forward.run({{.sequence = a, .tokens = much}, {.sequence = b, .tokens = much}});
            }),
            ErrorCode::context_full);
  const Ids bad = {1, 2, static_cast<int32_t>(testing::kRandomModelVocab)}, negative = {-1};
  EXPECT_EQ(code_of([&] { forward.run({{.sequence = a, .tokens = bad}}); }), ErrorCode::invalid_token);
  EXPECT_EQ(code_of([&] { forward.run({{.sequence = a, .tokens = negative}}); }), ErrorCode::invalid_token);
  EXPECT_EQ(code_of([&] { forward.run({{.sequence = 99, .tokens = ids}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] {
              forward.run({{.sequence = a, .tokens = Ids{1}}, {.sequence = a, .tokens = Ids{1}}});
            }),
            ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { forward.run({{.sequence = a, .tokens = {}}}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { forward.run({}); }), ErrorCode::invalid_argument);
  // Prefixes of one request, which no plan looks at.
  const ForwardPass::Input one[] = {{.sequence = a, .tokens = ids}};
  const Ids root{-1}, itself{0}, pages{1}, none{0}, two{1, 2}, node{0}, beyond{1};
  for (const SharedPrefixes& wrong :
       {SharedPrefixes{itself, pages, node}, SharedPrefixes{root, none, node}, SharedPrefixes{root, two, node},
        SharedPrefixes{root, pages, beyond}, SharedPrefixes{root, pages, two}, SharedPrefixes{{}, {}, node}})
    EXPECT_EQ(code_of([&] { forward.run(one, wrong); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { forward.add_sequence(); }), ErrorCode::context_full);
  EXPECT_EQ(forward.length(a), 60);
  EXPECT_EQ(forward.length(b), 60);
  const Row got = row_of(forward.run({{.sequence = a, .tokens = Ids{5}}}));
  forward.release(b);
  EXPECT_EQ(code_of([&] { forward.length(b); }), ErrorCode::invalid_argument);
  Ids whole = ids;
  whole.push_back(5);
  ForwardPass fresh(file, {.precision = Precision::exact});
  EXPECT_LE(largest_difference(got, row_of(fresh.run({{.sequence = fresh.add_sequence(), .tokens = whole}}))), 1e-4);
}

TEST_F(RandomModel, RefusesOptionsThatDoNotHold) {
  const ModelFile file(write({}));
  EXPECT_EQ(code_of([&] { ForwardPass(file, {.precision = Precision::exact, .kv_dtype = DType::bf16}); }),
            ErrorCode::invalid_argument);
  for (const Precision precision : {Precision::exact, Precision::standard})
    EXPECT_EQ(code_of([&] { ForwardPass(file, {.precision = precision, .kv_dtype = DType::int8}); }),
              ErrorCode::invalid_argument);
  for (const DType dtype : {DType::int4, DType::fp8_e4m3, DType::fp8_e5m2, DType::int32})
    EXPECT_EQ(code_of([&] { ForwardPass(file, {.precision = Precision::fast, .kv_dtype = dtype}); }),
              ErrorCode::unsupported);
  EXPECT_EQ(code_of([&] { ForwardPass(file, {.step = static_cast<StepForm>(3)}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ForwardPass(file, {.page_size = 0}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ForwardPass(file, {.max_tokens = 0}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ForwardPass(file, {.max_sequences = 0}); }), ErrorCode::invalid_argument);
  EXPECT_EQ(code_of([&] { ForwardPass(file, {.plan_mode = PlanMode::fixed_split, .fixed_split_size = 1}); }),
            ErrorCode::invalid_argument);
}

TEST(Forward, WritesTheGoldenStoryWithAnyNumberOfWorkersAndForcedSplits) {
  const auto golden = nlohmann::json::parse(std::ifstream(std::string(WEFT_TEST_DATA) + "/stories260K_golden.json"));
  const auto expected = golden.at("greedy_tokens").get<Ids>();
  const ModelFile file(kStories);
  for (int workers : {1, 2, 7})
    for (PlanMode mode : {PlanMode::balanced, PlanMode::fixed_split}) {
      WorkerTeam team(workers);
      ForwardPass forward(file, {.precision = Precision::exact,
                                 .max_tokens = 512,
                                 .plan_mode = mode,
                                 .fixed_split_size = mode == PlanMode::fixed_split ? 64 : 0,
                                 .team = &team});
      const auto sequence = forward.add_sequence();
      Philox generator{1};
      Ids ids = {expected[0]};
      while (ids.size() < expected.size()) {
        const Row row = row_of(forward.run({{.sequence = sequence, .tokens = std::span(ids).last(1)}}));
        ids.push_back(sample(row, {.temperature = 0.f}, generator));
      }
      EXPECT_EQ(ids, expected) << workers << " workers, " << to_string(mode);
    }
}

TEST(Forward, KeepsTheStatedErrorOnATrainedModel) {
  const auto golden = nlohmann::json::parse(std::ifstream(std::string(WEFT_TEST_DATA) + "/stories260K_golden.json"));
  const auto ids = golden.at("greedy_tokens").get<Ids>();
  for (Precision precision : {Precision::exact, Precision::standard, Precision::fast})
    EXPECT_LE(mean_error(kStories, ids, {.precision = precision}), allowed_error(precision)) << to_string(precision);
  EXPECT_LE(mean_error(kStories, ids, {.precision = Precision::fast, .kv_dtype = DType::int8}),
            allowed_error(Precision::fast));
}

TEST(Forward, AForkOfANarrowCacheGoesOnWithItsScales) {
  const ModelFile file(kStories);
  const ForwardOptions options{.precision = Precision::fast, .max_sequences = 2, .kv_dtype = DType::int8};
  ForwardPass forward(file, options), fresh(file, options);
  const Ids ids{1, 20, 30, 40, 50, 60, 70}, more{80};
  const auto first = forward.add_sequence();
  forward.run({{.sequence = first, .tokens = ids}});
  const auto second = forward.fork(first, 5);
  const Row got = row_of(forward.run({{.sequence = second, .tokens = more}}));
  const auto other = fresh.add_sequence();
  fresh.run({{.sequence = other, .tokens = Ids(ids.begin(), ids.begin() + 5)}});
  EXPECT_LE(largest_difference(got, row_of(fresh.run({{.sequence = other, .tokens = more}}))), 1e-4);
}

TEST(Forward, SaysWhatATokenCosts) {
  const ModelFile file(kStories);
  ForwardPass forward(file, {});
  // 5 layers of 4 KV heads of 8, keys and values in bf16.
  EXPECT_EQ(forward.kv_bytes_per_token(), 5u * 2 * 4 * 8 * 2);
  EXPECT_GE(forward.weight_bytes(), 260000u * 4);
  EXPECT_LE(forward.weight_bytes(), 300000u * 4);
}

TEST(Forward, SaysHowManyTokensFitWhereWeightsLeaveRoom) {
  const ModelFile file(kStories);
  const uint64_t weights = file.file_bytes() + file.file_bytes() / 4;
  for (const ForwardOptions& options : {ForwardOptions{.precision = Precision::exact}, ForwardOptions{},
                                        ForwardOptions{.precision = Precision::fast, .kv_dtype = DType::int8}}) {
    const size_t token = ForwardPass(file, options).kv_bytes_per_token();
    EXPECT_EQ(decode::tokens_that_fit(weights + 2 * 1000 * token, file, options), 1000);
    EXPECT_EQ(decode::tokens_that_fit(weights + 2 * 1000 * token - 1, file, options), 999);
    EXPECT_EQ(decode::tokens_that_fit(weights - 1, file, options), 0);
  }
}

}  // namespace
}  // namespace weft
