// The texts of fused decoding's kernels: one as it is kept, and what they take once compiled for the architecture that
// they run on, as a table says. Where there is no NVRTC the latter is skipped, and says so.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "decode/fused/cuda/check_fused.h"
#include "decode/fused/cuda/deep_linear.h"
#include "decode/fused/cuda/model_kernel.h"
#include "decode/fused/cuda/model_text.h"
#include "jit/build.h"
#include "jit/nvrtc/cubin.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/decode/fused/shapes.h"
#include "tests/support/cubins.h"

namespace weft::decode::fused {
namespace {

using weft::testing::error_of;
using weft::testing::gemma_small;
using weft::testing::has;
using weft::testing::llama_8b;

ModelConfig qwen3_8b() {
  ModelConfig config = llama_8b();
  config.architecture = "qwen3";
  config.num_layers = 36, config.intermediate_size = 12288, config.vocab_size = 151936;
  config.qk_norm = true;
  config.rope.pairs = RopePairs::halves;
  return config;
}
ModelConfig gemma3_4b() {
  ModelConfig config = gemma_small();
  config.architecture = "gemma3";
  config.num_layers = 34, config.hidden_size = 2560, config.intermediate_size = 10240, config.vocab_size = 262144;
  config.num_qo_heads = 8, config.num_kv_heads = 4, config.head_dim = 256;
  config.sliding_window = 1024, config.sliding_period = 6;
  config.qk_norm = true, config.logits_soft_cap = 0;
  config.rope.pairs = config.sliding_rope.pairs = RopePairs::halves;
  return config;
}

cuda::KernelText text_of(const ModelConfig& config, WeightType type, int rows, int workers = 132) {
  const Program program = make_program(config);
  check_shape(config, program);
  const Partition partition = make_partition(program, form_of(program, type), card_machine(workers, program));
  check_weights(partition);
  return model_text(partition, shape_of(partition, rows, DType::bf16));
}

// WEFT_UPDATE_GOLDEN=1 writes what it is now.
TEST(FusedText, IsAsKept) {
  ModelConfig config = gemma_small();
  config.architecture = "gemma3";
  config.qk_norm = true;
  const std::string text = text_of(config, WeightType::q4_1, 2, 4).instances, path = WEFT_GOLDEN "/step_of_gemma3.txt";
  if (std::getenv("WEFT_UPDATE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::ostringstream kept;
  kept << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, kept.str());
}

// Whatever product it stands behind.
TEST(FusedText, AddsEveryBiasOfTheProgram) {
  ModelConfig config = llama_8b();
  config.output_bias = true;
  Program program = make_program(config);
  const auto bias = std::ranges::find(program.operations, OperationKind::add_bias, &Operation::kind);
  ASSERT_EQ(bias->weights[0].role, WeightRole::output_bias);
  for (int layer = 0; layer < program.num_layers; ++layer) {
    Operation of_down = *std::ranges::find(program.operations, OperationKind::add_bias, &Operation::kind);
    of_down.layer = layer;
    const auto down = std::ranges::find_if(program.operations, [&](const Operation& operation) {
      return operation.layer == layer && !operation.weights.empty() && operation.weights[0].role == WeightRole::down;
    });
    program.operations.insert(down + 1, of_down);
  }
  const Partition partition = make_partition(program, form_of(program, WeightType::bf16), card_machine(132, program));
  const std::string text = model_text(partition, shape_of(partition, 1, DType::bf16)).instances;
  for (const char* call : {"step.add<Output>(vectors + ", "step.add<Down>(vectors + "})
    EXPECT_TRUE(has(text, call)) << text;
}

// A layer that does not turn its heads, or scales its logits otherwise, would run as the first one.
TEST(FusedText, IsRefusedWhereLayersDiffer) {
  const ModelConfig config = gemma_small();
  const auto refusal = [&](const auto& change) {
    Program program = make_program(config);
    check_shape(config, program);
    change(program.operations);
    return error_of([&] { check_shape(config, program); });
  };
  const auto in_layer = [](std::vector<Operation>& all, int layer, OperationKind kind) {
    return std::ranges::find_if(all, [&](const Operation& of) { return of.layer == layer && of.kind == kind; });
  };
  const std::pair<std::string, const char*> refusals[] = {
      {refusal([&](auto& all) { all.erase(in_layer(all, 2, OperationKind::rotate)); }),
       "the fused step: required in layer 2 append where layer 0 has rotate; supported are layers that differ in what "
       "attention sees alone"},
      {refusal([&](auto& all) { in_layer(all, 3, OperationKind::attend)->scale *= 2; }),
       "required in layer 3 attend where layer 0 has attend with other numbers"},
      {refusal([&](auto& all) { in_layer(all, 1, OperationKind::rotate)->rope ^= 1; }), "required in layer 1 rotate"},
  };
  for (const auto& [error, part] : refusals) EXPECT_TRUE(has(error, part)) << error;
}

TEST(FusedText, IsTheSameForTheSamePartition) {
  EXPECT_EQ(text_of(llama_8b(), WeightType::bf16, 1), text_of(llama_8b(), WeightType::bf16, 1));
  EXPECT_NE(text_of(llama_8b(), WeightType::bf16, 1).hash(), text_of(llama_8b(), WeightType::bf16, 1, 131).hash());
}

ModelConfig llama_70b() {
  ModelConfig config = llama_8b();
  config.num_layers = 80, config.hidden_size = 8192, config.intermediate_size = 28672, config.num_qo_heads = 64;
  return config;
}
Partition card_partition(const ModelConfig& config, WeightType type, int workers) {
  const Program program = make_program(config);
  return make_partition(program, form_of(program, type), card_machine(workers, program));
}

// Fewer where columns are many, or where few workers own them.
TEST(FusedText, IsThereForAsManyRowsAsFit) {
  ModelConfig wide = llama_70b();
  wide.hidden_size = 16384;
  struct Expected {
    ModelConfig config;
    int workers, rows;
  };
  for (const auto& [config, workers, rows] :
       {Expected{llama_8b(), 132, 8}, Expected{llama_70b(), 132, 8}, Expected{llama_70b(), 32, 4},
        Expected{wide, 132, 4}, Expected{llama_8b(), 2, 4}, Expected{llama_70b(), 2, 2}}) {
    const Partition partition = card_partition(config, WeightType::q4_g128, workers);
    EXPECT_EQ(most_rows(partition), rows) << config.hidden_size << " columns, " << workers << " workers";
    for (int fits = 1; fits <= rows; fits *= 2) {
      const ModelShape shape = shape_of(partition, fits, DType::bf16);
      EXPECT_LE(SharedLayout(shape.sizes).bytes, kMostSharedBytes);
      EXPECT_GE(shape.sizes.ring_bytes, partition.machine.entry_bytes + item_entry_bytes(64, 128));
    }
    if (rows == kMostRows) continue;
    const std::string refusal = error_of([&] { shape_of(partition, 2 * rows, DType::bf16); });
    EXPECT_TRUE(has(refusal, fmt::format("the fused step of {} rows: required ", 2 * rows)) &&
                has(refusal, fmt::format("; steps of up to {} rows fit", rows)))
        << refusal;
  }
  ModelConfig widest = llama_8b();
  widest.hidden_size = 65536;
  const std::string refusal = error_of([&] { most_rows(card_partition(widest, WeightType::bf16, 2)); });
  EXPECT_TRUE(has(refusal, "unsupported: the fused step of 1 row: required ")) << refusal;
}

// Partial sums of a worker's round lie in halves that take turns: too small ones lie on each other.
TEST(FusedText, HasRoomForTheSumsOfEveryWorker) {
  int first_has_fewer = 0;
  const auto parts_of = [](const MatrixPartition& matrix, int worker, const ModelSizes& sizes) {
    const auto [begin, end] = matrix.tiles_of(worker);
    const int64_t panel = begin / matrix.tiles.panel_tiles() * matrix.tiles.panel_tiles();
    const MatrixTiles tiles{.band_tiles = static_cast<int>(matrix.tiles.strip_tiles()),
                            .entry_tiles = static_cast<int>(matrix.entry_bytes / matrix.tiles.parts[0].tile_bytes),
                            .tile_cols = static_cast<int>(matrix.tiles.tile_cols)};
    return share_of(sizes, tiles, static_cast<int>(begin - panel), static_cast<int>(end - panel)).round_parts();
  };
  ModelConfig config = gemma_small();
  config.intermediate_size = 32;  // the head's shares, in whole bands, are the most
  for (int workers = 1; workers < 20; ++workers) {
    const Partition partition = card_partition(config, WeightType::q8_0, workers);
    const ModelSizes sizes = shape_of(partition, 1, DType::bf16).sizes;
    int most = 0, of_first = 0;  // of the first worker
    for (const MatrixPartition& matrix : partition.matrices)
      for (int w = 0; w < workers; ++w) {
        most = std::max(most, parts_of(matrix, w, sizes));
        if (w == 0) of_first = std::max(of_first, parts_of(matrix, w, sizes));
      }
    EXPECT_EQ(sizes.half_parts, most) << workers << " workers";
    first_has_fewer += of_first < most;
  }
  EXPECT_GT(first_has_fewer, 0);
}

std::string table() {
  std::string lines;
  std::ifstream table(WEFT_KERNEL_RESOURCES);
  for (std::string line; std::getline(table, line);)
    if (line.starts_with("sm_90a")) lines += line + "\n";
  return lines;
}

TEST(FusedText, IsRefusedForOddColumnsAndPairsInTwoOrders) {
  const auto refusal = [](const auto& change) {
    ModelConfig config = gemma_small();
    change(config);
    return error_of([&] { check_shape(config, make_program(config)); });
  };
  EXPECT_EQ(refusal([](ModelConfig&) {}), "nothing was thrown");
  const std::string odd = refusal([](ModelConfig& config) { config.hidden_size = 97; });
  EXPECT_TRUE(has(odd, "required hidden_size 97; supported are even numbers")) << odd;
  const std::string orders = refusal([](ModelConfig& config) {
    config.sliding_rope.pairs = config.rope.pairs == RopePairs::halves ? RopePairs::adjacent : RopePairs::halves;
  });
  EXPECT_TRUE(has(orders, "required pairs of layers in two orders; supported is one order for all layers")) << orders;
}

TEST(FusedText, IsRefusedWhereTablesAreTooNarrow) {
  ModelConfig wide = llama_8b();
  wide.hidden_size = 65600;
  EXPECT_TRUE(has(error_of([&] { check_shape(wide, make_program(wide)); }),
                  "required hidden_size 65600; supported are up to 65536"));
  ModelConfig tall = gemma_small();
  tall.intermediate_size = 600000;
  const std::string error = error_of([&] { text_of(tall, WeightType::bf16, 1); });
  EXPECT_TRUE(has(error, "sums of gate_up; supported are up to 65535")) << error;
}

TEST(FusedText, TakesTheResourcesOfTheTable) {
  const jit::CompilerSearch search = jit::nvrtc_toolchain().find(nullptr);
  if (search.compiler == nullptr) GTEST_SKIP() << "no NVRTC here: " << search.tried << "; " << search.remedy;
  if (search.compiler->version != "NVRTC 12.9")
    GTEST_SKIP() << "the table is of NVRTC 12.9; here is " << search.compiler->version;
  std::string taken;
  const auto compile = [&](const cuda::KernelText& text, const std::string& of) {
    weft::testing::count_cubin();
    const jit::Built built =
        jit::build({.name = text.symbol, .text = text.text(), .target = jit::nvrtc_target("sm_90a")});
    for (const jit::KernelResources& kernel : jit::kernel_resources(built.bytes)) {
      EXPECT_EQ(kernel.static_shared_bytes, 0) << kernel.name;
      taken += fmt::format("sm_90a {}{} {} {}\n", kernel.name, of, kernel.registers, kernel.stack_bytes);
    }
  };
  std::vector<DeepLinearOptions> all{{.n = 4096, .edge = EdgeForm::counter}, {.n = 4096, .type = WeightType::bf16}};
  for (const WeightType type :
       {WeightType::bf16, WeightType::q8_0, WeightType::q4_0, WeightType::q4_1, WeightType::q4_g128})
    all.push_back({.n = 4096, .type = type, .rows = 8});
  for (DeepLinearOptions& options : all) {
    options.workers = 132;
    compile(deep_linear_text(options), "");
  }
  for (const ModelConfig& config : {llama_8b(), qwen3_8b(), gemma3_4b()})
    for (const int rows : {1, 8}) compile(text_of(config, WeightType::bf16, rows), "/" + config.architecture + "/BF16");
  for (const WeightType type : {WeightType::q8_0, WeightType::q4_0, WeightType::q4_1, WeightType::q4_g128})
    compile(text_of(llama_8b(), type, 1), fmt::format("/llama/{}", weft::to_string(type)));
  EXPECT_EQ(taken, table()) << "the table's lines:\n" << taken;
}

}  // namespace
}  // namespace weft::decode::fused
