// Products of few rows with keys and values as they are stored: every stored row is loaded and converted once for
// all query rows of the head group (decode).
#include "attention/kernels/cpu/loaders.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

constexpr int lines_of(long long bytes) { return static_cast<int>((bytes + 63) / 64); }

// Registers hold M rows x this many sums, as many keys or values, and one more operand.
template <int M>
constexpr int kSumsOfRow = min_of((kRegisters - 1) / (M + 1), 8);

// sums[m * kLanes + j]: lanes of q[m] . token j, for N tokens.
template <class Load, int M, int N>
WEFT_INLINE void dot_tokens(const char* const* rows, long long offset, const float* q, int units, Ahead& ahead,
                            F32* sums) {
  const char* key[N];
  F32 acc[N][M];
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) {
    key[j] = rows[j] + offset;
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[j][m] = F32{};
  }
  int u = 0;
  for (; u + kLanes <= units; u += kLanes, q += M * kLanes) {
    ahead.fetch(lines_of(bytes_of<Load>(N * kLanes)));
    F32 k[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) k[j] = Load::load(key[j] + bytes_of<Load>(u));
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const F32 x = load(q + m * kLanes);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[j][m] = Load::step(acc[j][m], k[j], x);
    }
  }
  // Head dims are multiples of 8.
  if constexpr (kLanes * Load::kElements > 8)
    if (u < units) {
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) {
        const F32 k = load_first<Load>(key[j] + bytes_of<Load>(u), units - u);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) acc[j][m] = Load::step(acc[j][m], k, load(q + m * kLanes));
      }
    }
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) sums[m * kLanes + j] = acc[j][m];
}

template <class Load, int M>
void dot_block(const char* const* rows, long long offset, int n, Ahead& shared_ahead, const float* q, int dim,
               float* scores) {
  constexpr int kTokens = min_of(kSumsOfRow<M>, kLanes), kRest = kLanes % kTokens;
  const int units = dim / Load::kElements;
  Ahead ahead = shared_ahead;  // in registers
  for (int t = 0; t < n; t += kLanes) {
    F32 sums[M][kLanes];
    for (int j = 0; j + kTokens <= kLanes; j += kTokens)
      dot_tokens<Load, M, kTokens>(rows + t + j, offset, q, units, ahead, &sums[0][j]);
    if constexpr (kRest > 0)
      dot_tokens<Load, M, kRest>(rows + t + kLanes - kRest, offset, q, units, ahead, &sums[0][kLanes - kRest]);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) store(scores + m * kDirectLd + t, sum_each(sums[m]));
  }
  shared_ahead = ahead;
}

// M rows x N vectors of the output stay in registers while n tokens pass by.
template <class Type, int M, int N>
void accumulate_strip(const char* const* rows, long long offset, int n, Ahead& shared_ahead, const float* p,
                      const float* alpha, float* o, long long ld) {
  Ahead ahead = shared_ahead;  // in registers
  F32 acc[M][N];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    const F32 factor = broadcast(alpha[m]);
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) acc[m][j] = load(o + m * ld + j * kLanes) * factor;
  }
  for (int t = 0; t < n; ++t) {
    ahead.fetch(lines_of(bytes_of<Type>(N * kLanes)));
    const char* row = rows[t] + offset;
    F32 v[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) v[j] = Type::load(row + bytes_of<Type>(j * kLanes));
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const F32 x = broadcast(p[m * kDirectLd + t]);
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) acc[m][j] = fma(x, v[j], acc[m][j]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) store(o + m * ld + j * kLanes, acc[m][j]);
  shared_ahead = ahead;
}

template <class Type, int M>
void accumulate_rest(const char* const* rows, long long offset, int n, int count, const float* p, const float* alpha,
                     float* o, long long ld) {
  F32 acc[M];
  for (int m = 0; m < M; ++m) acc[m] = load(o + m * ld) * alpha[m];
  for (int t = 0; t < n; ++t) {
    const F32 v = load_first<Widen<Type>>(rows[t] + offset, count);
    for (int m = 0; m < M; ++m) acc[m] = fma(broadcast(p[m * kDirectLd + t]), v, acc[m]);
  }
  for (int m = 0; m < M; ++m) store(o + m * ld, acc[m]);
}

