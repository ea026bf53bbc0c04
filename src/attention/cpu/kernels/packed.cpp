// Products of packed tiles (prefill) and packing; products with stored keys and values are in direct.cpp.
#include "attention/cpu/kernels/dense.h"
#include "attention/cpu/kernels/loaders.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

namespace {

// ---------------------------------------------------------------- packing

// What a vector of one word of kLanes keys becomes: a line of a panel as it is, ...
template <class Load>
struct Line : Load {
  static constexpr int kLines = 1;
  static WEFT_INLINE void put(float* line, F32 words) { store(line, words); }
};
// ... or, of two bf16, a line for each in fp32. Widened after the transpose, which has half as many lanes to move.
struct TwoLines {
  static constexpr int kBits = 32, kElements = 2, kLines = 2;
  static WEFT_INLINE F32 load(const char* p) { return as_f32(load_u32(p)); }
  static WEFT_INLINE void put(float* line, F32 words) {
    store(line, as_f32(as_u32(words) << 16));
    store(line + kPanel, as_f32(as_u32(words) & 0xffff0000u));
  }
};

template <class Load>
void pack_keys(const char* const* rows, long long offset, int n, int dim, float* out) {
  const int words = dim / Load::kElements;
  const long long panel = panel_stride(words * Load::kLines);
  for (int t = 0; t < n; t += kLanes) {
    float* column = out + t / kPanel * panel + t % kPanel;
    F32 square[kLanes];
    const auto put = [&](int u, F32 v) { Load::put(column + u * Load::kLines * kPanel, v); };
    int u = 0;
    for (; u + kLanes <= words; u += kLanes) {
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = Load::load(rows[t + i] + offset + bytes_of<Load>(u));
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) put(u + i, square[i]);
    }
    if (u < words) {
      for (int i = 0; i < kLanes; ++i)
        square[i] = load_first<Load>(rows[t + i] + offset + bytes_of<Load>(u), words - u);
      transpose(square);
      for (int i = 0; u + i < words; ++i) put(u + i, square[i]);
    }
  }
}

// Calls full(first), tail(first, count) or zero(first) for each vector of columns of the panels that cover dim.
template <class Full, class Tail, class Zero>
WEFT_INLINE void for_columns(int dim, const Full& full, const Tail& tail, const Zero& zero) {
  const int end = round_up(dim, kPanel);
  int d = 0;
  for (; d + kLanes <= dim; d += kLanes) full(d);
  if (d < dim) {
    tail(d, dim - d);
    d += kLanes;
  }
  for (; d < end; d += kLanes) zero(d);
}

template <class Load>
void pack_values(const char* const* rows, long long offset, int n, int dim, float* out) {
  const long long panel = panel_stride(n);
  for (int t = 0; t < n; ++t) {
    const char* row = rows[t] + offset;
    float* line = out + t * kPanel;
    const auto at = [&](int d) { return line + d / kPanel * panel + d % kPanel; };
    for_columns(
        dim, [&](int d) { store(at(d), Load::load(row + bytes_of<Load>(d))); },
        [&](int d, int count) { store(at(d), load_first<Load>(row + bytes_of<Load>(d), count)); },
        [&](int d) { store(at(d), F32{}); });
  }
}

#if defined(WEFT_HAS_BF16_DOT)
void pack_value_pairs(const char* const* rows, long long offset, int n, int dim, float* out) {
  const long long panel = panel_stride(n / 2);
  for (int t = 0; t < n; t += 2) {
    const char* even = rows[t] + offset;
    const char* odd = rows[t + 1] + offset;
    float* line = out + t / 2 * kPanel;
    const auto at = [&](int d) { return line + d / kPanel * panel + d % kPanel; };
    const auto pair = [](F32 low, F32 high) {
      return as_u32(low) >> 16 | as_u32(high);
    };  // a widened bf16 is its high half
    for_columns(
        dim, [&](int d) { store_u32(at(d), pair(Bf16::load(even + d * 2), Bf16::load(odd + d * 2))); },
        [&](int d, int n_left) {
          store_u32(at(d),
                    pair(load_first<Widen<Bf16>>(even + d * 2, n_left), load_first<Widen<Bf16>>(odd + d * 2, n_left)));
        },
        [&](int d) { store(at(d), F32{}); });
  }
}
#endif

template <class Element>
void widen_rows(const char* const* rows, long long offset, int n, int dim, float* out, long long ld) {
  for (int t = 0; t < n; ++t, out += ld) widen<Element>(rows[t] + offset, dim, out);
}

