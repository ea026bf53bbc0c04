// `weft bench decode --device cuda:0 --study deep-linear`: a deep linear network as kernels of a layer each, as one
// kernel, and as one that reads ahead, beside what the card reads. Weights are random and normal, of any type that
// fused kernels multiply; bf16 has rows for every form.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/cuda/card.h"
#include "bench/measure.h"
#include "bench/random_weights.h"
#include "decode/fused/cuda/deep_linear.h"
#include "decode/fused/cuda/tiled_weights.h"
#include "device/cuda/memory.h"

namespace weft::bench {
namespace {

using decode::fused::DeepLinear;
using decode::fused::DeepLinearOptions;
using decode::fused::EdgeForm;

constexpr size_t kOwnWeights = size_t{32} << 20;  // bytes of tiles that the others repeat, about
constexpr int kFewestLaunches = 4;

struct LinearForm {
  std::string name;
  bool apart = false;  // a launch for each layer
  DeepLinearOptions options = {};
};

class DeepLinearBench {
 public:
  DeepLinearBench(CardBench& bench, BenchReport& report, WeightType type, size_t bytes)
      : bench_(bench), report_(report), weights_(bench.device(), bytes) {
    const std::vector<char> own = random_tiles(type);
    auto* const to = static_cast<char*>(weights_.data());
    const cuda::api::Stream stream = static_cast<cuda::api::Stream>(bench.stream().handle());
    cuda::copy_to_card(bench.card(), to, own.data(), std::min(own.size(), bytes), stream);
    for (size_t at = own.size(); at < bytes; at += own.size())
      cuda::copy_on_card(bench.card(), to + at, to, std::min(own.size(), bytes - at), stream);
    std::mt19937 random(20261127);
    std::normal_distribution<float> normal;
    std::vector<float> x(size_t{8} * 8192);
    for (float& value : x) value = normal(random);
    x_ = Workspace(bench.device(), x.size() * 4);
    cuda::copy_to_card(bench.card(), x_.data(), x.data(), x.size() * 4, stream);
    cuda::synchronize(bench.card(), stream);
  }

  // A row of the form; all that have one cut and as many rows of x end with the same bits.
  void measure(const LinearForm& form) {
    const int shared_bytes = deep_linear_text(form.options).shared_bytes;
    if (shared_bytes > decode::fused::kMostSharedBytes)  // of a card with few multiprocessors: many partial sums
      return report_.note(fmt::format("{}: left out, {} bytes of shared memory", form.name, shared_bytes));
    const DeepLinear network(cuda::runtime(), bench_.device(), form.options);
    const int layers = form.options.layers;
    const size_t bytes = network.weight_bytes() * static_cast<size_t>(layers);
    const auto places = static_cast<int>(std::clamp<size_t>(weights_.bytes() / bytes, 1, kMostPieces));
    const int runs = std::max(places, kFewestLaunches);
    const Workspace workspace(bench_.device(), network.workspace_bytes());
    network.start(workspace.data(), bench_.stream());
    const auto run = [&](int i) {
      const char* const weights = static_cast<const char*>(weights_.data()) + static_cast<size_t>(i % places) * bytes;
      const auto first = static_cast<uint32_t>(i * layers);
      const auto* const x = static_cast<const float*>(x_.data());
      if (i == 0)  // phases begin anew with each launch of the graph
        cuda::fill_zero(bench_.card(), network.state(workspace.data()), network.state_bytes(),
                        static_cast<cuda::api::Stream>(bench_.stream().handle()));
      if (!form.apart) return network.run(workspace.data(), {weights, x, first}, bench_.stream());
      for (int layer = 0; layer < layers; ++layer)
        network.run(workspace.data(),
                    {.weights = weights + static_cast<size_t>(layer) * network.weight_bytes(),
                     .x = layer == 0 ? x : nullptr,
                     .first_phase = first + static_cast<uint32_t>(layer),
                     .layers = 1},
                    bench_.stream());
    };
    const CardBench::Beside beside = bench_.time_beside_read({runs, run}, bytes);
    const std::vector<float> y =
        network.result(workspace.data(), static_cast<uint32_t>(runs * layers), bench_.stream());
    if (form.apart) expected_ = y;
    if (expected_.size() == y.size())
      check(std::ranges::equal(y, expected_, {}, to_bits, to_bits), ErrorCode::device_failed,
            "{}: other bits than of a launch for each layer", form.name);
    report_.add({"decode", form.name, "bandwidth", static_cast<double>(bytes) / beside.seconds / 1e9, "GB/s",
                 beside.ceiling / 1e9});
    report_.add({.bench = "decode", .name = form.name, .metric = "time", .value = beside.seconds * 1e3, .unit = "ms"});
  }
  void forget() { expected_.clear(); }

 private:
  // A whole number of tiles: a matrix of any size begins with one.
  static std::vector<char> random_tiles(WeightType type) {
    const auto [cols, bytes] = decode::fused::tile_piece(type);
    const int64_t rows = static_cast<int64_t>(kOwnWeights) / bytes * decode::fused::kBandRows;
    const decode::fused::MatrixForm form{.role = decode::WeightRole::down, .cols = cols, .parts = {{type, rows}}};
    return decode::fused::pack_tiles(decode::fused::tile(form, cols), form.role,
                                     {RandomWeights(type, 1).source(rows, cols)}, WorkerTeam::shared());
  }
  static uint32_t to_bits(float x) { return std::bit_cast<uint32_t>(x); }

