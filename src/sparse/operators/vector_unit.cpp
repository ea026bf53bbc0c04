#include "sparse/operators/vector_unit.h"

#include <algorithm>

#include "sparse/machine.h"

namespace weft::sparse {

VectorUnit vector_unit(Isa isa) {
  switch (isa) {
    case Isa::avx512:
    case Isa::avx512_bf16: return {.lanes = 16, .registers = 32};
    case Isa::avx2: return {.lanes = 8, .registers = 16};
    default: return {.lanes = 4, .registers = 16};
  }
}

VectorUnit vector_unit(Device device) {
  if (device == Device::cpu()) return vector_unit(current_isa());
  return {.lanes = 4, .registers = 16, .is_of_card = true};
}

VectorUnit unit_of(Device device) {
  VectorUnit unit = vector_unit(device);
  if (!unit.is_of_card) return unit;
  const Machine& card = machine(device);
  unit.has_mma = card.has_mma;
  unit.num_multiprocessors = card.num_multiprocessors;
  return unit;
}

RowTiles row_tiles(int64_t feat, const VectorUnit& unit, int64_t rows) {
  if (feat == 0) return {};
  RowTiles tiles{.lanes = unit.lanes};
  while (tiles.lanes > 4 && feat % tiles.lanes != 0 && tiles.lanes * 4 > unit.lanes) tiles.lanes /= 2;
  if (feat % tiles.lanes != 0) return {};
  // Half of the registers for sums; the others for what is multiplied.
  for (int64_t d = 1; d <= std::max<int64_t>(1, unit.registers / 2 / rows); ++d)
    if (feat / tiles.lanes % d == 0) tiles.vectors = d;
  return tiles;
}

}  // namespace weft::sparse