// All strips of some tokens before the next ones: the tokens stay in the first-level cache meanwhile, even where they
// lie a power of two apart and share its sets.
constexpr int kBlockBytes = 4096;

using StripFn = void (*)(const char* const*, long long, int, Ahead&, const float*, const float*, float*, long long);
// By number of vectors.
template <class Type, int M>
constexpr StripFn kStrips[] = {
    accumulate_strip<Type, M, 1>,
    accumulate_strip<Type, M, min_of(2, kSumsOfRow<M>)>,
    accumulate_strip<Type, M, min_of(3, kSumsOfRow<M>)>,
    accumulate_strip<Type, M, min_of(4, kSumsOfRow<M>)>,
    accumulate_strip<Type, M, min_of(5, kSumsOfRow<M>)>,
    accumulate_strip<Type, M, min_of(6, kSumsOfRow<M>)>,
    accumulate_strip<Type, M, min_of(7, kSumsOfRow<M>)>,
    accumulate_strip<Type, M, min_of(8, kSumsOfRow<M>)>,
};

template <class Type, int M>
void accumulate_block(const char* const* rows, long long offset, int n, Ahead& ahead, const float* p,
                      const float* alpha, int dim, float* o, long long ld) {
  const int step = max_of(static_cast<int>(kBlockBytes / bytes_of<Type>(dim)), 4);
  float ones[M];
  for (int m = 0; m < M; ++m) ones[m] = 1;
  for (int t = 0; t < n; t += step) {
    const char* const* block = rows + t;
    const int count = min_of(step, n - t);
    const float* factor = t == 0 ? alpha : ones;
    for (int d = 0, left = dim / kLanes; left > 0;) {
      const int strips = (left + kSumsOfRow<M> - 1) / kSumsOfRow<M>, vectors = (left + strips - 1) / strips;
      kStrips<Type, M>[vectors - 1](block, offset + bytes_of<Type>(d), count, ahead, p + t, factor, o + d, ld);
      d += vectors * kLanes;
      left -= vectors;
    }
    if constexpr (kLanes > 8) {
      const int d = dim / kLanes * kLanes;
      if (d < dim)
        accumulate_rest<Type, M>(block, offset + bytes_of<Type>(d), count, dim - d, p + t, factor, o + d, ld);
    }
  }
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
void direct_dot(const char* const* rows, long long offset, int n, Ahead& ahead, const float* q, int num_rows, int dim,
                float* scores) {
  for_blocks(num_rows, [&]<int M>(int row) {
    dot_block<Load, M>(rows, offset, n, ahead, q + row * direct_query_size(dim), dim, scores + row * kDirectLd);
  });
}

template <class Type>
void direct_accumulate(const char* const* rows, long long offset, int n, Ahead& ahead, const float* p,
                       const float* alpha, int num_rows, int dim, float* o, long long ld) {
  for_blocks(num_rows, [&]<int M>(int row) {
    accumulate_block<Type, M>(rows, offset, n, ahead, p + row * kDirectLd, alpha + row, dim, o + row * ld, ld);
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

#define WEFT_DIRECT(Type)                                                                                            \
  template void direct_dot<Widen<Type>>(const char* const*, long long, int, Ahead&, const float*, int, int, float*); \
  template void direct_accumulate<Type>(const char* const*, long long, int, Ahead&, const float*, const float*, int, \
                                        int, float*, long long);
WEFT_DIRECT(Fp32)
WEFT_DIRECT(Fp16)
WEFT_DIRECT(Bf16)
WEFT_DIRECT(E4m3)
WEFT_DIRECT(E5m2)
WEFT_DIRECT(Int8)
WEFT_DIRECT(Int4)
#if defined(WEFT_HAS_BF16_DOT)
template void direct_dot<Pairs>(const char* const*, long long, int, Ahead&, const float*, int, int, float*);
#endif
#undef WEFT_DIRECT

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
