// What a launch of locate_rows is given.
#pragma once

#include "attention/abi.h"

namespace weft::attention::cuda {

inline constexpr int kLocateThreads = 128;

struct LocateArgs {
  const PlanHeader* plan;
  int* positions;  // [rows]
  int* places;     // [rows, 2]
  int rows;
};

}  // namespace weft::attention::cuda
