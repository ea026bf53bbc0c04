// Compiled once per instruction set. No header of the standard library: an inline function of one would be kept
// from the copy that needs the newest CPU.
#include "bench/sparse/loops.h"

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

// Loads `kVectors` vectors of each row from `rows` on (0: as many as told), for p from begin to end. Four variables,
// not an array: what has no literal index would be kept in memory, and each load would wait for a store.
template <int kVectors>
void load_tiles(const CsrRows& a, const float* rows, long long feat, long long begin, long long end, long long told,
                long long ahead) {
  const long long vectors = kVectors > 0 ? kVectors : told, last = a.nnz - ahead;
  Bits any0 = {}, any1 = {}, any2 = {}, any3 = {};
  for (long long p = begin; p < end; ++p) {
    if (ahead > 0 && p < last) {
      const float* next = rows + a.indices[p + ahead] * feat;
      for (long long k = 0; k < vectors * kFloats; k += 16) __builtin_prefetch(next + k);
    }
    const auto* row = reinterpret_cast<const Bits*>(rows + a.indices[p] * feat);
    long long v = 0;
    for (; v + 4 <= vectors; v += 4) {
      any0 |= row[v], any1 |= row[v + 1];
      any2 |= row[v + 2], any3 |= row[v + 3];
    }
    for (; v < vectors; ++v) any0 |= row[v];
  }
  WEFT_IN_REGISTER(any0);
  WEFT_IN_REGISTER(any1);
  WEFT_IN_REGISTER(any2);
  WEFT_IN_REGISTER(any3);
}

void gather(const CsrRows& a, const float* rows, long long feat, const GatherLoop& loop) {
  const auto load = [&](const float* tile, long long begin, long long end) {
    const long long vectors = loop.width / kFloats;
    switch (loop.width % kFloats == 0 ? vectors : 0) {
      case 1: return load_tiles<1>(a, tile, feat, begin, end, 0, loop.ahead);
      case 2: return load_tiles<2>(a, tile, feat, begin, end, 0, loop.ahead);
      case 4: return load_tiles<4>(a, tile, feat, begin, end, 0, loop.ahead);
      case 8: return load_tiles<8>(a, tile, feat, begin, end, 0, loop.ahead);
      case 16: return load_tiles<16>(a, tile, feat, begin, end, 0, loop.ahead);
      case 32: return load_tiles<32>(a, tile, feat, begin, end, 0, loop.ahead);
      default: return load_tiles<0>(a, tile, feat, begin, end, vectors, loop.ahead);
    }
  };
  if (loop.by_rows) {
    for (long long i = a.begin; i < a.end; ++i)
      for (long long k = 0; k < feat; k += loop.width) load(rows + k, a.indptr[i], a.indptr[i + 1]);
  } else {
    for (long long k = 0; k < feat; k += loop.width) load(rows + k, a.indptr[a.begin], a.indptr[a.end]);
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
