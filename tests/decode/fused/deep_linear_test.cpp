// A deep linear network in the host machine: against sums in double, rows alone and together, cut bands, each form.
#include "decode/fused/cuda/deep_linear.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

#include "ops/cuda/tiled_weights.h"
#include "tests/decode/fused/host_runtime.h"
#include "tests/decode/fused/instances.h"
#include "tests/ops/weights.h"
#include "weft/error.h"

#define WEFT_DECLARE(symbol, ...) extern "C" void symbol(weft::decode::fused::DeepLinearArgs args);
WEFT_DEEP_LINEARS(WEFT_DECLARE)

namespace weft::decode::fused {
namespace {

std::map<std::string, testing::HostRuntime::Call> kernels() {
#define WEFT_ENTRY(symbol, ...) {#symbol, [](const void* args) { symbol(*static_cast<const DeepLinearArgs*>(args)); }},
  return {WEFT_DEEP_LINEARS(WEFT_ENTRY)};
}

uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
float from_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

// Random normal weights and rows of x.
struct Network {
  Network(int n, int layers, int rows) : size(static_cast<size_t>(n)) {
    std::mt19937 random(20261127);
    std::normal_distribution<float> normal;
    for (int layer = 0; layer < layers; ++layer) {
      std::vector<uint16_t>& w = weights.emplace_back(size * size);
      for (uint16_t& value : w) value = to_bf16(normal(random));
    }
    for (int i = 0; i < n * rows; ++i) x.push_back(normal(random));
    scale = 1 / std::sqrt(static_cast<float>(n));
  }
  std::vector<uint16_t> packed() const {
    std::vector<uint16_t> all;
    for (const std::vector<uint16_t>& w : weights) {
      std::vector<uint16_t> of(w.size());
      pack_fragments(w.data(), static_cast<int64_t>(size), static_cast<int64_t>(size), of.data());
      all.insert(all.end(), of.begin(), of.end());
    }
    return all;
  }
  // What one layer makes of a row, in double, and the sum of sizes.
  void multiply(size_t layer, const float* row, std::vector<double>& y, std::vector<double>& sizes) const {
    y.assign(size, 0), sizes.assign(size, 0);
    for (size_t i = 0; i < size; ++i)
      for (size_t k = 0; k < size; ++k) {
        const double product =
            double{from_bf16(weights[layer][i * size + k])} * double{from_bf16(to_bf16(row[k] * scale))};
        y[i] += product, sizes[i] += std::fabs(product);
      }
  }
  size_t size;
  std::vector<std::vector<uint16_t>> weights;
  std::vector<float> x;
  float scale;
};

// Launches, and the results of each.
struct NetworkOnHost {
  explicit NetworkOnHost(const Network& network, int workers = 30) : runtime(memory, kernels(), workers) {
    weights = memory.make("weights", network.packed()).data();
    x = memory.make("x", network.x).data();
  }
  char* start(const DeepLinear& of) {
    char* const workspace = memory.make<char>("workspace", of.workspace_bytes()).data();
    of.start(workspace, {});
    return workspace;
  }
  // In one launch, or layer by layer.
  std::vector<float> run(const DeepLinearOptions& options, bool apart = false, const float* from = nullptr) {
    const DeepLinear network(runtime, Device::cuda(0), options);
    char* const workspace = start(network);
    const float* const input = from != nullptr ? from : x;
    for (int layer = 0; layer < (apart ? options.layers : 1); ++layer)
      network.run(workspace,
                  {.weights = static_cast<char*>(weights) + static_cast<size_t>(layer) * network.weight_bytes(),
                   .x = layer == 0 ? input : nullptr,
                   .first_phase = static_cast<uint32_t>(layer),
                   .layers = apart ? 1 : options.layers},
                  {});
    return network.result(workspace, static_cast<uint32_t>(options.layers), {});
  }
  simt::Memory memory;
  testing::HostRuntime runtime;
  void* weights;
  float* x;
};

DeepLinearOptions options_of(const Network& network, int rows, int workers) {
  return {.n = static_cast<int>(network.size),
          .layers = static_cast<int>(network.weights.size()),
          .rows = rows,
          .workers = workers,
          .warps = 2,
          .entries = 4,
          .entry_bytes = 1024,
          .ahead_bytes = 1024,
          .beside_bytes = 2048,
          .scale = network.scale};
}

struct Case {
  int n, workers, rows;
  EdgeForm edge;
  int entry_fragments;
};
class DeepLinearIs : public ::testing::TestWithParam<Case> {};

// One layer: sums in fp32 within their rounding of those in double.
TEST_P(DeepLinearIs, AProductOfEachRow) {
  const auto [n, workers, rows, edge, entry_fragments] = GetParam();
  const Network network(n, 1, rows);
  NetworkOnHost machine(network);
  DeepLinearOptions options = options_of(network, rows, workers);
  options.edge = edge;
  options.entry_bytes = 512 * entry_fragments;
  const std::vector<float> y = machine.run(options);
  std::vector<double> expected, sizes;
  for (size_t row = 0; row < static_cast<size_t>(rows); ++row) {
    network.multiply(0, network.x.data() + row * network.size, expected, sizes);
    for (size_t i = 0; i < network.size; ++i)
      ASSERT_NEAR(double{y[row * network.size + i]}, expected[i], 1e-6 * sizes[i]) << row << ", " << i;
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, DeepLinearIs,
                         ::testing::Values(Case{64, 3, 1, EdgeForm::tagged, 2}, Case{64, 5, 3, EdgeForm::counter, 3},
                                           Case{128, 4, 8, EdgeForm::tagged, 5}, Case{208, 5, 2, EdgeForm::tagged, 24},
                                           Case{256, 3, 2, EdgeForm::counter, 8},
                                           Case{176, 30, 1, EdgeForm::tagged, 2}));

// Three layers in one launch have the bits of one layer after another, with every form of edge, ahead or not; so do all
// warps and entries that cut sums in the same places.
TEST(DeepLinear, HasTheSameBitsInEveryForm) {
  const Network network(176, 3, 2);
  NetworkOnHost machine(network);
  DeepLinearOptions options = options_of(network, 2, 3);
  const std::vector<float> apart = machine.run(options, true);
  EXPECT_EQ(machine.run(options), apart);
  DeepLinearOptions two = options;
  two.layers = 2;
  const std::vector<float> before = machine.run(two);
  std::vector<double> expected, sizes;
  network.multiply(2, before.data() + network.size, expected, sizes);
  for (size_t i = 0; i < network.size; ++i)
    ASSERT_NEAR(double{apart[network.size + i]}, expected[i], 1e-6 * sizes[i]) << i;
  options.warps = 3, options.entries = 3;
  EXPECT_EQ(machine.run(options), apart);
  options.warps = 2, options.entries = 2, options.edge = EdgeForm::counter;
  EXPECT_EQ(machine.run(options), apart);
  options.overlaps = false;
  EXPECT_EQ(machine.run(options), apart);
}

// Quantised weights: layer after layer against what the layer before left, in double; in rounds of few entries; and in
// one launch as in one for each layer.
TEST(DeepLinear, MultipliesWeightsOfEightAndFourBits) {
  constexpr size_t n = 256, rows = 2;
  for (const WeightType type : {WeightType::q8_0, WeightType::q4_0, WeightType::q4_1, WeightType::q4_g128}) {
    Network network(n, 0, rows);
    simt::Memory memory;
    const testing::HostRuntime runtime(memory, kernels(), 5);
    WorkerTeam team(2);
    std::vector<test::Weights> weights;
    std::vector<char> tiles;
    for (const uint64_t layer : {0, 1}) {
      weights.push_back(test::random_weights(type, n, n, layer));
      const MatrixForm form{.role = WeightRole::down, .layer = 0, .cols = n, .parts = {{type, n}}};
      const std::vector<char> of =
          ops::pack_tiles(tile(form, ops::tile_piece(type).cols), "down", std::vector{weights.back().source()}, team);
      tiles.insert(tiles.end(), of.begin(), of.end());
    }
    const char* const packed = memory.make("weights", tiles).data();
    const float* const x = memory.make("x", network.x).data();
    DeepLinearOptions options{.n = n, .type = type, .layers = 2, .rows = rows, .workers = 5, .warps = 2, .entries = 4};
    options.entry_bytes = static_cast<int>(2 * ops::tile_piece(type).bytes);
    options.ahead_bytes = 1 << 10, options.beside_bytes = 4 << 10, options.round_entries = 3;
    const DeepLinear deep(runtime, Device::cuda(0), options);
    EXPECT_EQ(deep.weight_bytes(), tiles.size() / 2);
    const auto start = [&] {
      char* const workspace = memory.make<char>("workspace", deep.workspace_bytes()).data();
      deep.start(workspace, {});
      return workspace;
    };
    char* const apart = start();
    std::vector<float> y = network.x;
    for (uint32_t layer = 0; layer < 2; ++layer) {
      const std::vector<float> from = y;
      deep.run(apart, {packed + layer * deep.weight_bytes(), layer == 0 ? x : nullptr, layer, 1}, {});
      y = deep.result(apart, layer + 1, {});
      for (size_t row = 0; row < rows; ++row)
        for (size_t i = 0; i < n; ++i) {
          double sum = 0, sizes = 0;
          for (size_t k = 0; k < n; ++k) {
            const double product = weights[layer].values[i * n + k] * double{from_bf16(to_bf16(from[row * n + k]))};
            sum += product, sizes += std::fabs(product);
          }
          ASSERT_NEAR(double{y[row * n + i]}, sum, 8e-6 * sizes) << weft::to_string(type) << ", " << row << ", " << i;
        }
    }
    char* const together = start();
    deep.run(together, {.weights = packed, .x = x}, {});
    EXPECT_EQ(deep.result(together, 2, {}), y) << weft::to_string(type);
  }
}

TEST(DeepLinear, GivesARowTheSameBitsAloneAndBesideOthers) {
  const Network network(176, 2, 8);
  NetworkOnHost machine(network);
  machine.runtime.in_one_order = true;
  const std::vector<float> all = machine.run(options_of(network, 8, 4));
  for (const int rows : {1, 2, 3})
    for (int first = 0; first + rows <= 8; first += 3) {
      const std::vector<float> some =
          machine.run(options_of(network, rows, 4), false, machine.x + static_cast<size_t>(first) * network.size);
      EXPECT_TRUE(
          std::ranges::equal(some, std::span(all).subspan(static_cast<size_t>(first) * network.size, some.size())))
          << rows << " from " << first;
    }
}

// Launches follow each other on one workspace; phases are counted on.
TEST(DeepLinear, GoesOnWhereTheLaunchBeforeEnded) {
  const Network network(64, 2, 1);
  for (const EdgeForm edge : {EdgeForm::counter, EdgeForm::tagged}) {
    NetworkOnHost machine(network);
    DeepLinearOptions options = options_of(network, 1, 4);
    options.edge = edge;
    const std::vector<float> once = machine.run(options);
    const DeepLinear same(machine.runtime, Device::cuda(0), options);
    char* const workspace = machine.start(same);
    for (const uint32_t phase : {0u, 2u, 4u})
      same.run(workspace, {.weights = machine.weights, .x = machine.x, .first_phase = phase}, {});
    EXPECT_EQ(same.result(workspace, 6, {}), once) << to_string(edge);
  }
}

TEST(DeepLinear, EndsAndSaysWhoWaitsWhereAWorkerNeverComes) {
  const Network network(64, 2, 1);
  for (const EdgeForm edge : {EdgeForm::counter, EdgeForm::tagged})
    for (const bool overlaps : {true, false}) {
      if (edge == EdgeForm::tagged && !overlaps) continue;
      NetworkOnHost machine(network);
      machine.runtime.absent = 1;
      machine.runtime.in_one_order = true;
      DeepLinearOptions options = options_of(network, 1, 4);
      options.edge = edge;
      options.overlaps = overlaps;
      options.limit_ns = 500'000;
      try {
        machine.run(options);
        ADD_FAILURE() << "it ended well";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::device_failed);
        EXPECT_NE(std::string(error.what())
                      .find(" waits in phase 1 for what the phase before leaves, and gave up; 3 "
                            "of 4 workers did, all but 3"),
                  std::string::npos)
            << error.what();
      }
    }
}

TEST(DeepLinear, CutsAsPartitionsDo) {
  using Borders = std::vector<int64_t>;
  const MatrixPartition cut = cut_line(64, 3);  // 4 bands of a tile, which has 4 fragments
  EXPECT_EQ(cut.tiles.tile_cols, 64);
  EXPECT_EQ(cut.borders, (Borders{0, 2, 3, 4}));
  EXPECT_EQ(cut_line(4096, 132).tiles.tile_cols, 128);
  const MatrixPartition fine = cut_line(208, 5);  // bands of 13
  EXPECT_EQ(fine.tiles.tile_cols, 16);
  EXPECT_EQ(fine.borders, (Borders{0, 34, 68, 102, 136, 169}));
  EXPECT_EQ(fine.worker_slot, (std::vector<int>{0, 3, 7, 10, 14}));
  EXPECT_EQ(fine.first_slot, (std::vector<int>{0, 1, 2, 4, 5, 6, 8, 9, 11, 12, 13, 15, 16, 17}));
  const MatrixPartition few = cut_line(16, 3);  // one fragment
  EXPECT_EQ(few.borders, (Borders{0, 1, 1, 1}));
  EXPECT_EQ(few.worker_slot, (std::vector<int>{0, -1, -1}));
}

std::string refusal(const DeepLinearOptions& options, const std::string& architecture = "sm_90a") {
  simt::Memory memory;
  testing::HostRuntime runtime(memory, kernels(), 4);
  runtime.runs = architecture;
  try {
    const DeepLinear network(runtime, Device::cuda(0), options);
  } catch (const Error& error) {
    const std::string text = error.what();
    return text.substr(text.find(": ") + 2);  // behind the code
  }
  return "";
}

TEST(DeepLinear, RefusesWhatItCannotRun) {
  const DeepLinearOptions good{.n = 64, .workers = 4, .warps = 2, .entries = 4};
  EXPECT_EQ(refusal(good), "");
  const auto with = [&](auto change) {
    DeepLinearOptions options = good;
    change(options);
    return refusal(options);
  };
  EXPECT_EQ(with([](auto& o) { o.n = 72; }), "n = 72; allowed are multiples of 16 from 16 to 16384");
  EXPECT_EQ(with([](auto& o) { o.n = 96, o.type = WeightType::q4_1; }),
            "n = 96; allowed are multiples of 64 from 64 to 16384");
  EXPECT_EQ(with([](auto& o) { o.type = WeightType::f16; }),
            "type: required F16; supported are BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; missing F16");
  EXPECT_EQ(with([](auto& o) { o.round_entries = 0; }), "round_entries = 0; allowed are 1 to 65536");
  EXPECT_EQ(with([](auto& o) { o.rows = 9; }), "rows = 9; allowed are 1 to 8");
  EXPECT_EQ(with([](auto& o) { o.entries = 5; }), "entries = 5; allowed are multiples of 2 from 2 to 1024");
  EXPECT_EQ(with([](auto& o) { o.entry_bytes = 700; }),
            "entry_bytes = 700; allowed are multiples of 16 from 512 to 232448");
  EXPECT_EQ(with([](auto& o) { o.overlaps = false; }),
            "edge = tagged without overlap; allowed is counter: the thread that copies waits for it");
  EXPECT_EQ(with([](auto& o) { o.workers = 5; }),
            "workers: required 5 CTAs at once, supported by cuda:0 are 4, missing 1");
  EXPECT_EQ(with([](auto& o) { o.entries = 64; }).find("entries: required 64 of 12288 bytes beside 1 rows"), 0u);
  EXPECT_EQ(refusal(good, "sm_89"),
            "device: required sm_90a (bulk copies on barriers), supported by cuda:0 is sm_89, missing sm_90a");
}

}  // namespace
}  // namespace weft::decode::fused
