// The scales of integer keys and values.
#pragma once

#include "attention/cpu/kernels/tile_rows.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// The fp32 scales of a tile's tokens, where each token (or group of them) and head has its own; nothing otherwise.
class TokenScales {
 public:
  TokenScales(const UnitView& unit, const TokensView& view, int tokens, Arena& arena);

  // Finds where those of a tile lie, asks for those of its tokens [begin, end) (int4 decode takes 1.1 to 1.4 times as
  // long without), and reads those of all heads; what no row sees counts 0, whatever lies there.
  void locate(const KvTile& tile, int stage);
  void fetch(int begin, int end, int stage) const;
  void gather(const KvTile& tile, int stage, const unsigned char* marks);

  float* of(int head) const { return scales_ + static_cast<long long>(head) * tokens_; }
  explicit operator bool() const { return present_; }
  float stored(const Slice& slice) const;  // that of its first token, as it lies in memory
  // Multiplies the slice's columns of some rows of scores, which start at the tile's first column.
  void multiply(const Slice& slice, int num_rows, float* scores, long long ld) const;

 private:
  const UnitView& unit_;
  const TokensView& view_;
  const int tokens_;
  const bool present_;
  const char** rows_[2] = {};
  float* scales_ = nullptr;  // [heads][tokens]
};

// The scale of a head, where each has one.
inline float head_scale(const TokensView& scales, int head) {
  float scale;
  __builtin_memcpy(&scale, scales.data + head * scales.head_stride, sizeof scale);
  return scale;
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
