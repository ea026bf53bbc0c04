// Loops that do nothing but read, or multiply and add: what a core can do at most. One table per instruction set,
// from bench_loops.cpp compiled with its flags.
#pragma once

namespace weft::cli {

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

namespace plain {
extern const BenchLoops kBenchLoops;
}
namespace avx2 {
extern const BenchLoops kBenchLoops;
}
namespace avx512 {
extern const BenchLoops kBenchLoops;
}
namespace avx512_bf16 {
extern const BenchLoops kBenchLoops;
}

}  // namespace weft::cli
