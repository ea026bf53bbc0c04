#include "base/check.h"
#include "weft/attention.h"

namespace weft {

std::vector<uint8_t> pack_mask(std::span<const uint8_t> mask, std::span<const int64_t> mask_indptr,
                               std::vector<int64_t>& byte_indptr) {
  constexpr size_t kPadding = 4;  // kernels read words
  check(!mask_indptr.empty(), ErrorCode::invalid_indptr,
        "mask_indptr: is empty; give [batch + 1] entries, the first one 0");
  check(mask_indptr[0] == 0, ErrorCode::invalid_indptr, "mask_indptr[0] = {}; an indptr starts at 0", mask_indptr[0]);
  for (size_t r = 1; r < mask_indptr.size(); ++r)
    check(mask_indptr[r] >= mask_indptr[r - 1], ErrorCode::invalid_indptr,
          "mask_indptr[{}] = {} after {}; an indptr never decreases", r, mask_indptr[r], mask_indptr[r - 1]);
  check(mask_indptr.back() == static_cast<int64_t>(mask.size()), ErrorCode::invalid_indptr,
        "mask_indptr ends at {}, but mask has {} elements; its last entry is their number", mask_indptr.back(),
        mask.size());

  byte_indptr.assign(1, 0);
  for (size_t r = 1; r < mask_indptr.size(); ++r)
    byte_indptr.push_back(byte_indptr.back() + (mask_indptr[r] - mask_indptr[r - 1] + 7) / 8);
  std::vector<uint8_t> bytes(static_cast<size_t>(byte_indptr.back()) + kPadding);
  for (size_t r = 0; r + 1 < mask_indptr.size(); ++r) {
    const auto begin = static_cast<size_t>(mask_indptr[r]), end = static_cast<size_t>(mask_indptr[r + 1]);
    uint8_t* out = bytes.data() + byte_indptr[r];
    for (size_t i = begin; i < end; ++i)
      out[(i - begin) / 8] = static_cast<uint8_t>(out[(i - begin) / 8] | (mask[i] != 0) << (i - begin) % 8);
  }
  return bytes;
}

}  // namespace weft
