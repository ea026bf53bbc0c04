// The fused step on a card, its generated kernels in the host machine: against the reference in fp64, beside other
// requests and alone, what it refuses, and a launch that a worker never joins.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include "base/log.h"
#include "decode/forward.h"
#include "decode/fused/cuda/attention_tables.h"
#include "decode/fused/cuda/check_fused.h"
#include "decode/fused/cuda/fused_layers.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/fused/cuda/model_text.h"
#include "decode/fused/cuda/tagged_cells.h"
#include "fused_parts.h"
#include "tests/decode/fused/some_step.h"
#include "weft/error.h"

namespace weft {
namespace {

using testing::errors_on_card;
using testing::GgufWriter;
using testing::random_ids;
using testing::random_model;
using testing::RandomModelOptions;
using Ids = std::vector<int32_t>;

constexpr double kMeanError = 0.025;  // as on a card

class FusedOnACard : public testing::FusedParts {
 protected:
  ~FusedOnACard() override { unsetenv("WEFT_STEP_LIMIT_MS"); }
};

// Layers in Q4_1, and a head of Q8_0 that is the embedding, as SmolLM2 has them: the model that most tests share, as a
// kernel takes seconds to compile.
GgufWriter llama() {
  RandomModelOptions options = testing::small_model("llama", GgufWriter::kQ4_1);
  options.tied = true;
  GgufWriter model = random_model(options);
  options.weights = GgufWriter::kQ8_0;
  model.tensor("token_embd.weight") = random_model(options).tensor("token_embd.weight");
  return model;
}

// Layers of two types: what leaves the gate is multiplied by Q8_0, all else by Q4_0.
GgufWriter of_two_types(RandomModelOptions options) {
  options.weights = GgufWriter::kQ4_0;
  GgufWriter model = random_model(options);
  options.weights = GgufWriter::kQ8_0;
  GgufWriter other = random_model(options);
  for (uint32_t layer = 0; layer < options.num_layers; ++layer) {
    const std::string down = fmt::format("blk.{}.ffn_down.weight", layer);
    model.tensor(down) = other.tensor(down);
  }
  return model;
}

class FusedLlama : public FusedOnACard {
 protected:
  FusedLlama() : path_(write_file(llama())) {}
  static ForwardOptions options(int sequences = 1) { return FusedParts::options(StepForm::fused, sequences); }
  std::string path_;
};

using decode::WeightRole;

decode::fused::Partition partition_of(const std::string& path, int workers) {
  using namespace decode::fused;
  const ModelFile file(path);
  const decode::Program program = decode::make_program(file.config());
  return make_partition(program, form_of(program, decode::read_sources(file)), card_machine(workers, program));
}

// The kernels for one row and for eight of each model, compiled side by side: one takes seconds.
void load_kernels(const std::vector<std::string>& paths) {
  using namespace decode::fused;
  std::vector<cuda::KernelText> texts;
  for (const std::string& path : paths) {
    const Partition partition = partition_of(path, cuda::runtime().num_multiprocessors(Device::cuda(0)));
    for (const int rows : {1, 8}) texts.push_back(model_text(partition, shape_of(partition, rows, DType::bf16)));
  }
  cuda::load_all(cuda::runtime(), Device::cuda(0), texts, WorkerTeam::shared());
}

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing was thrown";
}
void expect_says(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

// A worker that owns all columns has no room for those of 8 rows.
TEST_F(FusedOnACard, StepsHaveAsManyRowsAsFit) {
  testing::host_multiprocessors = 1;
  RandomModelOptions wide = model_of("llama");
  wide.num_layers = 1, wide.hidden_size = 3584;
  const std::string path = write(wide);
  EXPECT_EQ(decode::fused::most_rows(partition_of(path, 1)), 4);
  EXPECT_LE(errors_on_card(path, random_ids(7, 3), 6, {.step = StepForm::fused}).mean, kMeanError);

  const ModelFile file(path);
  ForwardOptions options{.device = Device::cuda(0), .max_tokens = 64, .step = StepForm::fused};
  EXPECT_EQ(ForwardPass(file, options).step_form(), "steps of up to 4 rows fused, others layered");
  options.step = StepForm::automatic;
  const ForwardPass forward(file, options);
  EXPECT_EQ(forward.step_form(), "steps of up to 4 rows fused, others layered");
  EXPECT_EQ(decode::StepProbe::most_rows(forward, StepForm::fused), 4);
}

// Eight rows, then one by one; windows of 5 tokens are shorter than the context. One model has an odd number of cells
// of 16 columns, a vocabulary that ends within a band, and two panels of `down`, the last of which ends within a cell.
TEST_F(FusedLlama, AgreesWithTheReferenceLikeEveryArchitectureAndTypeOfWeights) {
  std::vector<std::string> paths{path_};  // matrices of two types
  for (const auto& [architecture, weights] :
       {std::pair("qwen2", GgufWriter::kQ8_0), std::pair("gemma2", GgufWriter::kQ4_1)})
    paths.push_back(write(model_of(architecture, weights)));
  paths.push_back(write_file(of_two_types(model_of("qwen3"))));
  RandomModelOptions odd = model_of("gemma3");
  odd.hidden_size = 80, odd.vocab = 283, odd.intermediate_size = 8310;
  paths.push_back(write(odd));
  EXPECT_EQ(partition_of(paths.back(), kWorkers).matrix_of(WeightRole::down, 0).tiles.num_panels, 2);
  load_kernels(paths);
  for (const std::string& path : paths)
    EXPECT_LE(errors_on_card(path, random_ids(10, 3, 283), 8, {.step = StepForm::fused}).mean, kMeanError)
        << ModelFile(path).config().name;
}

// Who has no tiles of a product makes nothing of its input, and does its part of all others: with six workers of the
// output's 4 tiles, with ten also of the 8 of qkv.
TEST_F(FusedOnACard, WorkersWithoutTilesGoOn) {
  const std::string path = write(model_of("gemma2"));
  for (const auto& [workers, rows] : {std::pair(6, 1), std::pair(10, 8)}) {
    testing::host_multiprocessors = workers;
    const Ids ids = random_ids(8, 3);
    EXPECT_LE(errors_on_card(path, ids, static_cast<size_t>(rows), {.step = StepForm::fused}).mean, kMeanError)
        << workers;
  }
}

// As many CTAs as are asked for, whatever multiprocessors there are.
TEST_F(FusedOnACard, StepsRunInAsManyCtasAsAreAskedFor) {
  testing::host_multiprocessors = 4;
  const std::string path = write(model_of("qwen2"));
  int ctas = 0;
  testing::watch_launch = [&](const std::string& symbol, const cuda::Grid& grid, const void*) {
    if (symbol.starts_with("weft_step_of_")) ctas = grid.ctas;
  };
  for (const int asked : {1, 3}) {
    const ForwardOptions options{.step = StepForm::fused, .step_ctas = asked};
    EXPECT_LE(errors_on_card(path, random_ids(4, 3), 1, options).mean, kMeanError) << asked;
    EXPECT_EQ(ctas, asked);
  }
  const ModelFile file(path);
  for (const StepForm step : {StepForm::fused, StepForm::automatic})
    EXPECT_EQ(
        error_of([&] { const ForwardPass more(file, {.device = Device::cuda(0), .step = step, .step_ctas = 5}); }),
        "invalid_argument: step_ctas = 5; allowed are 1 to 4, the multiprocessors of cuda:0, and 0 for one on "
        "each");
  expect_says(error_of([&] { const ForwardPass fewer(file, {.step = StepForm::automatic, .step_ctas = -1}); }),
              "invalid_argument: step_ctas = -1; allowed are 1 to the device's multiprocessors");
  expect_says(error_of([&] { const ForwardPass layered(file, {.step_ctas = 2}); }),
              "invalid_argument: step_ctas = 2 with layered steps");
}

// Items with so many heads that each is a round of its own, and more cells than are merged at once.
TEST_F(FusedOnACard, AttentionAndMergesTakeSeveralRounds) {
  using namespace decode::fused;
  RandomModelOptions options = model_of("llama");
  options.num_kv_heads = 4, options.head_dim = 64, options.num_layers = 1;
  const std::string path = write(options);
  const Partition partition = partition_of(path, kWorkers);
  const testing::SomeStep last({{8, 72}});
  const AttentionTables tables = attention_tables(attention_items(partition, last.step, 0), last.step,
                                                  {.num_kv_heads = 4, .group = 1, .most_heads = most_heads(8, 1)});
  EXPECT_GE(tables.rounds.size(), 1u + 3 * kWorkers);
  const Range cells = partition.owned_cells(Shared::attended, 0);
  EXPECT_GT(cells.end - cells.begin, 2 * SharedLayout(shape_of(partition, 8, DType::bf16).sizes).merged_cells);

  const ModelFile file(path);
  ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 96, .step = StepForm::fused});
  const auto sequence = forward.add_sequence();
  const Ids ids = random_ids(72, 5);
  forward.run({{.sequence = sequence, .tokens = std::span(ids).first(64), .logit_rows = 0}});
  const TensorView logits =
      forward.run({{.sequence = sequence, .tokens = std::span(ids).last(8), .logit_rows = ForwardPass::kAllRows}});
  const std::vector<double> expected = testing::reference_log_probabilities(path, ids);
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  double sum = 0;
  for (size_t row = 0; row < 8; ++row)
    for (size_t id = 0; id < vocab; ++id)
      sum += std::abs(log_probability({logits.as<float>() + row * vocab, vocab}, static_cast<int32_t>(id)) -
                      expected[(64 + row) * vocab + id]);
  EXPECT_LE(sum / static_cast<double>(8 * vocab), kMeanError);
}