  CardBench& bench_;
  BenchReport& report_;
  Workspace weights_, x_;
  std::vector<float> expected_;  // of the last form that was apart
};

// With entries as large as leave room for the rows of x.
DeepLinearOptions options_of(int n, int layers, int rows, int workers, WeightType type = WeightType::bf16) {
  DeepLinearOptions options{.n = n, .type = type, .layers = layers, .rows = rows, .workers = workers};
  options.scale = 1 / std::sqrt(static_cast<float>(n));
  while (options.entry_bytes > 2048 && deep_linear_text(options).shared_bytes > decode::fused::kMostSharedBytes)
    options.entry_bytes -= 2048;
  return options;
}

// Of another type than bf16: what its integers and scales cost, by rows of x.
void measure_type(const std::string& name, WeightType type, bool quick, int workers, DeepLinearBench& deep) {
  for (const int n : quick ? std::vector{2048} : std::vector{2048, 4096, 8192})
    for (const int rows : {1, 2, 4, 8}) {
      const DeepLinearOptions chosen = options_of(n, 32, rows, workers, type);
      const std::string row = fmt::format("deep linear {} {} x 32", name, n);
      deep.forget();
      if (rows == 1) deep.measure({row + ", apart", true, chosen});
      deep.measure(
          {row + ", fused + overlap, tagged edges" + (rows > 1 ? fmt::format(", {} rows", rows) : ""), false, chosen});
    }
}

void measure_deep_linear(const BenchOptions& options, CardBench& bench, BenchReport& report) {
  const int workers = bench.card().num_multiprocessors();
  const WeightType type = weight_type_from_string(options.weights);
  DeepLinearBench deep(bench, report, type, options.quick ? size_t{256} << 20 : size_t{4} << 30);
  if (type != WeightType::bf16) return measure_type(options.weights, type, options.quick, workers, deep);
  const std::vector<int> sizes = options.quick ? std::vector{2048} : std::vector{2048, 4096, 8192};
  for (const int n : sizes)
    for (const int layers : {1, 4, 32}) {
      const std::string name = fmt::format("deep linear {} x {}", n, layers);
      const DeepLinearOptions base = options_of(n, layers, 1, workers);
      deep.forget();
      deep.measure({name + ", apart", true, base});
      for (const EdgeForm edge : {EdgeForm::counter, EdgeForm::tagged})
        for (const bool overlaps : {false, true}) {
          if (edge == EdgeForm::tagged && !overlaps) continue;
          DeepLinearOptions chosen = base;
          chosen.edge = edge;
          chosen.overlaps = overlaps;
          deep.measure({fmt::format("{}, fused{}, {} edges", name, overlaps ? " + overlap" : "", to_string(edge)),
                        false, chosen});
        }
    }
  const int n = options.quick ? 2048 : 4096;
  // Rows of x, which share a read of the weights.
  for (const int rows : {2, 4, 8}) {
    deep.forget();
    deep.measure({fmt::format("deep linear {} x 32, fused + overlap, tagged edges, {} rows", n, rows), false,
                  options_of(n, 32, rows, workers)});
  }
  // Bytes in flight until a layer has begun, and once it has.
  deep.forget();
  for (const auto& [ahead, beside] : {std::pair(24, 64), {36, 36}, {36, 48}, {36, 96}, {48, 96}, {192, 192}}) {
    DeepLinearOptions bounded = options_of(n, 32, 1, workers);
    bounded.ahead_bytes = ahead << 10;
    bounded.beside_bytes = beside << 10;
    deep.measure(
        {fmt::format("deep linear {} x 32, fused + overlap, tagged edges, {} then {} KB in flight", n, ahead, beside),
         false, bounded});
  }
  // Partial sums of few entries at once.
  for (const int entries : {16, 32}) {
    DeepLinearOptions rounds = options_of(n, 32, 1, workers);
    rounds.round_entries = entries;
    deep.measure({fmt::format("deep linear {} x 32, fused + overlap, tagged edges, rounds of {} entries", n, entries),
                  false, rounds});
  }
  // Warps, and entries of each.
  for (const auto& [warps, entries, kilobytes] : {std::tuple(8, 16, 12), {8, 24, 8}, {12, 12, 16}, {16, 32, 6}}) {
    DeepLinearOptions shaped = options_of(n, 32, 1, workers);
    shaped.warps = warps;
    shaped.entries = entries;
    shaped.entry_bytes = kilobytes << 10;
    deep.forget();
    deep.measure({fmt::format("deep linear {} x 32, fused + overlap, tagged edges, {} warps, {} entries of {} KB", n,
                              warps, entries, kilobytes),
                  false, shaped});
  }
}

}  // namespace

void measure_decode_studies(const BenchOptions& options, BenchReport& report) {
  check(options.device.kind == DeviceKind::cuda, ErrorCode::unsupported,
        "device: required a card for studies of decoding, supported is --device cuda:0, missing on {}",
        to_string(options.device));
  CardBench bench(options.device);
  report.note(
      fmt::format("{}: {}, {} multiprocessors; nodes of a graph, medians, beside reads of as many bytes in turns",
                  to_string(options.device), bench.card().name(), bench.card().num_multiprocessors()));
  measure_deep_linear(options, bench, report);
}

}  // namespace weft::bench
