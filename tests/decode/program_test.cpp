// The operations of a step, of each family.
#include "decode/program.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "models/layers.h"
#include "tests/decode/random_forward.h"

namespace weft::decode {
namespace {

using testing::RandomModelOptions;

ModelConfig config_of(const RandomModelOptions& options) {
  const testing::TempFolder folder;
  const std::string path = folder.path("model.gguf");
  testing::random_model(options).write(path);
  return ModelFile(path).config();
}
Program program_of(const RandomModelOptions& options) { return make_program(config_of(options)); }

RandomModelOptions small(const char* architecture, uint32_t num_layers = 2) {
  RandomModelOptions options = testing::small_model(architecture);
  options.num_layers = num_layers;
  return options;
}
std::vector<RandomModelOptions> all_families() {
  std::vector<RandomModelOptions> all;
  for (const char* architecture : testing::kArchitectures)
    for (const uint32_t layers : {1, 2, 7})
      for (const bool other : {false, true}) {
        all.push_back(small(architecture, layers));
        all.back().tied = all.back().output_bias = other;
      }
  return all;
}

TEST(Program, OfLlamaIsNormProductsRotationAttentionAndGate) {
  EXPECT_EQ(to_string(program_of(small("llama"))),
            R"(2 layers, 4 query and 2 KV heads of 16, norm eps 1e-05
columns of a row: tokens 1, residual 64, normed 64, query 64, key 32, value 32, attended 64,
  projected 64, gate 96, up 96, gated 96, logits 288, cache 64
before the layers
  embed       residual          <- tokens               embedding [288 x 64]
layers 0 to 1
  norm        normed            <- residual             attn_norm [64]
  project     query, key, value <- normed               qkv [128 x 64]
  rotate      query, key        <- query, key           adjacent pairs, theta 10000
  append      cache             <- key, value
  attend      attended          <- query, cache         scale 0.25
  project     projected         <- attended             output [64 x 64]
  add         residual          <- residual, projected
  norm        normed            <- residual             ffn_norm [64]
  project     gate, up          <- normed               gate_up [192 x 64]
  gate        gated             <- gate, up             silu
  project     projected         <- gated                down [64 x 96]
  add         residual          <- residual, projected
behind the layers
  norm        normed            <- residual             output_norm [64]
  project     logits            <- normed               head [288 x 64]
a step without logits ends before attend of layer 1; behind it only rows that give logits go on
)");
}

// Of one layer, from its norm to its projection: where Qwen differs.
std::string attention_lines(const Program& program) {
  std::string lines;
  for (const Operation& operation : operations_of(program, 0)) {
    if (operation.kind == OperationKind::add) break;
    lines += to_string(operation, program) + "\n";
  }
  return lines;
}

TEST(Program, OfQwen2HasABiasAndOfQwen3NormsOfHeads) {
  EXPECT_EQ(attention_lines(program_of(small("qwen2"))),
            R"(norm        normed            <- residual             attn_norm [64]
project     query, key, value <- normed               qkv [128 x 64]
add_bias    query, key, value <- query, key, value    qkv_bias [128]
rotate      query, key        <- query, key           halves pairs, theta 10000
append      cache             <- key, value
attend      attended          <- query, cache         scale 0.25
project     projected         <- attended             output [64 x 64]
)");
  RandomModelOptions with_bias = small("qwen3");
  with_bias.output_bias = true;
  EXPECT_EQ(attention_lines(program_of(with_bias)),
            R"(norm        normed            <- residual             attn_norm [64]
project     query, key, value <- normed               qkv [128 x 64]
norm_heads  query, key        <- query, key           q_norm [16], k_norm [16]
rotate      query, key        <- query, key           halves pairs, theta 10000
append      cache             <- key, value
attend      attended          <- query, cache         scale 0.25
project     projected         <- attended             output [64 x 64]
add_bias    projected         <- projected            output_bias [64]
)");
}

TEST(Program, OfGemma2CapsAndNormsWhatItAddsAndSlidesInEverySecondLayer) {
  RandomModelOptions model = small("gemma2", 4);
  model.tied = true;
  EXPECT_EQ(to_string(program_of(model)),
            R"(4 layers, 4 query and 2 KV heads of 16, norm eps 1e-05
columns of a row: tokens 1, residual 64, normed 64, query 64, key 32, value 32, attended 64,
  projected 64, gate 96, up 96, gated 96, logits 288, cache 64
before the layers
  embed       residual          <- tokens               embedding [288 x 64], scale 8
layers 0 to 3, 0 of every 2
  norm        normed            <- residual             attn_norm [64]
  project     query, key, value <- normed               qkv [128 x 64]
  rotate      query, key        <- query, key           halves pairs, theta 10000
  append      cache             <- key, value
  attend      attended          <- query, cache         scale 0.25, soft cap 5, window 5
  project     projected         <- attended             output [64 x 64]
  norm        projected         <- projected            attn_post_norm [64]
  add         residual          <- residual, projected
  norm        normed            <- residual             ffn_norm [64]
  project     gate, up          <- normed               gate_up [192 x 64]
  gate        gated             <- gate, up             gelu_tanh
  project     projected         <- gated                down [64 x 96]
  norm        projected         <- projected            ffn_post_norm [64]
  add         residual          <- residual, projected
layers 0 to 3, 1 of every 2
  norm        normed            <- residual             attn_norm [64]
  project     query, key, value <- normed               qkv [128 x 64]
  rotate      query, key        <- query, key           halves pairs, theta 10000
  append      cache             <- key, value
  attend      attended          <- query, cache         scale 0.25, soft cap 5
  project     projected         <- attended             output [64 x 64]
  norm        projected         <- projected            attn_post_norm [64]
  add         residual          <- residual, projected
  norm        normed            <- residual             ffn_norm [64]
  project     gate, up          <- normed               gate_up [192 x 64]
  gate        gated             <- gate, up             gelu_tanh
  project     projected         <- gated                down [64 x 96]
  norm        projected         <- projected            ffn_post_norm [64]
  add         residual          <- residual, projected
behind the layers
  norm        normed            <- residual             output_norm [64]
  project     logits            <- normed               embedding [288 x 64]
  soft_cap    logits            <- logits               cap 3
a step without logits ends before attend of layer 3; behind it only rows that give logits go on
)");
}

// The lines of layers and what follows them up to attention.
TEST(Program, OfGemma3SaysItsFiveSlidingLayersOnceAndTheOneThatSeesAllOnce) {
  RandomModelOptions model = small("gemma3", 13);
  model.theta = 500000.f;
  const Program program = program_of(model);
  EXPECT_EQ(layer_period(program), 6);
  const std::string text = to_string(program);
  std::string some;
  for (size_t begin = 0, end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = text.substr(begin, end - begin + 1);
    if (line.starts_with("layers") || line.starts_with("  norm_heads") || line.starts_with("  rotate") ||
        line.starts_with("  attend"))
      some += line;
  }
  EXPECT_EQ(some,
            R"(layers 0 to 12, 0 to 4 of every 6
  norm_heads  query, key        <- query, key           q_norm [16], k_norm [16]
  rotate      query, key        <- query, key           halves pairs, theta 10000
  attend      attended          <- query, cache         scale 0.25, window 5
layers 0 to 12, 5 of every 6
  norm_heads  query, key        <- query, key           q_norm [16], k_norm [16]
  rotate      query, key        <- query, key           halves pairs, theta 500000
  attend      attended          <- query, cache         scale 0.25
)");
}

TEST(Program, RepeatsAfterAsManyLayersAsDiffer) {
  EXPECT_EQ(layer_period(program_of(small("llama", 1))), 1);
  EXPECT_EQ(layer_period(program_of(small("qwen3", 7))), 1);
  EXPECT_EQ(layer_period(program_of(small("gemma2", 2))), 2);
  EXPECT_EQ(layer_period(program_of(small("gemma2", 5))), 2);
  EXPECT_EQ(layer_period(program_of(small("gemma3", 5))), 1);  // all slide
  EXPECT_EQ(layer_period(program_of(small("gemma3", 6))), 6);  // nothing repeats
  EXPECT_NE(to_string(program_of(small("gemma3", 6))).find("\nlayer 5\n"), std::string::npos);
  EXPECT_EQ(layer_period(program_of(small("gemma3", 7))), 6);
}

TEST(Program, ReadsWhatWasWrittenBeforeAndMultipliesByTheColumnsOfBuffers) {
  for (const RandomModelOptions& options : all_families()) {
    const Program program = program_of(options);
    const auto cols_of = [&](const std::vector<Buffer>& buffers) {
      int64_t cols = 0;
      for (const Buffer buffer : buffers) cols += program.cols_of(buffer);
      return cols;
    };
    std::set<Buffer> written{Buffer::tokens};
    for (const Operation& operation : program.operations) {
      const std::string line = options.architecture + ": " + to_string(operation, program);
      for (const Buffer buffer : operation.reads) EXPECT_TRUE(written.contains(buffer)) << line;
      written.insert(operation.writes.begin(), operation.writes.end());
      if (operation.kind == OperationKind::project) {
        EXPECT_EQ(operation.weights.at(0).rows, cols_of(operation.writes)) << line;
        EXPECT_EQ(operation.weights.at(0).cols, cols_of(operation.reads)) << line;
      }
      if (operation.kind == OperationKind::norm || operation.kind == OperationKind::add_bias) {
        EXPECT_EQ(operation.weights.at(0).cols, cols_of(operation.writes)) << line;
      }
    }
  }
}

// The list of a model's tensors (models/layers.h) is made apart from this one.
TEST(Program, MultipliesByEveryWeightOfTheModelOnce) {
  for (const RandomModelOptions& options : all_families()) {
    const ModelConfig config = config_of(options);
    const Program program = make_program(config);
    int64_t expected = 0, elements = 0;
    for (const ExpectedWeight& weight : expected_weights(config)) expected += weight.rows * weight.cols;
    std::map<std::pair<int, WeightRole>, int> uses;
    for (const Operation& operation : program.operations)
      for (const Weight& weight : operation.weights)
        if (++uses[{operation.layer, weight.role}] == 1) elements += weight.rows * weight.cols;
    EXPECT_EQ(elements, expected) << options.architecture;
    for (const auto& [weight, count] : uses)
      EXPECT_EQ(count, config.tied_embeddings && weight.second == WeightRole::embedding ? 2 : 1)
          << options.architecture << " " << to_string(weight.second);
  }
}

TEST(Program, CutsIntoWhatStandsBeforeInAndBehindTheLayers) {
  for (const RandomModelOptions& options : all_families()) {
    const Program program = program_of(options);
    std::vector<Operation> all;
    for (int layer = -1; layer <= program.num_layers; ++layer)
      for (const Operation& operation : operations_of(program, layer)) {
        EXPECT_EQ(operation.layer, layer == program.num_layers ? -1 : layer);
        all.push_back(operation);
      }
    EXPECT_EQ(all, program.operations);
    const Operation& attend = program.operations.at(program.last_attend);
    EXPECT_EQ(attend.kind, OperationKind::attend);
    EXPECT_EQ(attend.layer, program.num_layers - 1);
  }
}

TEST(Program, SlidesInTheLayersThatTheModelSaysSo) {
  for (const RandomModelOptions& options : all_families()) {
    const ModelConfig config = config_of(options);
    const Program program = make_program(config);
    EXPECT_EQ(program.ropes.size(), config.sliding_window > 0 ? 2u : 1u);
    for (const Operation& operation : program.operations) {
      const bool slides = operation.layer >= 0 && layer_slides(config, operation.layer);
      EXPECT_EQ(operation.rope, slides && operation.kind == OperationKind::rotate ? 1 : 0);
      EXPECT_EQ(operation.window, slides && operation.kind == OperationKind::attend ? config.sliding_window : 0);
    }
  }
}

}  // namespace
}  // namespace weft::decode
