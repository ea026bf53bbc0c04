// Products of few rows with keys and values as they are stored: every stored row is loaded and converted once for
// all query rows of the head group (decode).
#include "attention/cpu/kernels/loaders.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

constexpr int lines_of(long long bytes) { return static_cast<int>((bytes + 63) / 64); }

// Tokens whose sums for M rows stay in registers, beside a loaded vector and what is made of it for each, and one more
// operand.
template <class Load, int M>
constexpr int kDots = [] {
  int most = min_of(8, kLanes);
  while (most > 1 && most * (M + Load::kOperands) >= kRegisters) most /= 2;
  return most;
}();
// Of so many tokens the lanes are added up in registers.
constexpr int folded(int tokens) { return min_of(tokens, 4); }

// Loaded vectors of values, likewise.
template <class Load, int M>
constexpr int kVectors = max_of(1, min_of((kRegisters - 1) / ((M + 1) * Load::kOperands), 8 / Load::kOperands));

// work.operator()<i>() for each operand in a loaded vector.
template <class Load, class Work>
WEFT_INLINE void for_operands(const Work& work) {
  work.template operator()<0>();
  if constexpr (Load::kOperands == 2) work.template operator()<1>();
}

// sums[m * ld + j]: lanes of q[m] . token, of `folded` tokens each, for N tokens.
template <class Load, int M, int N>
WEFT_INLINE void dot_tokens(const char* const* rows, long long offset, const float* q, int words,
                            Prefetcher& prefetcher, F32* sums, int ld) {
  constexpr int kStep = Load::kOperands * kLanes;  // elements of q, which are fp32 or, word by word, pairs
  constexpr int kLines = lines_of(bytes_of<Load>(N * kLanes));
  const char* fetched[kMaxHeadDim / kLanes];
  prefetcher.take(words / kLanes, kLines, fetched);
  const char* key[N];
  const char* const* next = rows + prefetcher.next.rows;
  const long long next_offset = offset + prefetcher.next.bytes;
  F32 acc[N][M];
#pragma GCC unroll 8
  for (int j = 0; j < N; ++j) {
    key[j] = rows[j] + offset;
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[j][m] = F32{};
  }
  const auto multiply = [&](const auto(&loaded)[N]) __attribute__((always_inline)) {
    for_operands<Load>([&]<int kOperand>() __attribute__((always_inline)) {
      F32 k[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) k[j] = Load::template operand<kOperand>(loaded[j]);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        const F32 x = load(q + (kOperand * M + m) * kLanes);
#pragma GCC unroll 8
        for (int j = 0; j < N; ++j) acc[j][m] = Load::step(acc[j][m], k[j], x);
      }
    });
  };
  int u = 0;
  for (; u + kLanes <= words; u += kLanes, q += M * kStep) {
    for (int i = 0; i < kLines; ++i) prefetch(fetched[u / kLanes] + 64 * i);
    decltype(Load::load(nullptr)) loaded[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      if (starts_line<Load>(u)) prefetch_near(next[j] + next_offset + bytes_of<Load>(u));
      loaded[j] = Load::load(key[j] + bytes_of<Load>(u));
    }
    multiply(loaded);
  }
  // Head dims are multiples of 8.
  if constexpr (kLanes * Load::kElements > 8)
    if (u < words) {
      decltype(Load::load(nullptr)) loaded[N];
#pragma GCC unroll 8
      for (int j = 0; j < N; ++j) loaded[j] = Load::load(key[j] + bytes_of<Load>(u), words - u);
      multiply(loaded);
    }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    F32 row[N];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) row[j] = acc[j][m];
    const auto sum = fold_lanes<1, folded(N)>(row);
    __builtin_memcpy(sums + m * ld, &sum, sizeof sum);
  }
}

template <class Load, int M>
void dot_rows(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* q, int dim,
              float* scores) {
  constexpr int kCount = kDots<Load, M>, kFolded = folded(kCount), kSums = kLanes / kFolded;
  const int words = dim / Load::kElements;
  for (int t = 0; t < n; t += kLanes) {
    F32 sums[M][kSums];
    for (int j = 0; j < kLanes; j += kCount)
      dot_tokens<Load, M, kCount>(rows + t + j, offset, q, words, prefetcher, &sums[0][j / kFolded], kSums);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) store(scores + m * kDirectLd + t, fold_lanes<kFolded, kLanes>(sums[m]).v[0]);
  }
}

