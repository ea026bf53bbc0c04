// Where an operator that packs weights reads them from, in the layout of their file.
#pragma once

#include <cstdint>
#include <functional>

#include "weft/weight_type.h"

namespace weft::ops {

struct WeightSource {
  WeightType type = WeightType::f32;
  int64_t rows = 0, cols = 0;  // outputs, inputs; cols a multiple of 32 when quantised
  // Reads rows [begin, end) in file layout into `to`. Called from several threads.
  std::function<void(int64_t begin, int64_t end, void* to)> read;
};

}  // namespace weft::ops