std::vector<float> copy_of(const float* row, size_t count) { return {row, row + count}; }

// A context of two chunks of keys, which steps that want no logits have filled; a token behind it alone, and beside
// requests of other lengths; and pages that requests are known to share. Whatever the order of threads, as a cell
// that two workers write has what the last one wrote.
TEST_F(FusedLlama, GivesARequestTheSameBitsAloneAndBesideOthers) {
  testing::host_in_all_orders = true;
  const ModelFile file(path_);
  ForwardPass forward(file, options(4));
  const Ids ids = random_ids(70, 9), others = random_ids(7, 10);
  const auto first = forward.add_sequence();
  for (size_t i = 0; i < 69; i += 8)
    forward.run(
        {{.sequence = first, .tokens = std::span(ids).subspan(i, std::min<size_t>(8, 69 - i)), .logit_rows = 0}});
  const auto fork = forward.fork(first, 69);
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  const auto token = std::span(ids).last(1);
  const std::vector<float> alone = copy_of(forward.run({{.sequence = first, .tokens = token}}).as<float>(), vocab);
  const std::vector<double> expected = testing::reference_log_probabilities(path_, ids);
  double sum = 0;
  for (size_t id = 0; id < vocab; ++id)
    sum += std::abs(log_probability(alone, static_cast<int32_t>(id)) - expected[69 * vocab + id]);
  EXPECT_LE(sum / static_cast<double>(vocab), kMeanError);

  const auto second = forward.add_sequence(), third = forward.add_sequence();
  const TensorView beside = forward.run({{.sequence = second, .tokens = std::span(others).first(3)},
                                         {.sequence = fork, .tokens = token},
                                         {.sequence = third, .tokens = std::span(others).last(4)}});
  EXPECT_EQ(copy_of(beside.as<float>() + vocab, vocab), alone);
  // Rows that are wanted do not follow each other: the second's third one, the fork's, and the third's fourth one.
  const std::vector<float> of_second = copy_of(beside.as<float>(), vocab);
  const std::vector<float> of_third = copy_of(beside.as<float>() + 2 * vocab, vocab);
  forward.truncate(third, 0);
  const TensorView third_alone = forward.run({{.sequence = third, .tokens = std::span(others).last(4)}});
  EXPECT_EQ(copy_of(third_alone.as<float>(), vocab), of_third);
  // A kernel of more rows than the first step has, for whose logits alone there is memory.
  ForwardPass other(file, options());
  const TensorView second_alone = other.run({{.sequence = other.add_sequence(), .tokens = std::span(others).first(3)}});
  EXPECT_EQ(copy_of(second_alone.as<float>(), vocab), of_second);

  forward.truncate(fork, 69), forward.truncate(first, 69);
  const ForwardPass::Input inputs[] = {{.sequence = fork, .tokens = token},
                                       {.sequence = first, .tokens = token},
                                       {.sequence = second, .tokens = std::span(others).first(3)}};
  const std::vector<int32_t> parent{-1}, pages{4}, nodes{0, 0, -1};
  const TensorView shared = forward.run(inputs, {.parent = parent, .num_pages = pages, .node_of_request = nodes});
  for (const size_t row : {0, 1}) EXPECT_EQ(copy_of(shared.as<float>() + row * vocab, vocab), alone) << row;
}

