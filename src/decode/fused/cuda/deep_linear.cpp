#include "decode/fused/cuda/deep_linear.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "decode/fused/cuda/stuck_text.h"
#include "decode/fused/partition.h"
#include "ops/cuda/tiled_weights.h"

namespace weft {
namespace text {
extern const char* const decode_deep_linear;
}  // namespace text

namespace decode::fused {
namespace {

constexpr int kFragment = 16, kMostCutColumns = 128;
constexpr int kMostLoads = 8;  // of 16 bytes, that a thread has on their way
constexpr size_t kAllocation = 256;

size_t aligned(size_t bytes) { return (bytes + kAllocation - 1) / kAllocation * kAllocation; }

void require(const char* name, int value, int least, int most, int multiple_of = 1) {
  check(value >= least && value <= most && value % multiple_of == 0, ErrorCode::invalid_argument,
        "{} = {}; allowed are {}{} to {}", name, value,
        multiple_of > 1 ? fmt::format("multiples of {} from ", multiple_of) : "", least, most);
}

void check_options(const DeepLinearOptions& options) {
  const ops::TilePiece piece = ops::tile_piece(options.type);
  check(piece.cols > 0, ErrorCode::unsupported,
        "type: required {}; supported are BF16, Q8_0, Q4_0, Q4_1 and Q4_G128; missing {}",
        weft::to_string(options.type), weft::to_string(options.type));
  const int cols = static_cast<int>(piece.cols);
  require("n", options.n, cols, 16384, cols);
  require("layers", options.layers, 1, 1 << 16);
  require("rows", options.rows, 1, kMostRows);
  require("workers", options.workers, 1, 4096);
  require("warps", options.warps, 1, kMostWarps);
  require("entries", options.entries, options.warps, 1024, options.warps);
  const int most_entry = kMostSharedBytes / 16 * 16;
  require("entry_bytes", options.entry_bytes, static_cast<int>((piece.bytes + 15) / 16 * 16), most_entry, 16);
  require("round_entries", options.round_entries, 1, 1 << 16);
  require("ahead_bytes", options.ahead_bytes, 1, 1 << 20);
  require("beside_bytes", options.beside_bytes, 1, 1 << 20);
  check(options.overlaps || options.edge == EdgeForm::counter, ErrorCode::invalid_argument,
        "edge = {} without overlap; allowed is counter: the thread that copies waits for it", to_string(options.edge));
}

// Rows of x that the kernel is made for.
int rows_of_kernel(const DeepLinearOptions& options) { return options.rows > 1 ? kMostRows : 1; }

// The kernel's tiles are pieces.
int pieces_of_tile(const MatrixPartition& cut, WeightType type) {
  return static_cast<int>(cut.tiles.tile_cols / ops::tile_piece(type).cols);
}

DeepLinearArgs args_of(const DeepLinearOptions& options, const MatrixPartition& cut) {
  const ops::TilePiece piece = ops::tile_piece(options.type);
  const int pieces = pieces_of_tile(cut, options.type);
  DeepLinearArgs args{.limit_ns = options.limit_ns,
                      .n = options.n,
                      .rows = options.rows,
                      .workers = options.workers,
                      .slots = cut.num_slots(),
                      .most_pieces = cut.most_pieces(),
                      .tile_cols = static_cast<int>(piece.cols),
                      .tile_bytes = static_cast<int>(piece.bytes),
                      .band_tiles = static_cast<int>(cut.tiles.band_tiles) * pieces,
                      .entry_tiles = options.entry_bytes / static_cast<int>(piece.bytes),
                      .round_entries = options.round_entries,
                      .entries = options.entries,
                      .entry_bytes = options.entry_bytes,
                      .ahead_bytes = options.ahead_bytes,
                      .beside_bytes = options.beside_bytes,
                      .scale = options.scale,
                      .overlaps = options.overlaps};
  const auto most = [&](int (tile::MatvecShare::*of)() const) {
    int value = 0;
    for (int w = 0; w < options.workers; ++w) {
      const auto [begin, end] = cut.tiles_of(w);
      value = std::max(value, (share_of(args, static_cast<int>(begin) * pieces, static_cast<int>(end) * pieces).*of)());
    }
    return value;
  };
  args.half_parts = most(&tile::MatvecShare::round_parts);
  args.parts_bytes = most(&tile::MatvecShare::parts_bytes);
  return args;
}

}  // namespace

MatrixPartition cut_line(int n, int workers, WeightType type) {
  const int64_t piece_cols = ops::tile_piece(type).cols;
  int64_t cols = kMostCutColumns / piece_cols * piece_cols;
  while (n % cols != 0) cols -= piece_cols;
  return deal(tile({.cols = n, .parts = {{type, n}}}, cols), workers);
}

void pack_fragments(const uint16_t* matrix, int64_t rows, int64_t cols, uint16_t* to) {
  check(rows > 0 && cols > 0 && rows % kFragment == 0 && cols % kFragment == 0, ErrorCode::invalid_argument,
        "a matrix of {} x {}; allowed are multiples of {}", rows, cols, kFragment);
  for (int64_t row = 0; row < rows; row += kFragment)
    for (int64_t col = 0; col < cols; col += kFragment)
      for (int64_t lane = 0; lane < 32; ++lane)
        for (int64_t i = 0; i < 8; ++i) {
          const int64_t half = i / 2 % 2, pair = i / 4;
          *to++ = matrix[(row + lane / 4 + 8 * half) * cols + col + 4 * (lane % 4) + 2 * pair + i % 2];
        }
}

cuda::KernelText deep_linear_text(const DeepLinearOptions& options) {
  const DeepLinearArgs args = args_of(options, cut_line(options.n, options.workers, options.type));
  // What a thread loads at once of a layer's input: all of it, as far as registers hold.
  const int threads = 32 * options.warps, pieces = std::min(args.most_pieces, 3);
  const int pairs = std::clamp((options.n / 2 + threads - 1) / threads, 1, kMostLoads / pieces);
  const int most_rows = rows_of_kernel(options);
  const std::string symbol = fmt::format("weft_deep_linear_{}_{}_{}_{}_{}x{}", to_string(options.edge),
                                         ops::tile_struct(options.type), most_rows, options.warps, pairs, pieces);
  return {.name = fmt::format("deep linear, {}, {} edges, {} warps", weft::to_string(options.type),
                              to_string(options.edge), options.warps),
          .symbol = symbol,
          .file = "decode/fused/cuda/kernels/deep_linear.h",
          .head = text::decode_deep_linear,
          .instances = fmt::format("WEFT_DEEP_LINEAR({}, {}, {}, {}, {}, {}, {})\n", symbol,
                                   options.edge == EdgeForm::counter ? "CounterEdge" : "TaggedEdge",
                                   ops::tile_struct(options.type), most_rows, options.warps, pairs, pieces),
          .threads = threads + 32,
          .shared_bytes = layout_of(args).bytes};
}

DeepLinear::DeepLinear(const cuda::Runtime& runtime, Device device, const DeepLinearOptions& options)
    : runtime_(runtime), device_(device), options_(options) {
  check_options(options);
  runtime.require(device, "device");
  const std::string architecture = runtime.architecture(device);
  check(architecture == "sm_90a", ErrorCode::unsupported,
        "device: required sm_90a (bulk copies on barriers), supported by {} is {}, missing sm_90a", to_string(device),
        architecture);
  cut_ = cut_line(options.n, options.workers, options.type);
  args_ = args_of(options, cut_);
  check(
      shared_bytes() <= kMostSharedBytes, ErrorCode::unsupported,
      "entries: required {} of {} bytes beside {} rows of {} columns, {} bytes of shared memory in all; supported are "
      "{}; missing {}: take fewer or smaller entries",
      options.entries, options.entry_bytes, options.rows, options.n, shared_bytes(), kMostSharedBytes,
      shared_bytes() - kMostSharedBytes);
  const cuda::KernelText text = deep_linear_text(options);
  kernel_ = &runtime.load(device, text);
  const int at_once = runtime.ctas_per_multiprocessor(*kernel_, text.grid(1)) * runtime.num_multiprocessors(device);
  check(at_once >= options.workers, ErrorCode::unsupported,
        "workers: required {} CTAs at once, supported by {} are {}, missing {}", options.workers, to_string(device),
        at_once, options.workers - at_once);
  const auto workers = static_cast<size_t>(options.workers);
  table_bytes_ = aligned(4 * (2 * workers + 1 + cut_.first_slot.size()));
  const size_t cells = 2 * static_cast<size_t>(args_.slots) * static_cast<size_t>(options.rows) * kFragment;
  state_bytes_ = aligned(8 * (1 + workers)) + aligned(8 * cells);
}

size_t DeepLinear::weight_bytes() const {
  return static_cast<size_t>(options_.n / kFragment) * static_cast<size_t>(args_.band_tiles) *
         static_cast<size_t>(args_.tile_bytes);
}

size_t DeepLinear::workspace_bytes() const {
  const size_t cells = 2 * static_cast<size_t>(args_.slots) * static_cast<size_t>(options_.rows) * kFragment;
  return table_bytes_ + state_bytes_ + aligned(4 * cells);
}

void DeepLinear::start(void* workspace, Stream stream) const {
  std::vector<int> tables;
  for (const int64_t tile : cut_.borders)
    tables.push_back(static_cast<int>(tile) * pieces_of_tile(cut_, options_.type));
  tables.insert(tables.end(), cut_.worker_slot.begin(), cut_.worker_slot.end());
  tables.insert(tables.end(), cut_.first_slot.begin(), cut_.first_slot.end());
  tables.resize(table_bytes_ / 4);
  const std::vector<char> zeros(state_bytes_);
  const Bytes pieces[] = {{tables.data(), static_cast<int64_t>(table_bytes_)},
                          {zeros.data(), static_cast<int64_t>(state_bytes_)}};
  runtime_.write(device_, workspace, pieces, stream);
}

void DeepLinear::run(void* workspace, const Run& run, Stream stream) const {
  check(run.layers >= 0 && run.layers <= options_.layers, ErrorCode::invalid_argument,
        "layers = {}; allowed are 0 (all) to {}", run.layers, options_.layers);
  const auto workers = static_cast<size_t>(options_.workers);
  const auto* const tables = static_cast<const int*>(workspace);
  auto* const state = static_cast<char*>(this->state(workspace));
  DeepLinearArgs args = args_;
  args.weights = run.weights;
  args.x = run.x;
  args.first_phase = run.first_phase;
  args.layers = run.layers > 0 ? run.layers : options_.layers;
  args.borders = tables;
  args.worker_slot = tables + workers + 1;
  args.first_slot = tables + 2 * workers + 1;
  args.arrived = reinterpret_cast<unsigned*>(state);
  args.stuck = reinterpret_cast<unsigned long long*>(state + 8);
  args.tagged = reinterpret_cast<unsigned long long*>(state + aligned(8 * (1 + workers)));
  args.sums = reinterpret_cast<float*>(state + state_bytes_);
  runtime_.launch(*kernel_,
                  {.ctas = options_.workers,
                   .threads = 32 * options_.warps + 32,
                   .shared_bytes = shared_bytes(),
                   .cooperative = args.layers > 1},  // CTAs of one layer do not wait for each other
                  args, stream);
}

std::vector<float> DeepLinear::result(void* workspace, uint32_t phases, Stream stream) const {
  auto* const at = static_cast<char*>(state(workspace));
  std::vector<uint64_t> stuck(static_cast<size_t>(options_.workers));
  runtime_.read(device_, at + 8, stuck.data(), static_cast<int64_t>(8 * stuck.size()), stream);
  const auto name_of = [](uint32_t phase) { return fmt::format("phase {}", phase); };
  if (const std::string text = stuck_text(stuck, name_of); !text.empty())
    throw Error(ErrorCode::device_failed, "deep linear network on " + to_string(device_) + ": " + text);
  const size_t of_slot = static_cast<size_t>(options_.rows) * kFragment;
  std::vector<float> sums(static_cast<size_t>(args_.slots) * of_slot);
  runtime_.read(device_, at + state_bytes_ + phases % 2 * 4 * sums.size(), sums.data(),
                static_cast<int64_t>(4 * sums.size()), stream);
  const auto n = static_cast<size_t>(options_.n);
  std::vector<float> y(static_cast<size_t>(options_.rows) * n);
  for (size_t column = 0; column < n; ++column)
    for (size_t row = 0; row < static_cast<size_t>(options_.rows); ++row)
      cut_.each_slot(static_cast<int64_t>(column / kFragment), [&](int slot) {
        y[row * n + column] += sums[static_cast<size_t>(slot) * of_slot + row * kFragment + column % kFragment];
      });
  return y;
}

}  // namespace decode::fused
}  // namespace weft
