#include "ops/cuda/tiled_linear.h"

#include <algorithm>

#include "base/check.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/tiled_weights.h"

namespace weft::ops {
namespace {

// A multiprocessor has 16 warps in all, each with so many bytes on their way. From as many bytes of a set of bands on
// all of them are of one CTA, so that x lies there once; below, two CTAs take turns with their ends.
constexpr int kAheadBytes = 4608, kMostAhead = 8;
constexpr int64_t kLargeSet = 96 << 10;

// Of a CTA, at most, and so that two fit.
struct SharedRoom {
  int most, of_two;
};
SharedRoom shared_room(Device device) {
  const std::string architecture = cuda::runtime().architecture(device);
  if (architecture == "sm_90a") return {224 << 10, 112 << 10};
  if (architecture == "sm_80") return {160 << 10, 80 << 10};
  return {96 << 10, 48 << 10};
}

// As the kernel lays it out (kernels/tiled_linear.h): squares and sums, then x of each warp.
int shared_bytes_of(const TiledLinearForm& form, int columns) {
  const int fixed = form.rows * form.warps * 4 * (1 + 2 * form.bands * 16), stride = (columns + 47) / 64 * 64 + 16;
  return (fixed + 15) / 16 * 16 + form.warps * form.rows * form.parts * stride * 2;
}

// Pieces of a warp, of which it has `of_warp` of each set, on their way. Fewer where sums of many columns take the
// registers.
int ahead_of(int64_t piece_bytes, const TiledLinearForm& form, int of_warp, bool has_one_set) {
  const int bytes = form.rows > 2 ? form.parts > 2 ? kAheadBytes / 2 : kAheadBytes * 2 / 3 : kAheadBytes;
  const int most = std::clamp(static_cast<int>(bytes / (piece_bytes * form.bands)), 1, kMostAhead);
  if (has_one_set) return std::min(most, of_warp);
  // The most that divide a set's, if they are not far fewer: none is moved between registers then.
  for (int ahead = most; 2 * ahead > most; --ahead)
    if (of_warp % ahead == 0) return ahead;
  return most;
}

}  // namespace

int most_shared_of_tiles(Device device) { return shared_room(device).most; }

TiledForm tiled_form_of(const CardMatrix& matrix, const CardMatrix::TypedRows& typed, int64_t rows, bool gated,
                        bool exact) {
  const TilePiece piece = tile_piece(typed.type);
  const CardTiles& tiles = typed.tiles;
  TiledForm form;
  TiledLinearForm& kernel = form.kernel;
  kernel.weights = typed.type;
  kernel.rows = rows > 4 ? kMostOfTiledLinear : rows > 2 ? 4 : static_cast<int>(rows);
  kernel.parts = exact ? 3 : 2;
  kernel.gated = gated;
  kernel.bands = gated ? 2 : 1;
  form.bands = static_cast<int>(((gated ? typed.rows / 2 : typed.rows) + kBandRows - 1) / kBandRows);
  const int64_t set_bytes = int64_t{tiles.panels} * tiles.strip_pieces * piece.bytes * kernel.bands;
  kernel.warps = set_bytes >= kLargeSet || tiles.panels > 8 ? 16 : 8;
  ensure(tiles.panels <= kernel.warps, "{}: {} panels for {} warps", matrix.name, tiles.panels, kernel.warps);
  // Of a warp at most, and of most of them.
  const int panel_warps = kernel.warps / tiles.panels, of_warp = (tiles.strip_pieces + panel_warps - 1) / panel_warps;
  const auto bytes_of = [&](int pieces) { return shared_bytes_of(kernel, pieces * static_cast<int>(piece.cols)); };
  const SharedRoom room = shared_room(matrix.device);
  // Where x does not fit, it comes again for each set: two bands share that.
  if (!gated && kernel.rows > 2 && bytes_of(of_warp) > room.most) kernel.bands = 2;
  form.sets = gated ? form.bands : (form.bands + kernel.bands - 1) / kernel.bands;
  kernel.ahead =
      ahead_of(piece.bytes, kernel, of_warp,
               form.sets <= (kernel.warps == 8 ? 2 : 1) * cuda::runtime().num_multiprocessors(matrix.device));
  form.chunk = of_warp;
  const int limit = kernel.warps == 8 && bytes_of(of_warp) <= room.of_two ? room.of_two : room.most;
  if (bytes_of(of_warp) > limit) {
    form.chunk = kernel.ahead;
    while (bytes_of(form.chunk + kernel.ahead) <= limit) form.chunk += kernel.ahead;
  }
  form.shared_bytes = bytes_of(form.chunk);
  kernel.shared_bytes = room.most;
  return form;
}

void tiled_linear(const CardMatrix& matrix, const CardProduct& product, bool aligned, Stream stream) {
  const bool gated = product.gate.has_value();
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows) {
    const TiledForm form = tiled_form_of(matrix, typed, product.rows, gated, product.exact);
    const KernelText kernel = tiled_linear_kernel(form.kernel);
    const CardLaunch how{.ctas = form.sets, .shared_bytes = form.shared_bytes};
    for (int64_t begin = 0; begin < product.rows; begin += form.kernel.rows) {
      const TiledLinearArgs args{.w = typed.tiles,
                                 .x = product.x + begin * product.ldx,
                                 .norm = product.norm,
                                 .y = product.y + begin * product.ldy + typed.first_row,
                                 .ldx = product.ldx,
                                 .ldy = product.ldy,
                                 .outputs = gated ? typed.rows / 2 : typed.rows,
                                 .bands = form.bands,
                                 .cols = static_cast<int>(matrix.cols),
                                 .rows = static_cast<int>(std::min<int64_t>(form.kernel.rows, product.rows - begin)),
                                 .chunk = form.chunk,
                                 .eps = product.eps,
                                 .add = product.add,
                                 .gelu = product.gate == Gate::gelu_tanh,
                                 .is_aligned = aligned};
      launch(matrix.device, kernel, how, stream, args);
    }
  }
}

}  // namespace weft::ops