// Layers that see everything have many more states than those that slide: there is room for the most.
TEST_F(FusedOnACard, LongContextsOfSlidingLayersAgree) {
  const std::string path = write(model_of("gemma2", GgufWriter::kQ4_1));
  const ModelFile file(path);
  ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 512, .step = StepForm::fused});
  constexpr size_t kTokens = 449;
  const Ids ids = random_ids(kTokens, 5);
  const auto sequence = forward.add_sequence();
  for (size_t i = 0; i + 1 < kTokens; i += 8)
    forward.run({{.sequence = sequence, .tokens = std::span(ids).subspan(i, 8), .logit_rows = 0}});
  const TensorView logits = forward.run({{.sequence = sequence, .tokens = std::span(ids).last(1)}});
  const std::vector<double> expected = testing::reference_log_probabilities(path, ids);
  const auto vocab = static_cast<size_t>(file.config().vocab_size);
  double sum = 0;
  for (size_t id = 0; id < vocab; ++id)
    sum += std::abs(log_probability({logits.as<float>(), vocab}, static_cast<int32_t>(id)) -
                    expected[(kTokens - 1) * vocab + id]);
  EXPECT_LE(sum / static_cast<double>(vocab), kMeanError);
}

// As layered steps read the tiles of fused ones: no row is read from the file twice, whichever form reads it then, and
// prompts of many rows are layered though the step is to be fused.
TEST_F(FusedLlama, ReadsWeightsOnceForStepsOfEitherForm) {
  const ModelFile file(path_);
  for (const StepForm step : {StepForm::fused, StepForm::automatic}) {
    decode::ModelSources sources = decode::read_sources(file);
    std::atomic<int64_t> read = 0;
    int64_t rows = 0;
    const auto count = [&](decode::Sources& of) {
      for (ops::WeightSource& source : of) {
        rows += source.rows;
        source.read = [&read, inner = source.read](int64_t begin, int64_t end, void* to) {
          read += end - begin;
          inner(begin, end, to);
        };
      }
    };
    count(sources.embedding), count(sources.own_head);
    for (decode::LayerSources& layer : sources.layers)
      count(layer.qkv), count(layer.output), count(layer.gate_up), count(layer.down);
    ForwardOptions of = options();
    of.step = step;
    ForwardPass forward = make_forward_pass(file.config(), std::move(sources), of);
    EXPECT_EQ(forward.step_form(), "steps of up to 8 rows fused, others layered");
    EXPECT_EQ(read, rows);

    std::vector<std::string> launched;
    testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) {
      launched.push_back(symbol);
    };
    const Ids ids = random_ids(12, 6);
    const auto sequence = forward.add_sequence();
    const auto launches_of = [&](std::span<const int32_t> tokens) {
      launched.clear();
      forward.run({{.sequence = sequence, .tokens = tokens}});
      return std::ranges::count_if(launched, [](const std::string& s) { return s.starts_with("weft_step_of"); });
    };
    EXPECT_EQ(launches_of(std::span(ids).first(9)), 0);
    EXPECT_GT(launched.size(), 10u);
    EXPECT_EQ(launches_of(std::span(ids).subspan(9, 1)), 1);
    EXPECT_EQ(launches_of(std::span(ids).last(2)), 1);
    testing::watch_launch = nullptr;
  }
}

