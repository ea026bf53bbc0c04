// The CPU's walk of partitions, held against the oracle of the forward pass and against itself.
#include <gtest/gtest.h>

#include "base/fp16.h"
#include "decode/fused/walk_layers.h"
#include "tests/decode/fused/fused_model.h"
#include "tests/decode/random_forward.h"
#include "weft/ops.h"

namespace weft::testing {
namespace {

using Ids = std::vector<int32_t>;
using Rows = std::vector<std::vector<float>>;

using FusedWalk = RandomModelTest;

// Mean |log p - log p*| of the tokens that follow, `at_once` tokens a step.
double mean_error(const std::string& path, const Ids& ids, const Machine& machine, size_t at_once, DType kv_dtype) {
  FusedModel model(path, machine, kv_dtype);
  WorkerTeam team(2);
  const Sequences::Id sequence = model.sequences().add();
  Rows logits;
  for (size_t begin = 0; begin < ids.size(); begin += at_once) {
    const Step step = model.step_of(
        {{sequence, Ids(ids.begin() + static_cast<std::ptrdiff_t>(begin),
                        ids.begin() + static_cast<std::ptrdiff_t>(std::min(begin + at_once, ids.size())))}});
    for (std::vector<float>& row : model.run(step, team)) logits.push_back(std::move(row));
  }
  return mean_error_of_next(path, ids, [&](size_t i) { return logits[i]; });
}

TEST_F(FusedWalk, AgreesWithTheReferenceInEveryArchitecture) {
  for (const char* architecture : kArchitectures) {
    RandomModelOptions options{.architecture = architecture, .num_qo_heads = 4, .num_kv_heads = 1, .head_dim = 32};
    options.theta = 500.f;
    if (architecture == std::string("gemma3")) options.num_layers = 7;  // one of them sees all
    EXPECT_LE(mean_error(write(options), random_ids(50, 4), small_machine(5), 3, DType::fp32), 1e-4) << architecture;
    // Groups of three, heads that together are wider than the model, a head of its own or not.
    options.num_qo_heads = 9, options.num_kv_heads = 3, options.head_dim = 24, options.tied = true;
    options.output_bias = architecture == std::string("llama");
    EXPECT_LE(mean_error(write(options), random_ids(40, 5), small_machine(7, EdgeForm::tagged), 8, DType::fp32), 1e-4)
        << architecture;
  }
}

TEST_F(FusedWalk, AgreesWithTheReferenceInEveryWeightType) {
  for (const uint32_t type : {GgufWriter::kF32, GgufWriter::kF16, GgufWriter::kBF16, GgufWriter::kQ8_0,
                              GgufWriter::kQ4_0, GgufWriter::kQ4_1}) {
    const std::string path = write({.weights = type, .tied = type % 2 == 0, .seed = type + 1});
    EXPECT_LE(mean_error(path, random_ids(40, type), small_machine(6), 4, DType::fp32), 1e-4) << "type " << type;
  }
}

TEST_F(FusedWalk, AgreesWithTheReferenceWhereTheHeadHasATypeOfItsOwn) {
  RandomModelOptions options{.weights = GgufWriter::kBF16};
  GgufWriter model = random_model(options);
  options.weights = GgufWriter::kQ8_0;
  model.tensor("output.weight") = random_model(options).tensor("output.weight");
  EXPECT_LE(mean_error(write_file(model), random_ids(40, 3), small_machine(6), 4, DType::fp32), 1e-4);
}

TEST_F(FusedWalk, AgreesWithTheReferenceOverNarrowCaches) {
  const std::string path = write({.architecture = "qwen3"});
  for (const DType dtype : {DType::fp16, DType::bf16})
    EXPECT_LE(mean_error(path, random_ids(50, 3), small_machine(4), 1, dtype), 0.015);
}

// A source that gives fp32 numbers as fp16, or as fp32 after rounding to fp16.
ops::WeightSource as_fp16(const ops::WeightSource& from, bool narrow) {
  ops::WeightSource to = from;
  to.type = narrow ? WeightType::f16 : WeightType::f32;
  to.read = [from, narrow](int64_t begin, int64_t end, void* data) {
    std::vector<float> numbers(static_cast<size_t>((end - begin) * from.cols));
    from.read(begin, end, numbers.data());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint16_t half = to_fp16(static_cast<double>(numbers[i]));
      if (narrow)
        static_cast<uint16_t*>(data)[i] = half;
      else
        static_cast<float*>(data)[i] = static_cast<float>(from_fp16(half));
    }
  };
  return to;
}

// Rows [begin, end) of a source.
ops::WeightSource rows_of(const ops::WeightSource& from, int64_t begin, int64_t end) {
  ops::WeightSource to = from;
  to.rows = end - begin;
  to.read = [from, begin](int64_t first, int64_t last, void* data) { from.read(begin + first, begin + last, data); };
  return to;
}

// Rows of several types lie in one line, and are cut by their bytes, in panels too; layers may differ.
TEST_F(FusedWalk, MultipliesMatricesOfSeveralTypes) {
  const std::string path = write({.num_layers = 3});
  WorkerTeam team(2);
  for (const int workers : {1, 6}) {
    Rows results[2];
    for (const bool narrow : {false, true}) {
      FusedModel model(path, small_machine(workers), DType::fp32, [&](ModelSources& sources) {
        for (size_t layer : {0u, 2u}) {
          sources.layers[layer].qkv[1] = as_fp16(sources.layers[layer].qkv[1], narrow);
          sources.layers[layer].gate_up[1] = as_fp16(sources.layers[layer].gate_up[1], narrow);
          Sources& down = sources.layers[layer].down;
          down.push_back(as_fp16(rows_of(down[0], 40, down[0].rows), narrow));
          down[0] = rows_of(down[0], 0, 40);
        }
      });
      EXPECT_EQ(model.partition.period, narrow ? 2 : 1);
      EXPECT_EQ(model.partition.matrices[3].tiles.num_panels, workers == 1 ? 1 : 3);
      const Sequences::Id sequence = model.sequences().add();
      for (const int32_t id : random_ids(10, 3))
        results[narrow].push_back(model.run(model.step_of({{sequence, {id}}}), team)[0]);
    }
    // Where bands are cut, they are cut elsewhere: sums are rounded in another order.
    for (size_t row = 0; row < results[0].size(); ++row)
      for (size_t i = 0; i < results[0][row].size(); ++i)
        EXPECT_NEAR(results[0][row][i], results[1][row][i], workers == 1 ? 0. : 1e-4);
  }
}

// One to eight rows, of one request and of several, give each row the bits that it has alone; whoever walks.
TEST_F(FusedWalk, ARowHasTheBitsThatItHasAlone) {
  for (const char* architecture : {"llama", "gemma2"})
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      const std::string path = write({.architecture = architecture});
      const Ids ids = random_ids(60, 8), other = random_ids(19, 9);
      FusedModel alone(path, small_machine(5), dtype), together(path, small_machine(5, EdgeForm::tagged), dtype);
      WorkerTeam one(1), three(3);
      Rows expected, expected_other;
      const Sequences::Id a = alone.sequences().add(), b = alone.sequences().add();
      for (const int32_t id : ids) expected.push_back(alone.run(alone.step_of({{a, {id}}}), one)[0]);
      for (const int32_t id : other) expected_other.push_back(alone.run(alone.step_of({{b, {id}}}), one)[0]);

      const Sequences::Id c = together.sequences().add(), d = together.sequences().add();
      size_t of_c = 0, of_d = 0;
      for (size_t rows = 1; of_c < ids.size(); rows = rows % 8 + 1) {
        const size_t from_d = std::min(rows / 2, other.size() - of_d),
                     from_c = std::min(rows - from_d, ids.size() - of_c);
        std::vector<std::pair<Sequences::Id, Ids>> inputs;
        const auto next = [](const Ids& from, size_t at, size_t count) {
          return Ids(from.begin() + static_cast<std::ptrdiff_t>(at),
                     from.begin() + static_cast<std::ptrdiff_t>(at + count));
        };
        if (from_c > 0) inputs.push_back({c, next(ids, of_c, from_c)});
        if (from_d > 0) inputs.push_back({d, next(other, of_d, from_d)});
        const Rows logits = together.run(together.step_of(inputs), three);
        for (size_t i = 0; i < from_c; ++i) EXPECT_EQ(logits[i], expected[of_c + i]) << architecture << ", row " << i;
        for (size_t i = 0; i < from_d; ++i) EXPECT_EQ(logits[from_c + i], expected_other[of_d + i]) << architecture;
        of_c += from_c, of_d += from_d;
      }
    }
}

