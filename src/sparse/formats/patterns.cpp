// Structures of sparse attention, of blocks.
#include <algorithm>
#include <bit>

#include "base/check.h"
#include "weft/sparse.h"

namespace weft::sparse {
namespace {

// CSR of the blocks that `holds(row, column)` says.
template <class Holds>
Structure square(int64_t num_blocks, const Holds& holds) {
  check(num_blocks >= 0 && num_blocks <= 1 << 20, ErrorCode::invalid_argument, "num_blocks: is {}; 0 to {} are allowed",
        num_blocks, 1 << 20);
  std::vector<int32_t> indptr{0}, indices;
  for (int64_t i = 0; i < num_blocks; ++i) {
    holds(i, [&](int64_t j) { indices.push_back(static_cast<int32_t>(j)); });
    check(indices.size() <= static_cast<size_t>(INT32_MAX), ErrorCode::invalid_argument,
          "num_blocks: the blocks do not fit indices of 32 bits");
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  return csr(num_blocks, num_blocks, indptr, indices);
}

}  // namespace

Structure band(int64_t num_blocks, int64_t reach) {
  check(reach >= 0, ErrorCode::invalid_argument, "reach: is {}; 0 and more are allowed", reach);
  reach = std::min(reach, num_blocks);  // no sum below overflows
  return square(num_blocks, [&](int64_t i, const auto& add) {
    for (int64_t j = std::max<int64_t>(0, i - reach); j <= std::min(num_blocks - 1, i + reach); ++j) add(j);
  });
}

Structure butterfly(int64_t num_blocks, int64_t stride) {
  check(stride >= 1 && std::has_single_bit(static_cast<uint64_t>(stride)), ErrorCode::invalid_argument,
        "stride: is {}; powers of two are allowed", stride);
  return square(num_blocks, [&](int64_t i, const auto& add) {
    // i with one bit turned, smaller ones first.
    for (int64_t bit = stride; bit >= 1; bit /= 2)
      if ((i & bit) != 0) add(i - bit);
    add(i);
    for (int64_t bit = 1; bit <= stride && bit < num_blocks; bit *= 2)
      if ((i & bit) == 0 && i + bit < num_blocks) add(i + bit);
  });
}

}  // namespace weft::sparse
