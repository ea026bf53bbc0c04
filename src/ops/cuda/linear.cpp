#include "ops/cuda/linear.h"

#include <algorithm>

#include "base/check.h"
#include "jit/cuda/runtime.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/tiled_linear.h"

namespace weft::ops {
namespace {

constexpr int kMostRows = 8;    // of x that share a read of the weights
constexpr int kWarpsOfCta = 8;  // of a CTA
constexpr int64_t kSharedBytes = 64 << 10, kAlignment = 16;

// Bytes of shared memory for a row of x of so many columns, and what is found out about it (ops/cuda/kernels/linear.h).
int64_t row_bytes(int64_t columns) { return (columns + 31) / 32 * 36 * 4 + kWarpsOfCta * 4; }

// The columns of x that shared memory holds at a time.
int64_t chunk_of(int64_t cols, int rows) {
  if (row_bytes(cols) * rows + kAlignment <= kSharedBytes) return cols;
  int64_t chunk = 1024;
  while (row_bytes(chunk + 1024) * rows + kAlignment <= kSharedBytes) chunk += 1024;
  return chunk;
}

// The rows of x that a kernel is for which makes so many at most.
int rows_of_kernel(int64_t rows) { return rows > 4 ? kMostRows : rows > 2 ? 4 : static_cast<int>(rows); }

// Below this many weight bytes per SM, starting CTAs costs more than reading the weights.
constexpr int64_t kSmallShare = 16 << 10;

// What the kernel of rows of a type computes: columns of y, and how many rows of the weights a warp has at a time, of a
// gate two for each column. As many as let all CTAs be there at once: what they have on their way keeps memory busy,
// and none is left over. Of small matrices as many as let a multiprocessor have one CTA.
struct Outputs {
  int64_t count;
  int rows_of_warp;
  int64_t of_cta;
};
Outputs outputs_of(Device device, const CardMatrix::TypedRows& typed, int64_t cols, bool gated) {
  const int multiprocessors = cuda::runtime().num_multiprocessors(device);
  const int64_t bytes = typed.rows * file_row_bytes(typed.type, cols);
  const bool is_small = bytes <= kSmallShare * multiprocessors;
  const int64_t count = gated ? typed.rows / 2 : typed.rows, at_once = (is_small ? 1 : 3) * multiprocessors;
  int rows = gated ? 2 : 1;
  const auto of_cta = [&] { return int64_t{kWarpsOfCta} * rows / (gated ? 2 : 1); };
  while (rows < 4 && count > at_once * of_cta()) rows *= 2;
  return {count, rows, of_cta()};
}

// Of weights in planes.
void linear_of_planes(const CardMatrix& matrix, const CardProduct& product, bool aligned, Stream stream) {
  const Device device = matrix.device;
  const bool gated = product.gate.has_value();
  const int rows = rows_of_kernel(product.rows);
  const int64_t chunk = chunk_of(matrix.cols, rows);
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows) {
    const Outputs outputs = outputs_of(device, typed, matrix.cols, gated);
    const KernelText kernel = linear_kernel(typed.type, rows, outputs.rows_of_warp, gated);
    const CardLaunch how{.ctas = (outputs.count + outputs.of_cta - 1) / outputs.of_cta,
                         .shared_bytes = static_cast<int>(row_bytes(chunk) * rows + kAlignment)};
    for (int64_t begin = 0; begin < product.rows; begin += rows) {
      const LinearArgs args{.w = typed.planes,
                            .x = product.x + begin * product.ldx,
                            .norm = product.norm,
                            .y = product.y + begin * product.ldy + typed.first_row,
                            .ldx = product.ldx,
                            .ldy = product.ldy,
                            .outputs = outputs.count,
                            .cols = static_cast<int>(matrix.cols),
                            .rows = static_cast<int>(std::min<int64_t>(rows, product.rows - begin)),
                            .chunk = static_cast<int>(chunk),
                            .eps = product.eps,
                            .add = product.add,
                            .gelu = product.gate == Gate::gelu_tanh,
                            .is_aligned = aligned};
      launch(device, kernel, how, stream, args);
    }
  }
}

bool at_16_bytes(const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; }

}  // namespace

void linear(const CardMatrix& matrix, const CardProduct& product, Stream stream) {
  ensure(!product.gate || can_gate(matrix), "a gate of another type than what it multiplies");
  const bool aligned =
      at_16_bytes(product.x) && at_16_bytes(product.norm) && product.ldx % 4 == 0 && matrix.cols % 4 == 0;
  if (matrix.is_tiled())
    tiled_linear(matrix, product, aligned, stream);
  else
    linear_of_planes(matrix, product, aligned, stream);
}

std::vector<KernelText> linear_kernels(const CardMatrix& matrix, bool gated, bool exact) {
  std::vector<KernelText> kernels;
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows)
    for (const int rows : {1, kMostRows})
      kernels.push_back(matrix.is_tiled()
                            ? tiled_linear_kernel(tiled_form_of(matrix, typed, rows, gated, exact).kernel)
                            : linear_kernel(typed.type, rows,
                                            outputs_of(matrix.device, typed, matrix.cols, gated).rows_of_warp, gated));
  return kernels;
}

KernelText widen_kernel(const CardMatrix& matrix, const CardMatrix::TypedRows& typed) {
  return matrix.is_tiled() ? tiled_embed_kernel(typed.type) : embed_kernel(typed.type);
}

namespace {

void embed_rows(const CardMatrix& matrix, const CardMatrix::TypedRows& typed, const int* tokens, int64_t first_row,
                int64_t rows, float scale, float* to, Stream stream) {
  const KernelText kernel = widen_kernel(matrix, typed);
  if (matrix.is_tiled())
    launch(matrix.device, kernel, {.ctas = rows}, stream,
           TiledEmbedArgs{typed.tiles, tokens, first_row, to, rows, matrix.cols, scale,
                          at_16_bytes(to) && matrix.cols % 4 == 0});
  else
    launch(matrix.device, kernel, {.ctas = rows}, stream,
           EmbedArgs{typed.planes, tokens, first_row, to, rows, matrix.cols, scale});
}

}  // namespace

void widen(const CardMatrix& matrix, const CardMatrix::TypedRows& typed, int64_t first_row, int64_t rows, float* to,
           Stream stream) {
  embed_rows(matrix, typed, nullptr, first_row, rows, 1.f, to, stream);
}

void embed(const CardMatrix& matrix, const int* tokens, int64_t rows, float scale, float* to, Stream stream) {
  ensure(matrix.typed_rows.size() == 1, "an embedding of several types");
  embed_rows(matrix, matrix.typed_rows[0], tokens, 0, rows, scale, to, stream);
}

}  // namespace weft::ops
