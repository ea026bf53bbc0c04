#include "ops/cuda/linear.h"

#include <algorithm>

#include "base/check.h"

namespace weft::ops {
namespace {

constexpr int kMostRows = 8;  // of x that share a read of the weights
constexpr int kWarps = 8;     // of a CTA
constexpr int64_t kSharedBytes = 64 << 10, kAlignment = 16;

// Bytes of shared memory for a row of x of so many columns, and what is found out about it (ops/cuda/kernels/linear.h).
int64_t row_bytes(int64_t columns) { return (columns + 31) / 32 * 36 * 4 + (kWarps + 2) * 4; }

// The columns of x that shared memory holds at a time.
int64_t chunk_of(int64_t cols, int rows) {
  if (row_bytes(cols) * rows + kAlignment <= kSharedBytes) return cols;
  int64_t chunk = 1024;
  while (row_bytes(chunk + 1024) * rows + kAlignment <= kSharedBytes) chunk += 1024;
  return chunk;
}

// The rows of x that a kernel is for which makes so many at most.
int rows_of_kernel(int64_t rows) { return rows > 4 ? kMostRows : rows > 2 ? 4 : static_cast<int>(rows); }

// What the kernel of a part computes: columns of y, and how many of them a warp has at a time. More of them share the columns
// of x that it reads, as long as there is work for all warps of the card; of a gate it has two rows of the weights for each.
struct Outputs {
  int64_t count;
  int rows_of_warp;
  int64_t of_cta;
};
Outputs outputs_of(const cuda::Card& card, const CardMatrix::Part& part, bool gated) {
  const int64_t count = gated ? part.rows / 2 : part.rows, warps = int64_t{2} * kWarps * card.num_multiprocessors();
  const int rows = count >= 4 * warps ? 4 : count >= 2 * warps || gated ? 2 : 1;
  return {count, rows, kWarps * rows / (gated ? 2 : 1)};
}

}  // namespace

void linear(cuda::Card& card, const CardMatrix& matrix, const CardProduct& product, Stream stream) {
  const bool gated = product.gate.has_value();
  ensure(!gated || can_gate(matrix), "a gate of another type than what it multiplies");
  const int rows = rows_of_kernel(product.rows);
  const int64_t chunk = chunk_of(matrix.cols, rows);
  for (const CardMatrix::Part& part : matrix.parts) {
    const Outputs outputs = outputs_of(card, part, gated);
    const KernelText kernel = linear_kernel(part.type, rows, outputs.rows_of_warp, gated);
    const CardLaunch how{.ctas = (outputs.count + outputs.of_cta - 1) / outputs.of_cta,
                         .shared_bytes = static_cast<size_t>(row_bytes(chunk) * rows + kAlignment)};
    for (int64_t begin = 0; begin < product.rows; begin += rows) {
      const LinearArgs args{.w = part.planes,
                            .x = product.x + begin * product.ldx,
                            .norm = product.norm,
                            .y = product.y + begin * product.ldy + part.first_row,
                            .ldx = product.ldx,
                            .ldy = product.ldy,
                            .outputs = outputs.count,
                            .cols = static_cast<int>(matrix.cols),
                            .rows = static_cast<int>(std::min<int64_t>(rows, product.rows - begin)),
                            .chunk = static_cast<int>(chunk),
                            .eps = product.eps,
                            .add = product.add,
                            .gelu = product.gate == Gate::gelu_tanh};
      launch(card, kernel, how, stream, args);
    }
  }
}

std::vector<KernelText> linear_kernels(const cuda::Card& card, const CardMatrix& matrix, bool gated) {
  std::vector<KernelText> kernels;
  for (const CardMatrix::Part& part : matrix.parts)
    for (const int rows : {1, kMostRows})
      kernels.push_back(linear_kernel(part.type, rows, outputs_of(card, part, gated).rows_of_warp, gated));
  return kernels;
}

void embed(cuda::Card& card, const CardMatrix& matrix, const int* tokens, int64_t rows, float scale, float* to,
           Stream stream) {
  ensure(matrix.parts.size() == 1, "an embedding of several types");
  const EmbedArgs args{matrix.parts[0].planes, tokens, to, rows, matrix.cols, scale};
  launch(card, embed_kernel(matrix.parts[0].type), {.ctas = rows}, stream, args);
}

}  // namespace weft::ops
