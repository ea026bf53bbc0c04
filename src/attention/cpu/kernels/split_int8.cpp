// Products of integer keys and values: rows of 16 bits, cut into two signed bytes, times bytes as they are stored.
#include "attention/cpu/kernels/split_int8.h"

#if defined(WEFT_HAS_BYTE_DOT)

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

// Stored signed numbers become unsigned bytes: their offset from there on, of a byte and of half a byte.
constexpr unsigned kByteOffset = 0x80808080u, kNibbleOffset = 0x08080808u, kLowNibbles = 0x0f0f0f0fu;

struct Bytes {
  static constexpr int kLines = 1;  // of a panel, made of one line of stored words
  static WEFT_INLINE void put(unsigned* line, int, U32 x) { store_u32(line, x ^ kByteOffset); }
};
// The even elements of 8, then the odd ones.
struct Nibbles {
  static constexpr int kLines = 2;
  static WEFT_INLINE void put(unsigned* line, int step, U32 x) {
    store_u32(line, and_xor(x, kLowNibbles, kNibbleOffset));
    store_u32(line + step, and_xor(x >> 4, kLowNibbles, kNibbleOffset));
  }
};

typedef unsigned U32x8Memory __attribute__((vector_size(32), aligned(1), may_alias));

// 32 bytes of one row, 32 of another.
WEFT_INLINE U32 load_two(const char* a, const char* b) {
  const U32x8 low = *reinterpret_cast<const U32x8Memory*>(a), high = *reinterpret_cast<const U32x8Memory*>(b);
  return __builtin_shufflevector(low, high, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
}
WEFT_INLINE U32 load_two(const char* a, const char* b, int bytes) {  // fewer than 32, zeros behind them
  alignas(64) char both[64] = {};
  __builtin_memcpy(both, a, static_cast<unsigned long>(bytes));
  __builtin_memcpy(both + 32, b, static_cast<unsigned long>(bytes));
  return load_u32(both);
}

// A panel's columns are tokens, 16 at a time; its lines hold 4 bytes of each.
template <class Type>
void pack_keys(const char* const* rows, long long offset, int n, int row_bytes, unsigned* out, Prefetcher& prefetcher) {
  const int words = row_bytes / 4;
  const long long panel = panel_stride(words * Type::kLines);
  for (int t = 0; t < n; t += kLanes) {
    unsigned* column = out + t / kPanel * panel + t % kPanel;
    const auto put = [&](int u, F32 v) { Type::put(column + u * Type::kLines * kPanel, kPanel, as_u32(v)); };
    int u = 0;
    for (; u + kLanes <= words; u += kLanes) {
      prefetcher.fetch(kLanes / 2);
      F32 square[kLanes];
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) {
        square[i] = as_f32(load_u32(rows[t + i] + offset + u * 4));
      }
      transpose(square);
#pragma GCC unroll 16
      for (int i = 0; i < kLanes; ++i) put(u + i, square[i]);
    }
    for (; u < words; u += kLanes / 2) {
      prefetcher.fetch(kLanes / 4);
      F32 square[kLanes / 2];
      const int left = min_of(words - u, kLanes / 2);
#pragma GCC unroll 8
      for (int i = 0; i < kLanes / 2; ++i) {
        const char *a = rows[t + i] + offset + u * 4, *b = rows[t + i + kLanes / 2] + offset + u * 4;
        square[i] = as_f32(left == kLanes / 2 ? load_two(a, b) : load_two(a, b, left * 4));
      }
      transpose_halves(square);
#pragma GCC unroll 8
      for (int i = 0; i < kLanes / 2; ++i)
        if (i < left) put(u + i, square[i]);
    }
  }
}

