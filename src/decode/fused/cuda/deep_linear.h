// A deep linear network as one kernel, or a kernel a layer: what products cost where nothing else is there, and the
// test of what fused kernels are made of (tile/cuda/ring.h, edge.h, matvec.h).
//
//   const DeepLinear network(cuda::runtime(), Device::cuda(0), {.n = 4096, .layers = 32, .workers = 132});
//   network.start(workspace, stream);                                   // of workspace_bytes()
//   network.run(workspace, {.weights = packed, .x = x}, stream);        // one launch
//   const std::vector<float> y = network.result(workspace, 32, stream); // [rows, n]
//
// Layer after layer x becomes W (x * scale): x in bf16, sums in fp32, weights in tiles (tiled_weights.h, and for bf16
// of any n pack_fragments).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "decode/fused/cuda/kernels/deep_linear_args.h"
#include "decode/fused/partition.h"
#include "jit/cuda/runtime.h"
#include "weft/weight_type.h"

namespace weft::decode::fused {

struct DeepLinearOptions {
  int n = 0;  // rows and columns of every matrix
  WeightType type = WeightType::bf16;
  int layers = 1, rows = 1;
  int workers = 1;  // CTAs that run at once
  EdgeForm edge = EdgeForm::tagged;
  bool overlaps = true;                      // weights of a layer are copied while others still work on the one before
  int warps = 16;                            // that multiply
  int entries = 16, entry_bytes = 12 << 10;  // of the ring; an entry holds as many whole tiles as it can
  int round_entries = 128;                   // whose partial sums lie in shared memory at once (tile/abi/matvec.h)
  int ahead_bytes = 36 << 10, beside_bytes = 64 << 10;  // in flight, until and once a layer has begun (ring.h)
  float scale = 1.f;
  uint64_t limit_ns = 2'000'000'000;  // that a wait may take; 0: forever
};

// Who has which part of a matrix: dealt as partition.h says, of tiles of up to 128 columns, which are whole pieces
// (tile_piece).
MatrixPartition cut_line(int n, int workers, WeightType type = WeightType::bf16);

// A bf16 matrix [rows, cols], both multiples of 16, in fragments: band by band, 512 bytes each (tile/cuda/matvec.h).
void pack_fragments(const uint16_t* matrix, int64_t rows, int64_t cols, uint16_t* to);

// Its kernel; shared_bytes may be more than there is.
cuda::KernelText deep_linear_text(const DeepLinearOptions& options);

class DeepLinear {
 public:
  // Loads the kernel. Throws Error(invalid_argument) for options that are out of range, Error(unsupported) for a device
  // that is no sm_90a, holds fewer CTAs at once, or has less shared memory.
  DeepLinear(const cuda::Runtime& runtime, Device device, const DeepLinearOptions& options);

  const DeepLinearOptions& options() const { return options_; }
  int shared_bytes() const { return layout_of(args_).bytes; }
  size_t weight_bytes() const;  // of a layer
  size_t workspace_bytes() const;
  // What phases are counted by: zeros before phase 0, and after a launch that was stuck.
  size_t state_bytes() const { return state_bytes_; }
  void* state(void* workspace) const { return static_cast<char*>(workspace) + table_bytes_; }

  // The workspace, 256-byte aligned, is ready for phase 0.
  void start(void* workspace, Stream stream) const;

  struct Run {
    const void* weights = nullptr;  // [layers, weight_bytes()], 16-byte aligned
    const float* x = nullptr;       // [rows, n]; null: what the launch before has left
    uint32_t first_phase = 0;       // layers of launches before
    int layers = 0;                 // 0: all
  };
  void run(void* workspace, const Run& run, Stream stream) const;

  // What the launch left whose last layer was layer `phases` in all. Throws Error(device_failed) where a wait gave up:
  // which worker in which phase.
  std::vector<float> result(void* workspace, uint32_t phases, Stream stream) const;

 private:
  const cuda::Runtime& runtime_;
  const Device device_;
  const DeepLinearOptions options_;
  MatrixPartition cut_;
  DeepLinearArgs args_ = {};  // but for addresses
  size_t table_bytes_ = 0, state_bytes_ = 0;
  const cuda::LoadedKernel* kernel_ = nullptr;
};

}  // namespace weft::decode::fused
