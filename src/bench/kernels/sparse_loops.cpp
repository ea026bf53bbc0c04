// Compiled once per instruction set. No header of the standard library: an inline function of one would be kept
// from the copy that needs the newest CPU.
#include "bench/sparse_loops.h"

namespace weft::bench::WEFT_ISA_NAME {
namespace {

#if defined(WEFT_ISA_avx512) || defined(WEFT_ISA_avx512_bf16)
constexpr int kVectorBytes = 64;
#elif defined(WEFT_ISA_avx2)
constexpr int kVectorBytes = 32;
#else
constexpr int kVectorBytes = 16;
#endif
constexpr long long kFloats = kVectorBytes / 4;
typedef long long Bits __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));

#if defined(__x86_64__)
#define WEFT_IN_REGISTER(x) asm volatile("" : "+v"(x))
#else
#define WEFT_IN_REGISTER(x) asm volatile("" : "+w"(x))
#endif

// kVectors: of a row; 0: told by feat, which leaves a rest of less than a vector out.
template <int kVectors>
void gather_rows(const CsrRows& a, const float* rows, long long feat, long long ahead) {
  const long long vectors = kVectors > 0 ? kVectors : feat / kFloats, last = a.indptr[a.end];
  Bits any[4] = {};
  for (long long p = a.indptr[a.begin]; p < last; ++p) {
    if (ahead > 0 && p + ahead < last) {
      const float* next = rows + a.indices[p + ahead] * feat;
      for (long long k = 0; k < vectors * kFloats; k += 16) __builtin_prefetch(next + k);
    }
    const float* row = rows + a.indices[p] * feat;
    for (long long v = 0; v < vectors; ++v) any[v % 4] |= *reinterpret_cast<const Bits*>(row + v * kFloats);
  }
  for (Bits& bits : any) WEFT_IN_REGISTER(bits);
}

void gather(const CsrRows& a, const float* rows, long long feat, long long ahead) {
  if (feat % kFloats != 0) return gather_rows<0>(a, rows, feat, ahead);
  switch (feat / kFloats) {
    case 2: return gather_rows<2>(a, rows, feat, ahead);
    case 4: return gather_rows<4>(a, rows, feat, ahead);
    case 8: return gather_rows<8>(a, rows, feat, ahead);
    case 16: return gather_rows<16>(a, rows, feat, ahead);
    case 32: return gather_rows<32>(a, rows, feat, ahead);
    default: return gather_rows<0>(a, rows, feat, ahead);
  }
}

void spmm(const CsrRows& a, const float* __restrict b, float* __restrict c, long long feat) {
  const int *const indptr = a.indptr, *const indices = a.indices;
  const float* const values = a.values;
  for (long long i = a.begin; i < a.end; ++i) {
    float* const row = c + i * feat;
    for (long long k = 0; k < feat; ++k) row[k] = 0;
    for (long long p = indptr[i]; p < indptr[i + 1]; ++p) {
      const float* const other = b + indices[p] * feat;
      float value = values[p];
      WEFT_IN_REGISTER(value);  // or gcc takes two elements at once, without vectors
      for (long long k = 0; k < feat; ++k) row[k] += value * other[k];
    }
  }
}

void sddmm(const CsrRows& a, const float* __restrict x, const float* __restrict y, float* __restrict out,
           long long feat) {
  for (long long i = a.begin; i < a.end; ++i)
    for (long long p = a.indptr[i]; p < a.indptr[i + 1]; ++p) {
      const long long j = a.indices[p];
      float sum = 0;
      for (long long k = 0; k < feat; ++k) sum += x[i * feat + k] * y[j * feat + k];
      out[p] = a.values[p] * sum;
    }
}

}  // namespace

const SparseLoops kSparseLoops = {gather, spmm, sddmm};

}  // namespace weft::bench::WEFT_ISA_NAME
