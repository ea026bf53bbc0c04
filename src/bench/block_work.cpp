#include "bench/block_work.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "base/check.h"
#include "bench/batch.h"
#include "bench/cuda/placed.h"

namespace weft::bench {
namespace {

constexpr int64_t kTokens = 4096, kBlock = 32;

// Block rows by block columns, a tenth of them stored, at random.
sparse::Structure pruned(int64_t rows, int64_t cols) {
  std::mt19937_64 random(3);
  std::vector<int32_t> indptr = {0}, indices;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j)
      if (static_cast<double>(random() >> 11) * 0x1p-53 < 0.1) indices.push_back(static_cast<int32_t>(j));
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  return sparse::csr(rows, cols, indptr, indices);
}

}  // namespace

BlockCase block_case(const std::string& pattern, bool quick, int64_t feat) {
  const int64_t heads = quick ? 2 : 12, size = quick ? 1024 : 4096, blocks = kTokens / kBlock;
  const int64_t width = feat > 0 ? feat : pattern == "pruned" ? 512 : 64;
  if (pattern == "longformer")
    return {.name = fmt::format("longformer 4096 x {} heads d{} band 256", heads, width),
            .structure = sparse::band(blocks, 4),
            .heads = heads,
            .feat = width};
  if (pattern == "butterfly")
    return {.name = fmt::format("butterfly 4096 x {} heads d{}", heads, width),
            .structure = sparse::butterfly(blocks, blocks / 2),
            .heads = heads,
            .feat = width};
  check(pattern == "pruned", ErrorCode::invalid_argument,
        "pattern: is '{}'; longformer, butterfly and pruned are allowed", pattern);
  return {.name = fmt::format("pruned {0} x {0} block 32 density 0.1 F{1}", size, width),
          .structure = pruned(size / kBlock, size / kBlock),
          .heads = 1,
          .feat = width};
}

BlockWork::BlockWork(BlockCase blocks, DType dtype, Device device)
    : blocks_(std::move(blocks)),
      dtype_(dtype),
      device_(device),
      stored_(tensor({blocks_.heads, blocks_.structure.nnz(), blocks_.block, blocks_.block})),
      rows_(tensor({blocks_.heads, blocks_.structure.num_rows() * blocks_.block, blocks_.feat})),
      cols_(tensor({blocks_.heads, blocks_.structure.num_cols() * blocks_.block, blocks_.feat})) {}

BlockWork::Tensor BlockWork::tensor(std::vector<int64_t> shape) const {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  Tensor made{
      .memory = Workspace(Device::cpu(), static_cast<size_t>(std::max<int64_t>(count, 1) * bits_of(dtype_) / 8) + 64)};
  fill_random(made.memory.data(), dtype_, count, static_cast<unsigned>(count));
  if (device_ != Device::cpu()) made.memory = placed(device_, made.memory.data(), made.memory.bytes());
  made.view = TensorView(made.memory.data(), dtype_, shape, device_);
  return made;
}

void BlockWork::spmm(Stream stream) const {
  sparse::block_spmm(blocks_.structure, stored_.view, cols_.view, rows_.view, stream);
}

void BlockWork::sddmm(Stream stream) const {
  sparse::block_sddmm(blocks_.structure, rows_.view, cols_.view, stored_.view, stream);
}

double BlockWork::flops() const { return 2. * static_cast<double>(stored_.view.size() * blocks_.feat); }

double BlockWork::bytes() const {
  return static_cast<double>((stored_.view.size() + rows_.view.size() + cols_.view.size()) * bits_of(dtype_) / 8);
}

}  // namespace weft::bench