// A panel's columns are bytes of a row, in the order of byte_at; its lines hold those of 4 tokens.
template <class Type>
void pack_values(const char* const* rows, long long offset, int n, int row_bytes, unsigned* out,
                 Prefetcher& prefetcher) {
  const long long panel = panel_stride(n / 4);
  // A vector of bytes becomes one of a panel, or the two of one.
  const auto put = [&](unsigned* line, int vector, U32 v) __attribute__((always_inline)) {
    const int at = vector * Type::kLines;
    Type::put(line + at / 2 * panel + at % 2 * kLanes, kLanes, v);
  };
  int d = 0;
  for (; d + 64 <= row_bytes; d += 64, out += 2 * Type::kLines * panel)
    for (int t = 0; t < n; t += 4) {
      prefetcher.fetch(2);
      unsigned* line = out + t / 4 * kPanel;
      const long long at = offset + d;
      const U32 a = load_u32(rows[t] + at), b = load_u32(rows[t + 1] + at), c = load_u32(rows[t + 2] + at),
                e = load_u32(rows[t + 3] + at);
      const U32 low0 = interleave_low_bytes(a, b), low1 = interleave_low_bytes(c, e);
      const U32 high0 = interleave_high_bytes(a, b), high1 = interleave_high_bytes(c, e);
      put(line, 0, interleave_low_shorts(low0, low1));
      put(line, 1, interleave_high_shorts(low0, low1));
      put(line, 2, interleave_low_shorts(high0, high1));
      put(line, 3, interleave_high_shorts(high0, high1));
    }
  for (; d < row_bytes; d += 32, out += Type::kLines * panel) {
    const int left = min_of(row_bytes - d, 32);
    for (int t = 0; t < n; t += 4) {
      prefetcher.fetch(1);
      const auto two = [&](int i, int j) {
        const char *first = rows[t + i] + offset + d, *second = rows[t + j] + offset + d;
        return left == 32 ? load_two(first, second) : load_two(first, second, left);
      };
      unsigned* line = out + t / 4 * kPanel;
      const U32 even = two(0, 2), odd = two(1, 3);
      const U32 low = interleave_low_bytes(even, odd), high = interleave_high_bytes(even, odd);
      const U32 first = __builtin_shufflevector(low, high, 0, 1, 2, 3, 16, 17, 18, 19, 4, 5, 6, 7, 20, 21, 22, 23);
      const U32 last = __builtin_shufflevector(low, high, 8, 9, 10, 11, 24, 25, 26, 27, 12, 13, 14, 15, 28, 29, 30, 31);
      put(line, 0, interleave_low_shorts(first, last));
      put(line, 1, interleave_high_shorts(first, last));
    }
  }
}

// Which byte of a row stands at a column of the vectors above.
int byte_at(int column, int row_bytes) {
  const int chunk = column / 64 * 64, in = column % 64;
  if (chunk + 64 <= row_bytes) return chunk + in / 4 % 4 * 16 + in / 16 * 4 + in % 4;
  const int half = column / 32 * 32, i = column % 32;
  return half + i / 4 % 4 * 8 + i / 16 * 4 + i % 4;
}

// Runs of columns follow each other in the head, too: 4 bytes do; of halves of bytes, vectors of even elements take
// turns with those of odd ones.
template <class Type>
void order_columns(int dim, float* o, long long ld, int rows) {
  constexpr bool kBytes = Type::kLines == 1;
  constexpr int kRun = kBytes ? 4 : 1;
  int from[kMaxHeadDim];  // of the run at an element
  for (int column = 0; column < ld; column += kRun) {
    const int d = kBytes ? byte_at(column, dim)
                         : 2 * byte_at(column / kPanel * kLanes + column % kLanes, dim / 2) + column / kLanes % 2;
    if (d < dim) from[d] = column;
  }
  float ordered[kMaxHeadDim];
  for (int row = 0; row < rows; ++row, o += ld) {
    for (int d = 0; d < dim; d += kRun) __builtin_memcpy(ordered + d, o + from[d], kRun * sizeof(float));
    __builtin_memcpy(o, ordered, static_cast<unsigned long>(dim) * sizeof(float));
  }
}

