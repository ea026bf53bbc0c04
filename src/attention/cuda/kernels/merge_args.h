// What a launch of merge_states is given.
#pragma once

#include "attention/abi.h"

namespace weft::attention::cuda {

struct MergeArgs {
  MergeStatesArgs states;  // indptr: on the card
  long long rows;
};

}  // namespace weft::attention::cuda