// Nothing behind the last layer's attention is copied then: nobody would read it, and it is more than the ring holds.
TEST_F(FusedOnACard, StepsWithoutLogitsEndWithTheLastAttention) {
  setenv("WEFT_STEP_LIMIT_MS", "100", 1);
  RandomModelOptions wide = model_of("llama");
  wide.num_layers = 1, wide.hidden_size = 256, wide.intermediate_size = 512;
  const ModelFile file(write(wide));
  ForwardPass forward(file, {.device = Device::cuda(0), .max_tokens = 64, .step = StepForm::fused});
  const auto sequence = forward.add_sequence();
  for (const int32_t id : {3, 4}) forward.run({{.sequence = sequence, .tokens = Ids{id}, .logit_rows = 0}});
  EXPECT_EQ(forward.length(sequence), 2);
}

// The others end, say who waits in which phase, and change nothing: the step that follows has the bits that it would
// have had.
TEST_F(FusedLlama, EndsAndSaysWhoWaitsWhereAWorkerNeverComes) {
  setenv("WEFT_STEP_LIMIT_MS", "1", 1);
  const ModelFile file(path_);
  const Ids ids = random_ids(3, 4);
  const auto run = [&](ForwardPass& forward, ForwardPass::SequenceId sequence, size_t token) {
    const TensorView logits = forward.run({{.sequence = sequence, .tokens = std::span(ids).subspan(token, 1)}});
    return copy_of(logits.as<float>(), static_cast<size_t>(logits.size()));
  };
  ForwardPass whole(file, options()), stuck(file, options());
  const auto a = whole.add_sequence(), b = stuck.add_sequence();
  std::vector<float> expected[3];
  for (const size_t token : {0, 1, 2}) expected[token] = run(whole, a, token);
  run(stuck, b, 0);
  for (const size_t token : {1, 2}) {
    testing::host_absent_ctas = 1;
    const std::string error = error_of([&] { run(stuck, b, token); });
    expect_says(error, "device_failed: the fused step on cuda:0: worker 0 waits in layer 0: ");
    expect_says(error, " for what the phase before leaves, and gave up; 1 of 2 workers did, all but 1");
    testing::host_absent_ctas = 0;
    EXPECT_EQ(stuck.length(b), static_cast<int64_t>(token));
    EXPECT_EQ(run(stuck, b, token), expected[token]) << token;
  }
}

