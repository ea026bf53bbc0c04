#include "ops/cuda/greedy.h"

#include <algorithm>

#include "ops/cuda/kernels.h"
#include "ops/cuda/launch.h"

namespace weft::ops {
namespace {

constexpr int64_t kColumns = 2048, kMostParts = 64;  // of a CTA, at least; CTAs of a row

int64_t parts_of(int64_t columns) { return std::clamp<int64_t>(columns / kColumns, 1, kMostParts); }

size_t bytes_of(int64_t rows, int64_t columns) {
  return static_cast<size_t>(rows) *
         (sizeof(uint32_t) + sizeof(int32_t) + static_cast<size_t>(parts_of(columns)) * sizeof(uint64_t));
}

}  // namespace

// New memory is zero.
GreedyRows::GreedyRows(Device device, int64_t most_rows, int64_t columns)
    : memory_(device, bytes_of(most_rows, columns)), most_rows_(most_rows), columns_(columns) {}

const int* GreedyRows::run(const float* logits, int64_t rows, Stream stream) const {
  const int64_t parts = parts_of(columns_);
  auto* const done = static_cast<unsigned*>(memory_.data());
  int* const ids = reinterpret_cast<int*>(done + most_rows_);
  launch(stream.device(), greedy_kernel(), {.ctas = rows * parts, .shared_bytes = kGreedySharedBytes}, stream,
         GreedyArgs{.logits = logits,
                    .found = reinterpret_cast<unsigned long long*>(ids + most_rows_),
                    .done = done,
                    .ids = ids,
                    .rows = rows,
                    .columns = static_cast<int>(columns_),
                    .parts = static_cast<int>(parts)});
  return ids;
}

}  // namespace weft::ops
