// Products of few rows with keys and values as they are stored: every stored row is loaded and converted once for
// all query rows of the head group (decode).
#include "attention/kernels/cpu/loaders.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

// The last units of a row, fewer than kLanes.
template <class Load>
WEFT_INLINE F32 load_rest(const char* p, int n) {
  alignas(64) char buffer[kLanes * 4] = {};
  __builtin_memcpy(buffer, p, static_cast<unsigned long>(n * Load::kBytes));
  return Load::load(buffer);
}

WEFT_INLINE void prefetch_row(const char* row, int bytes) {
  for (int b = 0; b < bytes; b += 64) prefetch(row + b);
}

// Tokens whose sums are in registers together: sums, loaded keys and one query vector fit.
template <int M>
constexpr int kTokensAtOnce = kRegisters == 32 ? (M <= 4 ? 4 : 2) : (M <= 2 ? 4 : 2);

template <class Load, int M>
void dot_block(const char* const* rows, const char* const* next, long long offset, long long next_offset, int n,
               const float* q, int dim, float* scores) {
  constexpr int kTokens = kTokensAtOnce<M>;
  const int units = dim / Load::kElements;
  const int bytes = units * Load::kBytes;
  for (int t = 0; t < n; t += kLanes) {
    F32 sums[M][kLanes];
    for (int s = 0; s < kLanes; s += kTokens) {
      const char* key[kTokens];
      F32 acc[kTokens][M];
#pragma GCC unroll 4
      for (int j = 0; j < kTokens; ++j) {
        key[j] = rows[t + s + j] + offset;
        if (next) prefetch_row(next[t + s + j] + next_offset, bytes);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) acc[j][m] = F32{};
      }
      const float* query = q;
      int u = 0;
      for (; u + kLanes <= units; u += kLanes, query += M * kLanes) {
        F32 k[kTokens];
#pragma GCC unroll 4
        for (int j = 0; j < kTokens; ++j) k[j] = Load::load(key[j] + u * Load::kBytes);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          const F32 x = load(query + m * kLanes);
#pragma GCC unroll 4
          for (int j = 0; j < kTokens; ++j) acc[j][m] = Load::step(acc[j][m], k[j], x);
        }
      }
      if (u < units)
        for (int j = 0; j < kTokens; ++j) {
          const F32 k = load_rest<Load>(key[j] + u * Load::kBytes, units - u);
#pragma GCC unroll 8
          for (int m = 0; m < M; ++m) acc[j][m] = Load::step(acc[j][m], k, load(query + m * kLanes));
        }
#pragma GCC unroll 4
      for (int j = 0; j < kTokens; ++j)
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) sums[m][s + j] = acc[j][m];
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) store(scores + m * kDirectLd + t, sum_each(sums[m]));
  }
}

// M rows x N vectors of the output stay in registers while all tokens pass by.
template <class Type, int M, int N>
WEFT_INLINE void accumulate_strip(const char* const* rows, const char* const* next, long long offset,
                                  long long next_offset, int n, const float* p, const float* alpha, float* o,
                                  long long ld) {
  F32 acc[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const F32 factor = broadcast(alpha[m]);
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) acc[m][j] = load(o + m * ld + j * kLanes) * factor;
  }
  for (int t = 0; t < n; ++t) {
    const char* row = rows[t] + offset;
    if (next) prefetch(next[t] + next_offset);
    F32 v[N];
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) v[j] = Type::load(row + j * kLanes * Type::kBytes);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const F32 x = broadcast(p[m * kDirectLd + t]);
#pragma GCC unroll 4
      for (int j = 0; j < N; ++j) acc[m][j] = fma(x, v[j], acc[m][j]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 4
    for (int j = 0; j < N; ++j) store(o + m * ld + j * kLanes, acc[m][j]);
}

template <class Type, int M>
void accumulate_rest(const char* const* rows, long long offset, int n, int count, const float* p, const float* alpha,
                     float* o, long long ld) {
  F32 acc[M];
  for (int m = 0; m < M; ++m) acc[m] = load(o + m * ld) * alpha[m];
  for (int t = 0; t < n; ++t) {
    const F32 v = load_rest<Widen<Type>>(rows[t] + offset, count);
    for (int m = 0; m < M; ++m) acc[m] = fma(broadcast(p[m * kDirectLd + t]), v, acc[m]);
  }
  for (int m = 0; m < M; ++m) store(o + m * ld, acc[m]);
}

