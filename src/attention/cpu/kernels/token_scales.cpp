// The scales of integer keys and values.
#include "attention/cpu/kernels/token_scales.h"

#include "tile/cpu/lanes.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

TokenScales::TokenScales(const UnitView& unit, const TokensView& view, int tokens, Arena& arena)
    : unit_(unit), view_(view), tokens_(tokens), present_(unit.args.scaling == Scaling::token) {
  if (!present_) return;
  for (const char**& rows : rows_) rows = arena.allocate<const char*>(tokens);
  scales_ = arena.allocate<float>(static_cast<long long>(tokens) * unit.heads);
}

void TokenScales::locate(const KvTile& tile, int stage) {
  if (present_) locate_tokens(unit_, view_, unit_.first_head, tile.begin, tile.n, rows_[stage]);
}

void TokenScales::fetch(int begin, int end, int stage) const {
  if (!present_) return;
  // Some share a line.
  const long long stride = view_.token_stride;
  const int step = stride > 0 && stride < 64 ? min_of(static_cast<int>(64 / stride), unit_.args.token_page_size) : 1;
  for (int i = begin; i < end; i += max_of(step, 1)) prefetch(rows_[stage][i]);
}

void TokenScales::gather(const KvTile& tile, int stage, const unsigned char* marks) {
  if (!present_) return;
  const char* const* rows = rows_[stage];
  for (int head = 0; head < unit_.heads; ++head) {
    float* scales = of(head);
    const long long offset = head * view_.head_stride;
    int i = 0;
    for (; i + kLanes <= tile.n; i += kLanes) store(scales + i, tile::WEFT_ISA_NAME::gather(rows + i, offset));
    for (; i < tile.n; ++i) __builtin_memcpy(scales + i, rows[i] + offset, sizeof(float));
    for (; i < round_up(tile.n, abi::kColumnStep); ++i) scales[i] = 0;
    if (tile.boundary)
      for (i = 0; i < tile.n; ++i) scales[i] = marks[i] ? scales[i] : 0.f;
  }
}

float TokenScales::stored(const Slice& slice) const {
  float scale;
  __builtin_memcpy(&scale, rows_[slice.stage][slice.begin] + slice.head * view_.head_stride, sizeof scale);
  return scale;
}

void TokenScales::multiply(const Slice& slice, int num_rows, float* scores, long long ld) const {
  const float* scales = of(slice.head);
  // With the tile's last token what pads it, too.
  const int end =
      slice.begin + slice.n < slice.tile.n ? slice.begin + slice.n : round_up(slice.tile.n, abi::kColumnStep);
  for (int row = 0; row < num_rows; ++row, scores += ld)
    for (int i = slice.begin; i < end; i += kLanes) store(scores + i, load(scores + i) * load(scales + i));
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
