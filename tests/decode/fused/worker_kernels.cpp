// Parts of a worker of fused decoding, as the host's compiler takes them.
#include "decode/fused/cuda/kernels/copies.h"
#include "decode/fused/cuda/kernels/inputs.h"
#include "tests/decode/fused/worker_args.h"

namespace weft::decode::fused {
namespace {

struct Model {
  static constexpr ModelSizes kSizes{
      .rows = 1, .x_cols = 16, .squares = 2, .ring_bytes = 2048, .ring_entries = 8, .head_dim = 16, .kinds = 2};
  static constexpr int kWorkers = 2, kHidden = 16, kHeads = 1, kKvHeads = 1, kHeadDim = 16, kChunk = 32;
  static constexpr float kNormEps = 0;
};
constexpr Product kProduct{.matrix = 0,
                           .offset = 0,
                           .type = 0,
                           .tile_bytes = 0,
                           .tiles = {.band_tiles = 1, .entry_tiles = 1, .tile_cols = 16},
                           .panel_tiles = 1,
                           .sums = 0,
                           .from = 0,
                           .is_normed = false,
                           .squares = 0,
                           .row_quads = 4,
                           .loads = 4};

// One phase after another, by a warp whose matrix has no tiles, and whose items have nothing in the cache.
WEFT_INLINE void copy(const WorkerArgs& args) {
  const Worker<Model> worker(args.model);
  worker.init();
  if (worker.thread == 0) worker.near(0)->items[0] = {.row_end = 1, .kv_end = 1};
  ptx::cta_sync();
  const auto begin = [&](int phase) {
    if (worker.thread == 0) worker.ring().begin(static_cast<u32>(phase));
    ptx::warp_sync();
  };
  Copies<Model> early(worker), in_time(worker);
  for (int phase = 0; phase < kCopiedPhases; ++phase) {
    const int in_layer = phase % kLayerPhases;
    if (in_layer == kMergePhase) continue;  // attention's
    if (!copies_in(phase)) {
      early.skip(), in_time.skip();
      continue;
    }
    bool is_early = false, begins = false;
    if (phase > 0) begin(phase - 1);
    if (in_layer == kMergePhase - 1) {
      is_early = Copies<Model>(early).keys_and_values(0, 0);
      early.keys_and_values(0, 1);
    } else {
      is_early = early.weights(kProduct, 0);
    }
    begin(phase);
    begins = in_layer == kMergePhase - 1 ? in_time.keys_and_values(0, 0) : in_time.weights(kProduct, 0);
    if (worker.thread == 0) args.too_early[phase] = is_early, args.in_time[phase] = begins;
  }
}

WEFT_INLINE void read_input(const WorkerArgs& args) {
  const Worker<Model> worker(args.model);
  worker.init();
  const bool is_there = Inputs<Model>(worker).rows(kProduct, 7);
  if (worker.thread == 0) args.has_input[worker.worker] = is_there;
}

}  // namespace
}  // namespace weft::decode::fused

WEFT_KERNEL(32, 1) void weft_copies(WEFT_PARAM weft::decode::fused::WorkerArgs args) {
  weft::decode::fused::copy(args);
}
WEFT_KERNEL(32, 1) void weft_inputs(WEFT_PARAM weft::decode::fused::WorkerArgs args) {
  weft::decode::fused::read_input(args);
}