// Row stride of probabilities, of which a step takes one word.
template <class Load>
constexpr int kProbsLd = kDirectLd / Load::kTokens;

template <class Load, class... Words>
WEFT_INLINE auto load_tokens(const char* const (&rows)[Load::kTokens], long long at, Words... words) {
  if constexpr (Load::kTokens == 1)
    return Load::load(rows[0] + at, words...);
  else
    return Load::load(rows[0] + at, rows[1] + at, words...);
}

// M rows x N loaded vectors' worth of the output stay in registers while n tokens pass by.
template <class Load, int M, int N>
void accumulate_strip(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* p,
                      float* o, long long ld) {
  constexpr int kOutputs = N * Load::kOperands;
  constexpr int kLines = lines_of(bytes_of<Load>(N * kLanes));
  const char* fetched[kMostTokens];
  prefetcher.take(n, kLines, fetched);
  const char* const* next = rows + prefetcher.next.rows;
  const long long next_offset = offset + prefetcher.next.bytes;
  F32 acc[M][kOutputs];
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < kOutputs; ++j) acc[m][j] = load(o + m * ld + j * kLanes);
  for (int t = 0; t < n; t += Load::kTokens, ++p) {
    const char *row[Load::kTokens], *next_row[Load::kTokens];
#pragma GCC unroll 2
    for (int k = 0; k < Load::kTokens; ++k) {
      for (int i = 0; i < kLines; ++i) prefetch(fetched[t + k] + 64 * i);
      row[k] = rows[t + k] + offset;
      next_row[k] = next[t + k] + next_offset;
    }
    F32 v[kOutputs];
#pragma GCC unroll 8
    for (int j = 0; j < N; ++j) {
      if (starts_line<Load>(j * kLanes))
        for (const char* at : next_row) prefetch_near(at + bytes_of<Load>(j * kLanes));
      const auto loaded = load_tokens<Load>(row, bytes_of<Load>(j * kLanes));
      for_operands<Load>([&]<int kOperand>() __attribute__((always_inline)) {
        v[j * Load::kOperands + kOperand] = Load::template operand<kOperand>(loaded);
      });
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      const F32 x = Load::spread(p + m * kProbsLd<Load>);
#pragma GCC unroll 8
      for (int j = 0; j < kOutputs; ++j) acc[m][j] = Load::step(acc[m][j], x, v[j]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m)
#pragma GCC unroll 8
    for (int j = 0; j < kOutputs; ++j) store(o + m * ld + j * kLanes, acc[m][j]);
}

// The last `words`, fewer than a loaded vector has.
template <class Load, int M>
void accumulate_rest(const char* const* rows, long long offset, int n, int words, const float* p, float* o,
                     long long ld) {
  F32 acc[M][Load::kOperands];
  const auto each = [&](const auto& work) {
    for (int m = 0; m < M; ++m)
      for (int i = 0; i < Load::kOperands; ++i) work(acc[m][i], o + m * ld + i * kLanes);
  };
  each([](F32& x, float* at) { x = load(at); });
  for (int t = 0; t < n; t += Load::kTokens, ++p) {
    const char* row[Load::kTokens];
    for (int k = 0; k < Load::kTokens; ++k) row[k] = rows[t + k] + offset;
    const auto loaded = load_tokens<Load>(row, 0, words);
    for_operands<Load>([&]<int kOperand>() {
      const F32 v = Load::template operand<kOperand>(loaded);
      for (int m = 0; m < M; ++m)
        acc[m][kOperand] = Load::step(acc[m][kOperand], Load::spread(p + m * kProbsLd<Load>), v);
    });
  }
  each([](const F32& x, float* at) { store(at, x); });
}

using StripFn = void (*)(const char* const*, long long, int, Prefetcher&, const float*, float*, long long);
// By number of vectors.
template <class Load, int M>
constexpr StripFn kStrips[] = {
    accumulate_strip<Load, M, 1>,
    accumulate_strip<Load, M, min_of(2, kVectors<Load, M>)>,
    accumulate_strip<Load, M, min_of(3, kVectors<Load, M>)>,
    accumulate_strip<Load, M, min_of(4, kVectors<Load, M>)>,
    accumulate_strip<Load, M, min_of(5, kVectors<Load, M>)>,
    accumulate_strip<Load, M, min_of(6, kVectors<Load, M>)>,
    accumulate_strip<Load, M, min_of(7, kVectors<Load, M>)>,
    accumulate_strip<Load, M, min_of(8, kVectors<Load, M>)>,
};

// The first of as few strips as there can be, all of nearly the same width.
template <int most>
int evenly(int vectors) {
  const int strips = (vectors + most - 1) / most;
  return (vectors + strips - 1) / strips;
}

template <class Load, int M>
void accumulate_rows(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* p, int dim,
                     float* o, long long ld) {
  const int words = dim / Load::kElements;
  const long long bytes = bytes_of<Load>(words);
  // All strips of some tokens before the next ones.
  constexpr long long kMost = kSlicesInCache * kSliceBytes;
  const int step = n * bytes <= kMost ? n : max_of(static_cast<int>(kMost / bytes) / 4 * 4, 4);
  for (int t = 0; t < n; t += step) {
    const char* const* slice = rows + t;
    const float* slice_p = p + t / Load::kTokens;
    const int count = min_of(step, n - t);
    int u = 0;
    for (int left = words / kLanes; left > 0;) {
      const int vectors = left <= kVectors<Load, M> ? left : evenly<kVectors<Load, M>>(left);
      kStrips<Load, M>[vectors - 1](slice, offset + bytes_of<Load>(u), count, prefetcher, slice_p,
                                    o + u * Load::kOperands, ld);
      u += vectors * kLanes;
      left -= vectors;
    }
    if constexpr (kLanes * Load::kElements > 8)
      if (u < words)
        accumulate_rest<Load, M>(slice, offset + bytes_of<Load>(u), count, words - u, slice_p, o + u * Load::kOperands,
                                 ld);
  }
}

// Calls work.template operator()<M>(row) for each tile of rows.
template <class Work>
WEFT_INLINE void for_row_tiles(int num_rows, const Work& work) {
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
void dot(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* q, int num_rows,
         int dim, float* scores) {
  for_row_tiles(num_rows, [&]<int M>(int row) {
    dot_rows<Load, M>(rows, offset, n, prefetcher, q + row * direct_query_size(dim), dim, scores + row * kDirectLd);
  });
}

template <class Load>
void accumulate(const char* const* rows, long long offset, int n, Prefetcher& prefetcher, const float* p, int num_rows,
                int dim, float* o, long long ld) {
  for_row_tiles(num_rows, [&]<int M>(int row) {
    accumulate_rows<Load, M>(rows, offset, round_up(n, Load::kTokens), prefetcher, p + row * kProbsLd<Load>, dim,
                             o + row * ld, ld);
  });
}

void pack_direct_query(const float* q, long long ld, int num_rows, int words, bool halves, int dim, float* out) {
  for (int row = 0; row < num_rows;) {
    const int count = direct_rows(num_rows - row);
    float* tile = out + row * direct_query_size(dim);
    for (int m = 0; m < count; ++m) {
      float padded[kMaxHeadDim + kPanel];  // bits are copied: a pair of bf16 is no number
      __builtin_memcpy(padded, q + (row + m) * ld, static_cast<unsigned long>(words) * sizeof(float));
      for (int u = words; u < round_up(words, kPanel); ++u) padded[u] = 0;
      for (int u = 0; u < words; u += kPanel) {
        F32 a = load(padded + u), b = load(padded + u + kLanes);
        if (halves) split_pairs(a, b);
        store(tile + (u / kLanes * count + m) * kLanes, a);
        store(tile + ((u / kLanes + 1) * count + m) * kLanes, b);
      }
    }
    row += count;
  }
}

#define WEFT_DIRECT(Load)                                                                                         \
  template void dot<Load>(const char* const*, long long, int, Prefetcher&, const float*, int, int, float*);       \
  template void accumulate<Load>(const char* const*, long long, int, Prefetcher&, const float*, int, int, float*, \
                                 long long);
WEFT_DIRECT(Widen<Fp32>)
WEFT_DIRECT(Widen<Fp16>)
WEFT_DIRECT(Halves)
WEFT_DIRECT(Widen<E4m3>)
WEFT_DIRECT(Widen<E5m2>)
WEFT_DIRECT(Widen<Int8>)
WEFT_DIRECT(Widen<Int4>)
#if defined(WEFT_HAS_BF16_DOT)
template void dot<Pairs>(const char* const*, long long, int, Prefetcher&, const float*, int, int, float*);
template void accumulate<TokenPairs>(const char* const*, long long, int, Prefetcher&, const float*, int, int, float*,
                                     long long);
#endif
#undef WEFT_DIRECT

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
