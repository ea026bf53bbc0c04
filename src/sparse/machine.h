// What decides between schedules, of the machine that they run on.
#pragma once

#include <cstdint>
#include <string>

#include "weft/tensor.h"

namespace weft::sparse {

struct Machine {
  std::string model = {};                            // as the processor names itself
  int64_t l1_bytes = 0, l2_bytes = 0, l3_bytes = 0;  // of one core, for data; of one core; of all
  bool prefers_bf16_dots = false;                    // to widening, and multiplying and adding in fp32
  bool has_mma = false;                              // tensor cores that take bf16
  int64_t num_multiprocessors = 0;                   // of a card
};

// Throws Error(unsupported | invalid_device) where there is no such device.
const Machine& machine(Device device = Device::cpu());

}  // namespace weft::sparse