// Rows whose sums, two of two vectors each, stay in registers.
constexpr int kMicroRows = 6;

// What becomes of a register tile of sums: scores, ...
struct Scores {
  const SplitRows& rows;
  unsigned offset;
  const float* column_scales;
  float* c;
  long long ld;
  WEFT_INLINE void put(int row, int column, U32 total) const {
    const U32 own = total - static_cast<unsigned>(rows.sums[row]) * offset;
    F32 value = to_f32(reinterpret_cast<I32>(own)) * broadcast(rows.scales[row]);
    if (column_scales != nullptr) value *= load(column_scales + column);
    store(c + row * ld + column, value);
  }
};
// ... or sums over more tokens.
struct Sums {
  int* c;
  long long ld;
  WEFT_INLINE void put(int row, int column, U32 total) const {
    store_u32(c + row * ld + column, load_u32(c + row * ld + column) + total);
  }
};

template <int M, class To>
void micro_kernel(const Int8Product& x, int row, int panel, const To& to, Prefetcher& prefetcher) {
  const unsigned* a = x.a.words + row * kSplitLd;
  const unsigned* b = x.b + panel * x.stride;
  I32 sum[M][2][2] = {};
  const auto multiply = [&](int u) __attribute__((always_inline)) {
    const U32 b0 = load_u32(b + u * kPanel), b1 = load_u32(b + u * kPanel + kLanes);
#pragma GCC unroll 8
    for (int i = 0; i < M; ++i) {
      const U32 high = broadcast(a[u + i * kSplitLd]), low = broadcast(a[u + i * kSplitLd + kSplitLow]);
      sum[i][0][0] = dot_bytes(sum[i][0][0], b0, high);
      sum[i][0][1] = dot_bytes(sum[i][0][1], b1, high);
      sum[i][1][0] = dot_bytes(sum[i][1][0], b0, low);
      sum[i][1][1] = dot_bytes(sum[i][1][1], b1, low);
    }
  };
  if (row == 0 && !prefetcher.is_done()) {
    // Half of what is read is fetched beside products, once for all rows: packing fetches the other half.
    const int lines = x.element == Element::int4 ? 1 : 2;
    const char* fetched[kSplitLow / 2];
    prefetcher.take(x.words / 2, lines, fetched);
    for (int u = 0; u < x.words; u += 2, a += 2, b += 2 * kPanel) {
      for (int i = 0; i < lines; ++i) prefetch(fetched[u / 2] + 64 * i);
      multiply(0);
      multiply(1);
    }
  } else {
    for (int u = 0; u < x.words; u += 2, a += 2, b += 2 * kPanel) {
      multiply(0);
      multiply(1);
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < M; ++i)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v)
      // Modulo 2^32 until the offset has gone: the sum itself fits.
      to.put(row + i, panel * kPanel + v * kLanes,
             (reinterpret_cast<U32>(sum[i][0][v]) << 8) + reinterpret_cast<U32>(sum[i][1][v]));
}

template <class To>
void multiply_panels(const Int8Product& x, const To& to, Prefetcher& prefetcher) {
  for (int panel = 0; panel < x.panels; ++panel)
    for (int row = 0; row < x.rows;) {
      const int left = x.rows - row, tiles = (left + kMicroRows - 1) / kMicroRows, count = (left + tiles - 1) / tiles;
      switch (count) {
        case 1: micro_kernel<1>(x, row, panel, to, prefetcher); break;
        case 2: micro_kernel<2>(x, row, panel, to, prefetcher); break;
        case 3: micro_kernel<3>(x, row, panel, to, prefetcher); break;
        case 4: micro_kernel<4>(x, row, panel, to, prefetcher); break;
        case 5: micro_kernel<5>(x, row, panel, to, prefetcher); break;
        default: micro_kernel<6>(x, row, panel, to, prefetcher); break;
      }
      row += count;
    }
}

