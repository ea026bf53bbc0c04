// Loops that do nothing but read, or multiply and add: what a core can do at most. One table per instruction set,
// from loops.cpp compiled with its flags.
#pragma once

#include "device/cpu/built_isas.h"

namespace weft::bench {

using WorkLoop = void (*)(long long rounds);

struct BenchLoops {
  // Reads `bytes` (a multiple of 1024) from a 64-byte border `passes` times.
  void (*read)(const void* data, long long bytes, long long passes);
  // A multiplication or an addition is one operation. No function: the ISA has no such instruction.
  struct Work {
    WorkLoop run;
    long long ops;  // of one round
  };
  Work fp32, bf16, int16, int8;
};

WEFT_DECLARE_PER_ISA(const BenchLoops kBenchLoops)

}  // namespace weft::bench