// 32 bits end after some days of steps: cells of the numbers before would be taken for those of the step.
TEST_F(FusedOnACard, NumbersOfPhasesBeginAnewWithCellsThatAreZero) {
  using decode::fused::TaggedCells;
  constexpr uint32_t kPhases = 300'000;
  TaggedCells cells;
  uint64_t last = 0;
  int begins = 0;
  for (int step = 0; step < 30'000; ++step) {
    cells.reserve(Device::cuda(0), 64 + static_cast<size_t>(step / 5000), kPhases);
    const uint64_t first = cells.take(kPhases);
    if (first == 0) {
      ++begins;
      EXPECT_EQ(cells.data()[0], 0u);
    } else {
      ASSERT_EQ(first, last);
    }
    last = first + kPhases;
    ASSERT_LE(last, std::numeric_limits<uint32_t>::max());
    cells.data()[0] = last << 32;
  }
  EXPECT_GE(begins, 3);
  cells.reserve(Device::cuda(0), 64, kPhases);
  for (uint32_t launch = 0; launch < TaggedCells::kLaunches; ++launch) cells.take(kPhases);
  cells.data()[0] = 1;
  cells.forget();
  cells.reserve(Device::cuda(0), 64, kPhases);
  EXPECT_EQ(cells.data()[0], 0u);
  EXPECT_EQ(cells.take(kPhases), 0u);
  EXPECT_THROW(cells.take(std::numeric_limits<uint32_t>::max()), InternalError);
}

// ---------------------------------------------------------------- refusals

class FusedRefusals : public FusedLlama {
 protected:
  // What a forward pass that is to be fused throws.
  static std::string refusal(const std::string& path, ForwardOptions of = {}) {
    of.device = Device::cuda(0);
    of.max_tokens = 64;
    of.step = StepForm::fused;
    const ModelFile file(path);
    const std::string error = error_of([&] { const ForwardPass forward(file, of); });
    EXPECT_EQ(error.find("unsupported: "), 0u) << error;
    return error.substr(std::min(error.size(), error.find(": ") + 2));
  }
  // How one is made that may be either.
  static std::string form(const std::string& path, ForwardOptions of = {}) {
    of.device = Device::cuda(0);
    of.max_tokens = 64;
    of.step = StepForm::automatic;
    return ForwardPass(ModelFile(path), of).step_form();
  }
  std::string refusal(const RandomModelOptions& model) { return refusal(write(model)); }
};

