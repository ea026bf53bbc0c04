// Studies of a deep linear network: as kernels of a layer each, as one kernel, and as one that reads ahead
// (deep-linear); over numbers and sizes of its ring's entries (depth-size); and what a phase takes by the form of its
// edge (edges).
// Weights are random and normal, of any type that fused kernels multiply; bf16 has rows for every form.
#include "decode/fused/cuda/deep_linear.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/check.h"
#include "bench/cuda/studies.h"
#include "bench/random_weights.h"
#include "device/cuda/memory.h"
#include "ops/cuda/tiled_weights.h"

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

// Of all layers; the rate is that of reads in the same turns.
struct LinearTimes {
  double bytes, seconds, rate;
  double share() const { return bytes / seconds / rate; }
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
  std::optional<LinearTimes> measure(const LinearForm& form) {
    const std::optional<LinearTimes> times = time(form);
    if (!times) return times;
    report_.add({"decode", form.name, "bandwidth", times->bytes / times->seconds / 1e9, "GB/s", times->rate / 1e9});
    report_.add({.bench = "decode", .name = form.name, .metric = "time", .value = times->seconds * 1e3, .unit = "ms"});
    return times;
  }
  // None: shared memory does not hold it.
  std::optional<LinearTimes> time(const LinearForm& form) {
    const int shared_bytes = deep_linear_text(form.options).shared_bytes;
    if (shared_bytes > decode::fused::kMostSharedBytes) {  // of a card with few multiprocessors: many partial sums
      report_.note(fmt::format("{}: left out, {} bytes of shared memory", form.name, shared_bytes));
      return std::nullopt;
    }
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
    return LinearTimes{static_cast<double>(bytes), beside.seconds, beside.ceiling};
  }
  void forget() { expected_.clear(); }

 private:
  // A whole number of tiles: a matrix of any size begins with one.
  static std::vector<char> random_tiles(WeightType type) {
    const auto [cols, bytes] = ops::tile_piece(type);
    const int64_t rows = static_cast<int64_t>(kOwnWeights) / bytes * ops::kBandRows;
    const decode::fused::MatrixForm form{.role = decode::WeightRole::down, .cols = cols, .parts = {{type, rows}}};
    return ops::pack_tiles(decode::fused::tile(form, cols), to_string(form.role),
                           std::vector{RandomWeights(type, 1).source(rows, cols)}, WorkerTeam::shared());
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

size_t pool_bytes(const BenchOptions& options) { return options.quick ? size_t{256} << 20 : size_t{4} << 30; }

}  // namespace

void measure_deep_linear(const BenchOptions& options, CardBench& bench, BenchReport& report) {
  const int workers = bench.card().num_multiprocessors();
  const WeightType type = weight_type_from_string(options.weights);
  DeepLinearBench deep(bench, report, type, pool_bytes(options));
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

// Numbers of entries by their sizes: a row each, and the shares as a table.
void measure_depth_and_size(const BenchOptions& options, CardBench& bench, BenchReport& report) {
  const int workers = bench.card().num_multiprocessors(), n = options.quick ? 2048 : 4096;
  const WeightType type = weight_type_from_string(options.weights);
  DeepLinearBench deep(bench, report, type, pool_bytes(options));
  const std::vector<int> numbers = options.quick ? std::vector{16, 32} : std::vector{16, 32, 48, 64};
  const std::vector<int> kilobytes = options.quick ? std::vector{2, 12} : std::vector{2, 3, 4, 6, 8, 12};
  std::string table =
      fmt::format("share of the read rate by entries and their size, {} x 32 {}\n{:>8}", n, options.weights, "entries");
  for (const int kb : kilobytes) table += fmt::format("{:>8} KB", kb);
  for (const int entries : numbers) {
    table += fmt::format("\n{:>8}", entries);
    for (const int kb : kilobytes) {
      DeepLinearOptions sized{.n = n, .type = type, .layers = 32, .workers = workers};
      sized.scale = 1 / std::sqrt(static_cast<float>(n));
      sized.entries = entries, sized.entry_bytes = kb << 10;
      const std::string name = fmt::format("ring {} {} x 32, {} entries of {} KB", options.weights, n, entries, kb);
      if (deep_linear_text(sized).shared_bytes > decode::fused::kMostSharedBytes) {
        table += fmt::format("{:>11}", "-");
        continue;
      }
      deep.forget();  // entries are added up one by one: other sizes round otherwise
      const std::optional<LinearTimes> times = deep.measure({name, false, sized});
      table += times ? fmt::format("{:>11.3f}", times->share()) : fmt::format("{:>11}", "-");
    }
  }
  report.note(table);
}

// What one more layer takes: of small ones the edge and its trip, of large ones the read beside it.
void measure_edges(const BenchOptions& options, CardBench& bench, BenchReport& report) {
  constexpr int kFew = 4, kMany = 32;
  const int workers = bench.card().num_multiprocessors();
  const WeightType type = weight_type_from_string(options.weights);
  DeepLinearBench deep(bench, report, type, pool_bytes(options));
  struct Form {
    const char* name;
    bool apart;
    EdgeForm edge;
  };
  for (const int n : options.quick ? std::vector{512} : std::vector{512, 1024, 2048, 4096, 8192})
    for (const Form& form : {Form{"a launch each", true, EdgeForm::tagged},
                             Form{to_string(EdgeForm::counter).data(), false, EdgeForm::counter},
                             Form{to_string(EdgeForm::tagged).data(), false, EdgeForm::tagged}}) {
      const std::string name = fmt::format("edge {} {}, {} workers, {}", options.weights, n, workers, form.name);
      const auto time = [&](int layers) {
        DeepLinearOptions of = options_of(n, layers, 1, workers, type);
        of.edge = form.edge;
        deep.forget();
        return deep.time({name, form.apart, of});
      };
      const std::optional<LinearTimes> few = time(kFew), many = time(kMany);
      if (!few || !many) continue;
      const double phase_s = (many->seconds - few->seconds) / (kMany - kFew);
      const double read_s = many->bytes / kMany / many->rate;
      report.add({.bench = "decode", .name = name, .metric = "a phase", .value = phase_s * 1e6, .unit = "us"});
      report.add({.bench = "decode",
                  .name = name,
                  .metric = "a phase, beyond its read",
                  .value = (phase_s - read_s) * 1e6,
                  .unit = "us"});
    }
}

}  // namespace weft::bench