TEST_F(FusedWalk, HasTheSameBitsWithEveryEdgeHoweverManyThreadsTakeItsWorkers) {
  const std::string path = write({.weights = GgufWriter::kQ8_0});
  Rows expected;
  for (const auto& [threads, edge] : {std::pair{1, EdgeForm::counter}, std::pair{2, EdgeForm::tagged},
                                      std::pair{5, EdgeForm::counter}, std::pair{5, EdgeForm::tagged}}) {
    WorkerTeam team(threads);
    FusedModel model(path, small_machine(5, edge));
    const Sequences::Id sequence = model.sequences().add();
    Rows logits;
    for (const int32_t id : random_ids(20, 2)) logits.push_back(model.run(model.step_of({{sequence, {id}}}), team)[0]);
    if (expected.empty()) expected = logits;
    EXPECT_EQ(logits, expected) << threads << " threads, " << to_string(edge);
  }
}

TEST_F(FusedWalk, StandsBehindTheInterfaceOfLayers) {
  const std::string path = write({.architecture = "gemma2"});
  const ModelFile file(path);
  WorkerTeam team(2);
  const ForwardOptions options{.precision = Precision::exact, .max_tokens = 256, .max_sequences = 2, .team = &team};
  FusedModel model(path, small_machine(7));
  Sequences sequences(file.config(), options, DType::fp32);
  const std::unique_ptr<Layers> layers =
      make_walk_layers(file.config(), read_sources(file), options, sequences, small_machine(7));
  const Sequences::Id a = sequences.add(), b = model.sequences().add();
  std::vector<float> logits(2 * kRandomModelVocab);
  for (const std::vector<int64_t>& wanted : {std::vector<int64_t>{}, {2}, {0, 2}}) {
    const Ids ids = random_ids(3, wanted.size());
    Step step = model.step_of({{b, ids}});
    const Rows expected = model.run(step, team);
    sequences.append(a, 3);
    step.wanted = wanted;
    step.pages.clear();
    step.pages.add(sequences, a, sequences.length(a));
    layers->run(step, {.logits = logits.data()});
    for (size_t i = 0; i < wanted.size(); ++i) {
      const float* from = logits.data() + i * kRandomModelVocab;
      EXPECT_EQ(std::vector<float>(from, from + kRandomModelVocab), expected[static_cast<size_t>(wanted[i])]);
    }
  }
  EXPECT_GT(layers->weight_bytes(), 100000u);
  const std::string of_q6 = write({.weights = GgufWriter::kQ5_0});
  const ModelFile other(of_q6);
  EXPECT_THROW(make_walk_layers(other.config(), read_sources(other), options, sequences, small_machine(2)), Error);
}

}  // namespace
}  // namespace weft::testing