TEST_F(FusedRefusals, NameWhatOptionsRequire) {
  const std::string exact = refusal(path_, {.precision = Precision::exact});
  EXPECT_EQ(exact,
            "the fused step: required precision exact; supported are default and fast; missing: products in fp32: "
            "x is multiplied in bf16");
  EXPECT_EQ(form(path_, {.precision = Precision::exact}), "layered: " + exact);
  for (const DType dtype : {DType::fp16, DType::fp32})
    EXPECT_EQ(refusal(path_, {.kv_dtype = dtype}), "the fused step: required kv_dtype " +
                                                       std::string(to_string(dtype)) +
                                                       "; supported is bf16; missing: attention over others");
  expect_says(refusal(path_, {.precision = Precision::fast, .kv_dtype = DType::int8}), "required kv_dtype int8");
  expect_says(refusal(path_, {.plan_mode = PlanMode::fixed_split, .fixed_split_size = 256}),
              "required plan_mode fixed_split; supported is balanced; missing: the same bits on any number of workers");
  const ModelFile file(path_);
  expect_says(error_of([&] { const ForwardPass on_cpu(file, {.step = StepForm::fused}); }),
              "unsupported: the fused step: required device cpu; supported are cards");
  EXPECT_EQ(
      ForwardPass(file, {.step = StepForm::automatic}).step_form().find("layered: the fused step: required device cpu"),
      0u);
  ForwardPass forward(file, options());
  const Ids ids{1};
  const auto sequence = forward.add_sequence();
  expect_says(error_of([&] { forward.run({{.sequence = sequence, .tokens = ids, .invariant = true}}); }),
              "unsupported: the fused step: required the same bits on any number of workers (invariant)");
  EXPECT_EQ(forward.length(sequence), 0);
}

TEST_F(FusedRefusals, NameTheTypesOfWeights) {
  for (const auto& [type, name] :
       {std::pair(GgufWriter::kF32, "F32"), std::pair(GgufWriter::kF16, "F16"), std::pair(GgufWriter::kQ5_0, "Q5_0")})
    expect_says(refusal(model_of("llama", type)),
                std::string("qkv: required weights of type ") + name +
                    "; supported by fused kernels are BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; missing: " + name);
  RandomModelOptions wide = model_of("llama", GgufWriter::kQ4_K);
  wide.hidden_size = wide.intermediate_size = 256, wide.head_dim = 64;
  expect_says(refusal(wide), "required weights of type Q4_K");

  const auto with_q8 = [&](const char* tensor) {
    RandomModelOptions options = model_of("llama", GgufWriter::kQ4_1);
    GgufWriter model = random_model(options);
    options.weights = GgufWriter::kQ8_0;
    model.tensor(tensor) = random_model(options).tensor(tensor);
    return refusal(write_file(model));
  };
  expect_says(with_q8("blk.1.attn_k.weight"), "layer 1: qkv: required rows of 3 types; supported is one type for all");
  expect_says(with_q8("blk.1.ffn_down.weight"),
              "layer 1: down: required weights of Q8_0 where layer 0 has Q4_1; supported are layers of the same types");
}

TEST_F(FusedRefusals, NameTheShape) {
  const auto with = [&](auto change) {
    RandomModelOptions options = model_of("llama");
    change(options);
    return refusal(options);
  };
  expect_says(with([](auto& o) { o.num_qo_heads = 17, o.num_kv_heads = 1; }),
              "required 17 query heads per KV head; supported are 1 to 16");
  expect_says(with([](auto& o) { o.head_dim = 24; }), "required head_dim 24; supported are multiples of 16 up to 256");
  expect_says(with([](auto& o) { o.head_dim = 320; }), "required head_dim 320");
  expect_says(with([](auto& o) { o.intermediate_size = 97; }), "required intermediate_size 97; supported are even");

  RandomModelOptions odd = model_of("llama");
  GgufWriter model = random_model(odd);
  model.value("llama.rope.dimension_count").data = testing::encode(uint32_t{6});
  expect_says(refusal(write_file(model)), "required pairs that rotate 3; supported are even numbers of them");
}

TEST_F(FusedRefusals, NameScalesThatAreNotFinite) {
  GgufWriter model = llama();
  std::string& data = model.tensor("blk.1.attn_k.weight").data;  // rows 64 to 95 of qkv; 40 bytes each, 2 blocks of 20
  data[5 * 40 + 20 + 2] = 0, data[5 * 40 + 20 + 3] = 0x7c;       // the least value of the second block of row 5: inf
  const std::string path = write_file(model), why = refusal(path);
  EXPECT_EQ(why,
            "the fused step: required qkv, row 69, columns from 32 on: a least value of fp16 bits 0x7c00, which is no "
            "finite number; supported are finite ones; missing: sums of others");
  EXPECT_EQ(form(path), "layered: " + why);
}

