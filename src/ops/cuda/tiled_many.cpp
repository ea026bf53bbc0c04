#include "ops/cuda/tiled_many.h"

#include <algorithm>

#include "base/check.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/tiled_linear.h"
#include "ops/cuda/tiled_weights.h"

namespace weft::ops {
namespace {

// As in the kernel: bands and rows of x of a CTA.
constexpr int64_t kBandsOfCta = 8, kRowsOfCta = 64;
constexpr int kMostSplits = 8, kLeastChunks = 4;  // the latter of a split

int parts_of(bool exact) { return exact ? 3 : 2; }

template <class T>
T* at_least(Workspace& memory, Device device, int64_t count) {
  const size_t bytes = static_cast<size_t>(count) * sizeof(T);
  if (memory.bytes() < bytes) {
    memory = Workspace();
    memory = Workspace(device, bytes);
  }
  return static_cast<T*>(memory.data());
}

int64_t blocks_of(int64_t count, int64_t of_block) { return (count + of_block - 1) / of_block; }

}  // namespace

bool TiledManyRows::takes(const CardMatrix& matrix, const CardProduct& product) {
  if (!matrix.is_tiled() || product.gate) return false;
  if (product.rows <= kMostOfTiledLinear && !product.invariant) return false;
  return std::ranges::all_of(matrix.typed_rows, [&](const CardMatrix::TypedRows& typed) {
    return tiled_many_kernel(typed.type, parts_of(product.exact)).shared_bytes <= most_shared_of_tiles(matrix.device);
  });
}

void TiledManyRows::multiply(const CardMatrix& matrix, const CardProduct& product, Stream stream) {
  ensure(takes(matrix, product), "a product that is not for many rows of tiles");
  const Device device = matrix.device;
  const int parts = parts_of(product.exact);
  const int64_t ld = matrix.tiles.band_tiles * matrix.tiles.tile_cols;
  auto* x = at_least<unsigned short>(x_, device, parts * product.rows * ld);
  launch(device, split_kernel(parts), {.ctas = blocks_of(product.rows, 8)}, stream,
         SplitArgs{.x = product.x,
                   .norm = product.norm,
                   .to = x,
                   .ldx = product.ldx,
                   .ld = ld,
                   .rows = product.rows,
                   .cols = static_cast<int>(matrix.cols),
                   .eps = product.eps});
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows) {
    const KernelText kernel = tiled_many_kernel(typed.type, parts);
    const int64_t chunks = ld / std::max<int64_t>(64, tile_piece(typed.type).cols);
    const int64_t bands = blocks_of(typed.rows, kBandRows), row_blocks = blocks_of(product.rows, kRowsOfCta);
    const int64_t blocks = blocks_of(bands, kBandsOfCta), whole = blocks * row_blocks;
    // So many that multiprocessors have two CTAs each.
    const int64_t at_once = 2 * cuda::runtime().num_multiprocessors(device);
    const int64_t splits = std::clamp<int64_t>(at_once / (product.invariant ? blocks : whole), 1,
                                               std::clamp<int64_t>(chunks / kLeastChunks, 1, kMostSplits));
    TiledManyArgs args{.w = typed.tiles,
                       .x = x,
                       .y = product.y + typed.first_row,
                       .sums = nullptr,
                       .ld = ld,
                       .ldy = product.ldy,
                       .rows = product.rows,
                       .outputs = typed.rows,
                       .bands = static_cast<int>(bands),
                       .chunks = static_cast<int>(chunks),
                       .splits = static_cast<int>(splits),
                       .row_blocks = static_cast<int>(row_blocks),
                       .works = static_cast<int>(whole * splits),
                       .add = product.add};
    if (splits > 1) args.sums = at_least<float>(sums_, device, splits * product.rows * typed.rows);
    launch(device, kernel, {.ctas = args.works, .shared_bytes = kernel.shared_bytes}, stream, args);
    if (splits > 1)
      launch(device, sum_splits_kernel(), {.ctas = blocks_of(product.rows * typed.rows, 4 * kThreads)}, stream,
             SumSplitsArgs{.sums = args.sums,
                           .y = args.y,
                           .ldy = args.ldy,
                           .rows = args.rows,
                           .outputs = args.outputs,
                           .splits = args.splits,
                           .add = args.add});
  }
}

std::vector<KernelText> TiledManyRows::kernels(const CardMatrix& matrix, bool exact) {
  std::vector<KernelText> all{split_kernel(parts_of(exact)), sum_splits_kernel()};
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows)
    all.push_back(tiled_many_kernel(typed.type, parts_of(exact)));
  return all;
}

}  // namespace weft::ops
