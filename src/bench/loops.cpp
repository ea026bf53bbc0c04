// Compiled once per instruction set. No header of the standard library: an inline function of one would be kept
// from the copy that needs the newest CPU.
//
// Products need 4 to 6 cycles and two can start in each, so twelve sums that do not depend on each other keep the
// units busy. They fit the 16 registers of AVX2 beside two factors. Assembler keeps them there.
#include "bench/loops.h"

namespace weft::bench::WEFT_ISA_NAME {
namespace {

#if defined(WEFT_ISA_avx512) || defined(WEFT_ISA_avx512_bf16)
constexpr int kVectorBytes = 64;
#elif defined(WEFT_ISA_avx2)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr int kSums = 12;
// Twelve variables: an array of them would be kept in memory.
#define WEFT_TWELVE(each) \
  each(s0) each(s1) each(s2) each(s3) each(s4) each(s5) each(s6) each(s7) each(s8) each(s9) each(s10) each(s11)

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef long long Bits __attribute__((vector_size(kVectorBytes)));

#if defined(__x86_64__)
#define WEFT_IN_REGISTER(x) asm volatile("" : "+v"(x))
#else
#define WEFT_IN_REGISTER(x) asm volatile("" : "+w"(x))
#endif

void read(const void* data, long long bytes, long long passes) {
  constexpr int kStreams = 8;
  Bits any[kStreams] = {};
  for (long long pass = 0; pass < passes; ++pass) {
    const Bits* at = static_cast<const Bits*>(data);
    const Bits* const end = at + bytes / kVectorBytes;
    for (; at != end; at += kStreams) {
      for (int i = 0; i < kStreams; ++i) any[i] |= at[i];
    }
    for (int i = 0; i < kStreams; ++i) WEFT_IN_REGISTER(any[i]);
  }
}

// sum += a * b, the same for each of twelve sums.
#define WEFT_DECLARE(sum) \
  Vector sum = {};        \
  WEFT_IN_REGISTER(sum); /* or equal sums are one */
#define WEFT_KEEP(sum) WEFT_IN_REGISTER(sum);
#define WEFT_SUM_LOOP(name, type, step)                  \
  void name(long long rounds) {                          \
    using Vector = type;                                 \
    WEFT_TWELVE(WEFT_DECLARE)                            \
    Vector a = {}, b = {};                               \
    WEFT_IN_REGISTER(a);                                 \
    WEFT_IN_REGISTER(b);                                 \
    for (long long round = 0; round < rounds; ++round) { \
      WEFT_TWELVE(step)                                  \
    }                                                    \
    WEFT_TWELVE(WEFT_KEEP)                               \
  }

#define WEFT_FP32(sum)                             \
  WEFT_IN_REGISTER(a); /* or a * b is made once */ \
  sum += a * b;
WEFT_SUM_LOOP(fp32, Floats, WEFT_FP32)
constexpr long long kFp32Ops = 2 * kSums * kVectorBytes / 4;

#if defined(__x86_64__)
// Without VNNI: multiply pairs of 16-bit integers and add them, then add to the sum.
#if defined(WEFT_ISA_avx512) || defined(WEFT_ISA_avx512_bf16)
#define WEFT_INT16(sum) asm volatile("vpdpwssd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
#elif defined(WEFT_ISA_plain)
#define WEFT_INT16(sum)                                                                 \
  {                                                                                     \
    Bits product = a;                                                                   \
    asm volatile("pmaddwd %2, %1\n\tpaddd %1, %0" : "+x"(sum), "+x"(product) : "x"(b)); \
  }
#else
#define WEFT_INT16(sum)                                                                                    \
  {                                                                                                        \
    Bits product;                                                                                          \
    asm volatile("vpmaddwd %3, %2, %1\n\tvpaddd %1, %0, %0" : "+v"(sum), "=&v"(product) : "v"(a), "v"(b)); \
  }
#endif
WEFT_SUM_LOOP(int16, Bits, WEFT_INT16)
constexpr long long kInt16Ops = 2 * kSums * kVectorBytes / 2;
#else
constexpr WorkLoop int16 = nullptr;
constexpr long long kInt16Ops = 0;
#endif

#if defined(WEFT_ISA_avx512) || defined(WEFT_ISA_avx512_bf16)
#define WEFT_INT8(sum) asm volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
WEFT_SUM_LOOP(int8, Bits, WEFT_INT8)
constexpr long long kInt8Ops = 2 * kSums * kVectorBytes;
#else
constexpr WorkLoop int8 = nullptr;
constexpr long long kInt8Ops = 0;
#endif

#if defined(WEFT_ISA_avx512_bf16)
#define WEFT_BF16(sum) asm volatile("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
WEFT_SUM_LOOP(bf16, Bits, WEFT_BF16)
constexpr long long kBf16Ops = 2 * kSums * kVectorBytes / 2;
#else
constexpr WorkLoop bf16 = nullptr;
constexpr long long kBf16Ops = 0;
#endif

}  // namespace

extern const BenchLoops kBenchLoops = {.read = read,
                                       .fp32 = {fp32, kFp32Ops},
                                       .bf16 = {bf16, kBf16Ops},
                                       .int16 = {int16, kInt16Ops},
                                       .int8 = {int8, kInt8Ops}};

}  // namespace weft::bench::WEFT_ISA_NAME