TEST_F(FusedRefusals, NameWhatTheCardLacks) {
  testing::host_ctas_of_multiprocessor = 0;
  const std::string why = refusal(path_);
  EXPECT_EQ(why, "the fused step: required 2 CTAs at once, supported by cuda:0 are 0, missing 2");
  EXPECT_EQ(form(path_), "layered: " + why);
  testing::host_ctas_of_multiprocessor = 2;

  // Once for one row, and of more rows when such a step comes: again and again, until they are free.
  const ModelFile file(path_);
  ForwardPass forward(file, options());
  const Ids ids = random_ids(8, 1);
  const auto sequence = forward.add_sequence();
  testing::host_ctas_of_multiprocessor = 0;
  for (int i = 0; i < 2; ++i) expect_says(error_of([&] { forward.run({{.sequence = sequence, .tokens = ids}}); }), why);
  testing::host_ctas_of_multiprocessor = 2;
  forward.run({{.sequence = sequence, .tokens = ids}});
  EXPECT_EQ(forward.length(sequence), 8);

  testing::host_most_bytes = 60'000;  // the weights of this model are more, its pages less
  expect_says(error_of([&] { const ForwardPass other(file, options()); }), "out_of_memory: a workspace of ");
  testing::host_most_bytes = std::numeric_limits<size_t>::max();
}

// Found with the step that needs it: layers have theirs from the step before.
TEST_F(FusedRefusals, LeaveStepsWithoutMemoryToLayersWithAutomaticForms) {
  const ModelFile file(path_);
  const Ids ids = random_ids(9, 1);
  for (const StepForm step : {StepForm::automatic, StepForm::fused}) {
    ForwardOptions of = options();
    of.step = step;
    ForwardPass forward(file, of);
    const auto sequence = forward.add_sequence();
    forward.run({{.sequence = sequence, .tokens = ids}});
    int fused = 0;
    testing::watch_launch = [&](const std::string& symbol, const cuda::Grid&, const void*) {
      fused += symbol.starts_with("weft_step_of");
    };
    const auto run = [&] { forward.run({{.sequence = sequence, .tokens = std::span(ids).first(1)}}); };
    testing::host_most_bytes = 1;
    static std::string said;
    said.clear();
    log::set_sink([](int, std::string_view line) { said = line; });
    const std::string error = error_of(run);
    log::set_sink(nullptr);
    expect_says(error, step == StepForm::automatic ? "nothing was thrown" : "out_of_memory: a workspace of ");
    EXPECT_EQ(said.starts_with("steps without memory to be fused run layered: out_of_memory: "),
              step == StepForm::automatic)
        << said;
    EXPECT_EQ(fused, 0);
    testing::host_most_bytes = std::numeric_limits<size_t>::max();
    EXPECT_EQ(forward.length(sequence), step == StepForm::automatic ? 10 : 9);
    forward.truncate(sequence, 8);  // fewer tokens ask for memory again
    run();
    EXPECT_EQ(fused, 1);
    testing::watch_launch = nullptr;
  }
}

TEST_F(FusedRefusals, NamePagesThatCannotBeCopied) {
  const auto refused = [](int64_t head_stride, int64_t first) {
    std::vector<uint16_t> bytes(4096);
    const auto begin = (reinterpret_cast<uintptr_t>(bytes.data()) + 15) / 16 * 16;
    const int64_t shape[] = {1, 2, 2, 16}, strides[] = {4 * head_stride, 2 * head_stride, head_stride, 1};
    const TensorView side(reinterpret_cast<uint16_t*>(begin) + first, DType::bf16, shape, strides);
    return error_of([&] { decode::fused::check_pages({side, side}); });
  };
  EXPECT_EQ(refused(16, 0), "nothing was thrown");
  for (const auto& [stride, first] : {std::pair(20, 0), std::pair(16, 4)})
    expect_says(refused(stride, first),
                "supported are heads of neighbouring elements that begin at multiples of 16 bytes");
}

}  // namespace
}  // namespace weft