// 1.5 * 2^23 and half a low byte: the sum's lowest bytes are the two, the lower one without its sign.
constexpr float kMagic = 12582912.f + 128.f;
constexpr unsigned kMagicBits = 0x4b400000u + 128;  // its own, to which those of a sum add the number

}  // namespace

void split_int8(const float* x, int n, const float* factors, int most, const SplitRows& row) {
  U32 top = {};  // bits of numbers without a sign are in their order, and those of what is none lie above them
  const auto value = [&](int i) { return factors != nullptr ? load(x + i) * load(factors + i) : load(x + i); };
  for (int i = 0; i < n; i += kLanes) top = max(as_u32(value(i)) & 0x7fffffffu, top);
  const unsigned bits = max_lanes(top);
  const bool bad = bits >= 0x7f800000u;
  const float largest = bad ? 0.f : as_f32(broadcast(bits))[0];
  const bool usable = largest >= 1e-30f;
  *row.scales = bad ? __builtin_nanf("") : usable ? largest / static_cast<float>(most) : 0.f;
  const F32 inverse = broadcast(usable ? static_cast<float>(most) / largest : 0.f);
  U32 total = {};
  for (int i = 0; i < n; i += kLanes) {
    const F32 v = usable ? value(i) : F32{};
    const U32 shifted = as_u32(fma(v, inverse, broadcast(kMagic)));
    total += shifted;
    const SplitI16 bytes = split_i16(shifted);
    store_u8(row.words + i / 4, bytes.high);
    store_u8(row.words + i / 4 + kSplitLow, bytes.low);
  }
  *row.sums = static_cast<int>(sum_lanes(total) - static_cast<unsigned>(n) * kMagicBits);
}

void order_query(const float* q, int dim, Element element, float* out) {
  if (element != Element::int4) {
    __builtin_memcpy(out, q, static_cast<unsigned long>(dim) * sizeof(float));
    return;
  }
  for (int d = 0; d < dim; ++d) out[d / 8 * 8 + d % 2 * 4 + d / 2 % 4] = q[d];
}

int value_columns(Element element, int dim) { return element == Element::int4 ? round_up(dim, 64) : round_up(dim, 32); }

void order_int8_values(Element element, int dim, float* o, long long ld, int rows) {
  if (element == Element::int4) return order_columns<Nibbles>(dim, o, ld, rows);
  order_columns<Bytes>(dim, o, ld, rows);
}

void pack_int8_keys(Element element, const char* const* rows, long long offset, int n, int dim, unsigned* out,
                    Prefetcher& prefetcher) {
  if (element == Element::int4) return pack_keys<Nibbles>(rows, offset, n, dim / 2, out, prefetcher);
  pack_keys<Bytes>(rows, offset, n, dim, out, prefetcher);
}

void pack_int8_values(Element element, const char* const* rows, long long offset, int n, int dim, unsigned* out,
                      Prefetcher& prefetcher) {
  if (element == Element::int4) return pack_values<Nibbles>(rows, offset, n, dim / 2, out, prefetcher);
  pack_values<Bytes>(rows, offset, n, dim, out, prefetcher);
}

void multiply_int8_keys(const Int8Product& product, const float* column_scales, float* c, long long ldc,
                        Prefetcher& prefetcher) {
  multiply_panels(product, Scores{product.a, stored_offset(product.element), column_scales, c, ldc}, prefetcher);
}

void multiply_int8_values(const Int8Product& product, int* sums, long long ld, Prefetcher& prefetcher) {
  multiply_panels(product, Sums{sums, ld}, prefetcher);
}

void add_int8_sums(const int* sums, int n, const SplitRows& row, Element element, float alpha, float* c) {
  const unsigned offset = static_cast<unsigned>(*row.sums) * stored_offset(element);
  for (int i = 0; i < n; i += kLanes) {
    const U32 own = load_u32(sums + i) - offset;
    store(c + i, fma(load(c + i), broadcast(alpha), to_f32(reinterpret_cast<I32>(own)) * broadcast(*row.scales)));
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME

#endif
