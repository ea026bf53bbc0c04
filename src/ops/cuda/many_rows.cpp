#include "ops/cuda/many_rows.h"

#include <algorithm>

#include "base/check.h"
#include "ops/cuda/launch.h"

namespace weft::ops {
namespace {

constexpr int64_t kWeightBytes = 64 << 20, kWorkspaceBytes = 32 << 20;

void* at_least(Workspace& memory, Device device, int64_t bytes) {
  if (memory.bytes() < static_cast<size_t>(bytes)) {
    memory = Workspace();
    memory = Workspace(device, static_cast<size_t>(bytes));
  }
  return memory.data();
}

// As the library expects where it chooses the algorithm itself.
bool is_aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % 256 == 0; }

}  // namespace

bool ManyRows::takes(const CardMatrix& matrix, const CardProduct& product) {
  bool aligned = is_aligned(product.x) && product.ldx % 4 == 0 && product.ldy % 4 == 0 && matrix.cols % 4 == 0;
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows)
    aligned = aligned && is_aligned(product.y + typed.first_row);
  return product.rows > kFewRows && !product.gate && aligned;
}

const float* ManyRows::normed(const CardMatrix& matrix, const CardProduct& product, Stream stream) {
  const int64_t cols = matrix.cols;
  auto* x =
      static_cast<float*>(at_least(x_, stream.device(), product.rows * cols * static_cast<int64_t>(sizeof(float))));
  launch(matrix.device, norm_kernel(), {.ctas = (product.rows + 7) / 8}, stream,
         NormArgs{.x = {const_cast<float*>(product.x), 1, product.ldx, 0},
                  .residual = {},
                  .y = {x, 1, cols, 0},
                  .weight = product.norm,
                  .rows = product.rows,
                  .dim = static_cast<int>(cols),
                  .eps = product.eps,
                  .onto = false});
  return x;
}

void ManyRows::multiply(const CardMatrix& matrix, const CardProduct& product, Stream stream) {
  ensure(takes(matrix, product), "a product that is not for cuBLASLt");
  const int64_t cols = matrix.cols, row_bytes = cols * static_cast<int64_t>(sizeof(float));
  const float* x = product.norm != nullptr ? normed(matrix, product, stream) : product.x;
  const int64_t ldx = product.norm != nullptr ? cols : product.ldx;
  at_least(workspace_, stream.device(), kWorkspaceBytes);
  // A whole number of lines, so that each piece of y begins on one.
  const int64_t step = std::max<int64_t>(kWeightBytes / row_bytes / 64 * 64, 64);
  for (const CardMatrix::TypedRows& typed : matrix.typed_rows)
    for (int64_t first = 0; first < typed.rows; first += step) {
      const int64_t count = std::min(step, typed.rows - first);
      const bool is_there = typed.type == WeightType::f32;  // as it lies, in whole pieces
      auto* w = static_cast<float*>(is_there ? const_cast<void*>(typed.planes.quants)
                                             : at_least(weights_, stream.device(), step * row_bytes));
      if (is_there)
        w += first * cols;
      else
        widen(matrix, typed, first, count, w, stream);
      blas_->multiply(cuda::Card::at(matrix.device.index),
                      {.a = {x, ldx},
                       .b = {w, cols, true},
                       .c = product.y + typed.first_row + first,
                       .ldc = product.ldy,
                       .rows = product.rows,
                       .inner = cols,
                       .cols = count,
                       .add = product.add,
                       .exact = product.exact},
                      workspace_, stream);
    }
}

}  // namespace weft::ops