template <class Type>
constexpr Loader kLoader = {pack_keys<Line<Widen<Type>>>, pack_values<Widen<Type>>, dot<Widen<Type>>,
                            accumulate<Widen<Type>>,      widen_rows<Type>,         false,
                            ColumnOrder::stored};
constexpr Loader kBf16Loader = {pack_keys<TwoLines>, pack_values<Widen<Bf16>>, dot<Halves>,
                                accumulate<Halves>,  widen_rows<Bf16>,         true,
                                ColumnOrder::halves};
#if defined(WEFT_HAS_BF16_DOT)
constexpr Loader kPairLoader = {pack_keys<Line<Pairs>>, pack_value_pairs, dot<Pairs>,
                                accumulate<TokenPairs>, widen_rows<Bf16>, false,
                                ColumnOrder::fours};
#endif

// ---------------------------------------------------------------- products

// Rows x two vectors of sums stay in registers: 12 of 16, or 24 of 32.
constexpr int kMicroRows = kRegisters == 32 ? 12 : 6;

// Words of a, `run` side by side, then on at `jump` from where they began.
struct LeftSide {
  const float* a;
  long long lda, jump;
  int run;
};

// Lines to fetch, one a step.
struct Lines {
  const char *const *next, *const *end;
};

// N: vectors of columns.
template <class Multiply, int M, int N, bool kScale>
void micro_kernel(LeftSide left, const float* b, int words, float* c, long long ldc, const float* alpha, Lines lines) {
  F32 sum[M][N];
#pragma GCC unroll 12
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < N; ++j) {
      if constexpr (kScale)
        sum[i][j] = load(c + i * ldc + j * kLanes) * broadcast(alpha[i]);
      else
        sum[i][j] = F32{};
    }
  const long long lda = left.lda;
  for (; words > 0; words -= left.run, left.a += left.jump) {
    const int run = min_of(words, left.run);
    const float* a = left.a;
    for (int u = 0; u < run; ++u, b += kPanel) {
      if (lines.next != lines.end) prefetch(*lines.next++);
      F32 column[N];
#pragma GCC unroll 2
      for (int j = 0; j < N; ++j) column[j] = load(b + j * kLanes);
#pragma GCC unroll 12
      for (int i = 0; i < M; ++i) {
        const F32 x = Multiply::spread(a + i * lda + u);
#pragma GCC unroll 2
        for (int j = 0; j < N; ++j) sum[i][j] = Multiply::step(sum[i][j], x, column[j]);
      }
    }
  }
#pragma GCC unroll 12
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int j = 0; j < N; ++j) store(c + i * ldc + j * kLanes, sum[i][j]);
}

using MicroKernel = void (*)(LeftSide, const float*, int, float*, long long, const float*, Lines);
template <class Multiply, int N, bool kScale>
constexpr MicroKernel kMicroKernels[] = {
    micro_kernel<Multiply, 1, N, kScale>,  micro_kernel<Multiply, 2, N, kScale>,  micro_kernel<Multiply, 3, N, kScale>,
    micro_kernel<Multiply, 4, N, kScale>,  micro_kernel<Multiply, 5, N, kScale>,  micro_kernel<Multiply, 6, N, kScale>,
#if WEFT_REGISTERS == 32
    micro_kernel<Multiply, 7, N, kScale>,  micro_kernel<Multiply, 8, N, kScale>,  micro_kernel<Multiply, 9, N, kScale>,
    micro_kernel<Multiply, 10, N, kScale>, micro_kernel<Multiply, 11, N, kScale>, micro_kernel<Multiply, 12, N, kScale>,
#endif
};
static_assert(sizeof kMicroKernels<MultiplyF32, 2, true> / sizeof(MicroKernel) == kMicroRows);

// Words of b that all rows pass by: they stay in the first-level cache meanwhile.
constexpr int kWordsInCache = 256;
constexpr float kOnes[] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
static_assert(sizeof kOnes / sizeof(float) >= kMicroRows);

int num_slabs(int words) { return max_of(1, (words + kWordsInCache - 1) / kWordsInCache); }