template <class Type, int M>
void accumulate_block(const char* const* rows, const char* const* next, long long offset, long long next_offset, int n,
                      const float* p, const float* alpha, int dim, float* o, long long ld) {
  constexpr int kVectors = kRegisters == 32 ? (M <= 6 ? 4 : 2) : (M <= 2 ? 4 : 2);
  constexpr int kStrip = kVectors * kLanes;
  int d = 0;
  for (; d + kStrip <= dim; d += kStrip)
    accumulate_strip<Type, M, kVectors>(rows, d * Type::kBytes % 64 == 0 ? next : nullptr, offset + d * Type::kBytes,
                                        next_offset + d * Type::kBytes, n, p, alpha, o + d, ld);
  for (; d + kLanes <= dim; d += kLanes)
    accumulate_strip<Type, M, 1>(rows, d * Type::kBytes % 64 == 0 ? next : nullptr, offset + d * Type::kBytes,
                                 next_offset + d * Type::kBytes, n, p, alpha, o + d, ld);
  if (d < dim) accumulate_rest<Type, M>(rows, offset + d * Type::kBytes, n, dim - d, p, alpha, o + d, ld);
}

// Calls work.template operator()<M>(row) for each block of rows.
template <class Work>
WEFT_INLINE void for_blocks(int num_rows, const Work& work) {
  for (int row = 0; row < num_rows;) {
    const int count = direct_rows(num_rows - row);
    switch (count) {
      case 1: work.template operator()<1>(row); break;
      case 2: work.template operator()<2>(row); break;
      case 3: work.template operator()<3>(row); break;
      case 4: work.template operator()<4>(row); break;
      case 5: work.template operator()<5>(row); break;
      case 6: work.template operator()<6>(row); break;
#if WEFT_REGISTERS == 32
      case 7: work.template operator()<7>(row); break;
      default: work.template operator()<8>(row); break;
#else
      default: break;
#endif
    }
    row += count;
  }
}

}  // namespace

template <class Load>
void direct_dot(const char* const* rows, const char* const* next, long long offset, long long next_offset, int n,
                const float* q, int num_rows, int dim, float* scores) {
  for_blocks(num_rows, [&]<int M>(int row) {
    dot_block<Load, M>(rows, row == 0 ? next : nullptr, offset, next_offset, n, q + row * direct_query_size(dim), dim,
                       scores + row * kDirectLd);
  });
}

template <class Type>
void direct_accumulate(const char* const* rows, const char* const* next, long long offset, long long next_offset, int n,
                       const float* p, const float* alpha, int num_rows, int dim, float* o, long long ld) {
  for_blocks(num_rows, [&]<int M>(int row) {
    accumulate_block<Type, M>(rows, row == 0 ? next : nullptr, offset, next_offset, n, p + row * kDirectLd, alpha + row,
                              dim, o + row * ld, ld);
  });
}

void pack_direct_query(const float* q, long long ld, int num_rows, int dim, bool bf16, float* out) {
  const int units = bf16 ? dim / 2 : dim;
  for (int row = 0; row < num_rows;) {
    const int count = direct_rows(num_rows - row);
    float* block = out + row * direct_query_size(dim);
    for (int m = 0; m < count; ++m)
      for (int u = 0; u < round_up(units, kLanes); ++u)
        // Bits are copied: a pair of bf16 is no number.
        __builtin_memcpy(block + (u / kLanes * count + m) * kLanes + u % kLanes,
                         u < units ? reinterpret_cast<const char*>(q + (row + m) * ld + u) : kZeros, 4);
    row += count;
  }
}

#define WEFT_DIRECT(Type)                                                                                  \
  template void direct_dot<Widen<Type>>(const char* const*, const char* const*, long long, long long, int, \
                                        const float*, int, int, float*);                                   \
  template void direct_accumulate<Type>(const char* const*, const char* const*, long long, long long, int, \
                                        const float*, const float*, int, int, float*, long long);
WEFT_DIRECT(Fp32)
WEFT_DIRECT(Fp16)
WEFT_DIRECT(Bf16)
#if defined(WEFT_HAS_BF16_DOT)
template void direct_dot<Pairs>(const char* const*, const char* const*, long long, long long, int, const float*, int,
                                int, float*);
#endif
#undef WEFT_DIRECT

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
