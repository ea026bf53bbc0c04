#include "attention/cpu/kernels/contain.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

NonFinite::NonFinite(const UnitView& unit, const Seen* seen, const Columns& columns, KvSource& values, int tokens,
                     Arena& arena)
    : unit_(unit),
      seen_(seen),
      columns_(columns),
      values_(values),
      tokens_(tokens),
      // What an only row does not see is left out already.
      found_(arena.allocate<unsigned char>(unit.num_rows > 1 ? static_cast<long long>(unit.heads) * tokens : 0)) {}

bool NonFinite::start(const States& states) {
  active_ = unit_.num_rows > 1 && states.has_non_finite();
  return active_;
}

void NonFinite::find(const KvTile& tile, int stage) {
  if (!contains(tile)) return;
  float value[kMaxHeadDim];
  for (int head = 0; head < unit_.heads; ++head)
    for (int t = 0; t < tile.n; ++t) {
      unsigned char& found = found_[static_cast<long long>(head) * tokens_ + t];
      found = 0;
      if (!columns_.marks[t]) continue;
      float sum = 0 * values_.load_token({tile, stage, head, t, 1}, value);
      for (int d = 0; d < values_.dim(); ++d) sum += 0 * value[d];
      found = sum != 0;
      if (found && values_.scales_columns()) values_.scales.of(head)[t] = 1;
    }
}

KvSource::Rows NonFinite::rows(const Slice& slice) const {
  if (!contains(slice.tile)) return values_.rows(slice);
  return values_.rows_without(found_ + static_cast<long long>(slice.head) * tokens_, slice);
}

void NonFinite::add(const KvTile& tile, int stage, int head, const Scores& scores, const float* columns,
                    States& states) const {
  alignas(64) float value[kMaxHeadDim];
  for (int t = 0; t < tile.n; ++t) {
    if (!found_[static_cast<long long>(head) * tokens_ + t]) continue;
    const float scale = values_.load_token({tile, stage, head, t, 1}, value);
    for (int i = 0; i < unit_.group_rows; ++i) {
      if (!sees(seen_[i / unit_.args.group_size], columns_.positions[t])) continue;
      const float p = scale * scores.prob(head, i, t);
      float* o = states.o_of(head) + i * states.ld_o;
      for (int d = 0; d < values_.dim(); ++d) o[static_cast<int>(columns[d])] += p * value[d];
    }
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
