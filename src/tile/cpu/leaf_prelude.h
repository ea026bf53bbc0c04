// What a variant's text may use besides the math of leaf_math.h: the arguments of its hooks, and tensors.
//
//   real logits_transform(P p, Score c, real s) { return s + p.bias(c.qo_head, c.kv_idx); }
//   bool logits_mask(P p, Score c) { return weft::mask_bit(p.bits, p.start(c.batch), 0, c); }
//   real key_transform(P p, Vec x, int i, Row r) { return x[i] * p.cos(r.pos, i) + weft::pair(x, i) * p.sin(r.pos, i); }
//
// Part of the generated text, so it includes nothing: the text defines weft::real (float in kernels, double in the
// reference) before it.
#pragma once

#define WEFT_INLINE inline __attribute__((always_inline))

namespace weft {

// One score. Indices count within the request: query token, key. Positions decide masks, ALiBi and RoPE.
struct Score {
  int batch, qo_idx, kv_idx, qo_head, kv_head, q_pos, kv_pos, qo_len, kv_len;
  int kv_block;  // first key of the run of at most 32 that is computed together: what mask_bit loads its bits by
};

// One vector: a query or output row (idx counts query tokens, head query heads), or a key or value (idx counts keys,
// head KV heads).
struct Row {
  int batch, idx, pos, head;
  real lse;  // of an output row: log of the sum of exp of its logits, -inf where it sees no key. 0 in other hooks
};

struct Request {
  int batch;
};

// The old vector. Element access, and sums that are computed once a vector.
struct Vec {
  const real* data;            // or:
  const unsigned short* bf16;  // where is_bf16, which is constant in every loop
  bool is_bf16;
  const real* pairs;
  int dim;
  real total, squares;
  WEFT_INLINE real operator[](int i) const {
    return is_bf16 ? __builtin_bit_cast(float, static_cast<unsigned>(bf16[i]) << 16) : data[i];
  }
  WEFT_INLINE int size() const { return dim; }
};
// The partner of element i when it is rotated: -x[i + 1] for even i, x[i - 1] for odd i.
WEFT_INLINE real pair(const Vec& x, int i) { return x.pairs[i]; }
// The same between the halves of the vector: -x[i + d/2] in the first half, x[i - d/2] in the second.
WEFT_INLINE real pair_halves(const Vec& x, int i) { return i < x.dim / 2 ? -x[i + x.dim / 2] : x[i - x.dim / 2]; }
// Between the halves of the first n elements only (partial rotation); i < n.
WEFT_INLINE real pair_halves(const Vec& x, int i, int n) { return i < n / 2 ? -x[i + n / 2] : x[i - n / 2]; }
WEFT_INLINE real sum(const Vec& x) { return x.total; }

namespace detail {
template <class T>
struct Loaded {
  using type = T;
};
template <>
struct Loaded<float> {
  using type = real;
};
template <>
struct Loaded<unsigned char> {
  using type = int;
};
template <class T>
using loaded = typename Loaded<T>::type;
typedef unsigned Word __attribute__((aligned(1), may_alias));
}  // namespace detail

// A row of a tensor, for weft::dot.
template <class T>
struct TensorRow {
  const T* data;
  WEFT_INLINE detail::loaded<T> operator[](int i) const { return detail::loaded<T>(data[i]); }
};

// A tensor that the variant declares; its last axis is contiguous. All indices but the last may be 64-bit.
template <class T, int rank>
struct Tensor;
template <class T>
struct Tensor<T, 1> {
  const T* data;
  long long stride[1];
  using Value = detail::loaded<T>;
  WEFT_INLINE Value operator()(int i) const { return Value(data[i]); }
  // Element offset + i: for arrays longer than an int counts, e.g. the mask of one request behind another.
  WEFT_INLINE Value at(long long offset, int i) const { return Value((data + offset)[i]); }
  WEFT_INLINE TensorRow<T> row() const { return {data}; }
};
template <class T>
struct Tensor<T, 2> {
  const T* data;
  long long stride[2];
  using Value = detail::loaded<T>;
  WEFT_INLINE Value operator()(long long i, int j) const { return Value((data + i * stride[0])[j]); }
  WEFT_INLINE TensorRow<T> row(long long i) const { return {data + i * stride[0]}; }
};
template <class T>
struct Tensor<T, 3> {
  const T* data;
  long long stride[3];
  using Value = detail::loaded<T>;
  WEFT_INLINE Value operator()(long long i, long long j, int k) const {
    return Value((data + i * stride[0] + j * stride[1])[k]);
  }
  WEFT_INLINE TensorRow<T> row(long long i, long long j) const { return {data + i * stride[0] + j * stride[1]}; }
};
template <class T>
struct Tensor<T, 4> {
  const T* data;
  long long stride[4];
  using Value = detail::loaded<T>;
  WEFT_INLINE Value operator()(long long i, long long j, long long k, int l) const {
    return Value((data + i * stride[0] + j * stride[1] + k * stride[2])[l]);
  }
  WEFT_INLINE TensorRow<T> row(long long i, long long j, long long k) const {
    return {data + i * stride[0] + j * stride[1] + k * stride[2]};
  }
};

template <class T>
WEFT_INLINE T select(bool condition, T yes, T no) {
  return condition ? yes : no;
}
// The smaller and the larger number; NaN when either is NaN.
template <class A, class B>
WEFT_INLINE auto min(A a, B b) {
  using T = decltype(a + b);
  const T x = T(a), y = T(b);
  const T low = y < x ? y : x;
  return y != y ? y : low;
}
template <class A, class B>
WEFT_INLINE auto max(A a, B b) {
  using T = decltype(a + b);
  const T x = T(a), y = T(b);
  const T high = y > x ? y : x;
  return y != y ? y : high;
}
template <class T>
WEFT_INLINE T clamp(T x, T low, T high) {
  x = x < low ? low : x;
  return x > high ? high : x;
}
template <class T>
WEFT_INLINE T abs(T x) {
  return x < T(0) ? -x : x;
}

// x / d and x % d for 0 <= x and a divisor d >= 1 that is the same for every score of a row. Exact.
WEFT_INLINE int div_const(int x, int d) { return int((double(x) + 0.5) * (1.0 / double(d))); }
WEFT_INLINE int mod_const(int x, int d) { return x - d * div_const(x, d); }

// Bit row_start + c.kv_idx of the little-endian bits that start `byte_offset` bytes into the tensor. Reads words: 4
// bytes must follow the last bit's byte, as pack_mask leaves them.
WEFT_INLINE bool mask_bit(const Tensor<unsigned char, 1>& bits, long long byte_offset, long long row_start,
                          const Score& c) {
  const long long first = row_start + c.kv_block;
  const unsigned char* bytes = bits.data + byte_offset + (first >> 3);
  const unsigned low = *reinterpret_cast<const detail::Word*>(bytes);
  const unsigned long long wide = (static_cast<unsigned long long>(bytes[4]) << 32) | low;
  const unsigned word = static_cast<unsigned>(wide >> (first & 7));
  // The bit as a sign: compilers vectorise this comparison, and not the conversion of one bit to bool.
  return static_cast<int>(word << (31 - (c.kv_idx - c.kv_block))) < 0;
}

}  // namespace weft