template <class Multiply>
void multiply_panels(const Product& x, Prefetcher& prefetcher) {
  const int slabs = num_slabs(x.words);
  const int step = slabs == 1 ? max_of(1, x.words) : round_up((x.words + slabs - 1) / slabs, kPanel);
  LeftSide left{x.a, x.lda, x.a_stride, x.a_stride == 0 ? max_of(1, x.words) : kPanel};
  for (int vector = 0; vector < x.vectors; vector += 2)
    for (int word = 0; word == 0 || word < x.words; word += step) {
      const float* b = x.b + vector / 2 * x.stride + static_cast<long long>(word) * kPanel;
      const float* a = x.a_stride == 0 ? x.a + word : x.a + word / kPanel * x.a_stride;
      const bool pair = x.vectors - vector > 1, scale = word > 0 || x.alpha != nullptr;
      const MicroKernel* kernels = pair
                                       ? (scale ? kMicroKernels<Multiply, 2, true> : kMicroKernels<Multiply, 2, false>)
                                       : (scale ? kMicroKernels<Multiply, 1, true> : kMicroKernels<Multiply, 1, false>);
      for (int row = 0; row < x.rows;) {
        const int rows_left = x.rows - row;
        const int row_tiles = (rows_left + kMicroRows - 1) / kMicroRows;
        const int count = (rows_left + row_tiles - 1) / row_tiles;
        const char* fetched[kWordsInCache];
        const int fetches = min_of(prefetcher.lines_a_tile(), min_of(step, x.words - word));
        prefetcher.fetch(prefetcher.lines_a_tile() - fetches);
        prefetcher.take(fetches, 1, fetched);
        left.a = a + row * x.lda;
        const float* alpha = word > 0 || !x.alpha ? kOnes : x.alpha + row;
        kernels[count - 1](left, b, min_of(step, x.words - word), x.c + row * x.ldc + vector * kLanes, x.ldc, alpha,
                           {fetched, fetched + fetches});
        row += count;
      }
    }
}

}  // namespace

const Loader& loader_for(Element element, [[maybe_unused]] bool compute_bf16) {
#if defined(WEFT_HAS_BF16_DOT)
  if (compute_bf16) return kPairLoader;
#endif
  switch (element) {
    case Element::fp32: return kLoader<Fp32>;
    case Element::fp16: return kLoader<Fp16>;
    case Element::bf16: return kBf16Loader;
    case Element::e4m3: return kLoader<E4m3>;
    case Element::e5m2: return kLoader<E5m2>;
    case Element::int8: return kLoader<Int8>;
    case Element::int4: break;
  }
  return kLoader<Int4>;
}

void multiply_packed(const Product& product, [[maybe_unused]] Words words, Prefetcher& prefetcher) {
#if defined(WEFT_HAS_BF16_DOT)
  if (words == Words::tiles) return multiply_in_tiles(product, prefetcher);
  if (words == Words::pairs) return multiply_panels<MultiplyPairs>(product, prefetcher);
#endif
  multiply_panels<MultiplyF32>(product, prefetcher);
}

int num_register_tiles(int rows, int words, int vectors) {
  return (rows + kMicroRows - 1) / kMicroRows * num_slabs(words) * ((vectors + 1) / 2);
}

void transpose_scores(const float* from, long long ld_from, int num_rows, int tokens, float* to, long long ld) {
  for (int row = 0; row < num_rows; row += kLanes)
    for (int t = 0; t < tokens; t += kLanes) {
      F32 square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) square[i] = load(from + (t + i) * ld_from + row);
      transpose(square);
      for (int i = 0; i < min_of(kLanes, num_rows - row); ++i) store(to + (row + i) * ld + t, square[i]);
    }
}

void convert_to_f32(const char* from, Element element, int n, float* to) {
  switch (element) {
    case Element::fp32: return widen<Fp32>(from, n, to);
    case Element::fp16: return widen<Fp16>(from, n, to);
    default: return widen<Bf16>(from, n, to);
  }
}

void convert_from_f32(const float* from, int n, char* to, Element element) {
  switch (element) {
    case Element::fp32: return narrow<Fp32>(from, n, to);
    case Element::fp16: return narrow<Fp16>(from, n, to);
    default: return narrow<Bf16>(from, n, to);
  }
}

void round_to_bf16(const float* from, long long n, unsigned short* to) {
  long long i = 0;
#if defined(WEFT_HAS_BF16_DOT)
  for (; i + 2 * kLanes <= n; i += 2 * kLanes) store_bf16_pair(to + i, load(from + i), load(from + i + kLanes));
#endif
  narrow<Bf16>(from + i, n - i, reinterpret_cast<char*>(to + i));
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
