// Compiled once per instruction set. No header of the standard library: an inline function of one would be kept
// from the copy that needs the newest CPU.
//
// Products need 4 to 6 cycles and two can start in each, so twelve sums that do not depend on each other keep the
// units busy. They fit the 16 registers of AVX2 beside two factors. Assembler keeps them there.
#include "bench/loops.h"

#include "tile/cpu/bf16_dot.h"
#include "tile/cpu/int_dot.h"

namespace weft::bench::WEFT_ISA_NAME {
namespace {

using namespace weft::tile::WEFT_ISA_NAME;

constexpr int kVectorBytes = 4 * kLanes;
constexpr int kSums = 12;
// Twelve variables: an array of them would be kept in memory.
#define WEFT_TWELVE(each) \
  each(s0) each(s1) each(s2) each(s3) each(s4) each(s5) each(s6) each(s7) each(s8) each(s9) each(s10) each(s11)

#if defined(__x86_64__)
#define WEFT_IN_REGISTER(x) asm volatile("" : "+v"(x))
#else
#define WEFT_IN_REGISTER(x) asm volatile("" : "+w"(x))
#endif

void read(const void* data, long long bytes, long long passes) {
  constexpr int kStreams = 8;
  U32 any[kStreams] = {};
  for (long long pass = 0; pass < passes; ++pass) {
    const char* at = static_cast<const char*>(data);
    const char* const end = at + bytes;
    for (; at != end; at += kStreams * kVectorBytes) {
      for (int i = 0; i < kStreams; ++i) any[i] |= load_u32(at + i * kVectorBytes);
    }
    for (int i = 0; i < kStreams; ++i) WEFT_IN_REGISTER(any[i]);
  }
}

// sum = step(sum, a, b), the same for each of twelve sums.
#define WEFT_DECLARE(sum) \
  Sum sum = {};           \
  WEFT_IN_REGISTER(sum); /* or equal sums are one */
#define WEFT_STEP(sum)                             \
  WEFT_IN_REGISTER(a); /* or a * b is made once */ \
  sum = step(sum, a, b);
#define WEFT_KEEP(sum) WEFT_IN_REGISTER(sum);

template <class Sum, class Factor, Sum (*step)(Sum, Factor, Factor)>
void multiply_and_add(long long rounds) {
  WEFT_TWELVE(WEFT_DECLARE)
  Factor a = {}, b = {};
  WEFT_IN_REGISTER(b);
  for (long long round = 0; round < rounds; ++round) {
    WEFT_TWELVE(WEFT_STEP)
  }
  WEFT_TWELVE(WEFT_KEEP)
}

// A round's operations on numbers of so many bytes.
constexpr long long ops_of(int bytes) { return 2 * kSums * kVectorBytes / bytes; }

WEFT_INLINE F32 multiply_add(F32 sum, F32 a, F32 b) { return fma(a, b, sum); }

}  // namespace

extern const BenchLoops kBenchLoops = {
    .read = read,
    .fp32 = {multiply_and_add<F32, F32, multiply_add>, ops_of(4)},
#if defined(WEFT_HAS_BF16_DOT)
    .bf16 = {multiply_and_add<F32, U32, dot_bf16>, ops_of(2)},
#else
    .bf16 = {},
#endif
    .int16 = {multiply_and_add<I32, U32, dot_shorts>, ops_of(2)},
#if defined(WEFT_HAS_BYTE_DOT)
    .int8 = {multiply_and_add<I32, U32, dot_bytes>, ops_of(1)},
#else
    .int8 = {},
#endif
};

}  // namespace weft::bench::WEFT_ISA_NAME
