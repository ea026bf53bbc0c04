// What a variant's text may use, the same for every target: the arguments of its hooks, tensors, and what needs no
// math.
//
//   real logits_transform(P p, Score c, real s) { return s + p.bias(c.qo_head, c.kv_idx); }
//   bool logits_mask(P p, Score c) { return weft::mask_bit(p.bits, p.start(c.batch), 0, c); }
//
// Standard C++20 of which every target's compiler takes the whole. Part of the generated text, so it includes nothing.
// A target brings, before it:
//   WEFT_INLINE          how its compiler is told to inline a function
//   weft::real           float in kernels, double in the reference
//   weft::detail::KeyRun, and bit_of(bytes, bit, run): what mask_bit reads
// and after it Vec, as vectors.h wants it, and infinity, exp, exp2, log, tanh, fast_tanh, sigmoid, sin, cos, sqrt,
// rsqrt of real.
#pragma once

namespace weft {

// One score. Indices count within the request: query token, key. Positions decide masks, ALiBi and RoPE.
struct Score {
  int batch, qo_idx, kv_idx, qo_head, kv_head, q_pos, kv_pos, qo_len, kv_len;
  detail::KeyRun run;  // the target's: keys that it computes together with this one
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

// x / d and x % d for 0 <= x and a divisor d >= 1 that is the same for every score of a row. Exact: the first quotient
// is at most one too small, as 2^32 / d - 1 <= r <= 2^32 / d and x < 2^31.
WEFT_INLINE int div_const(int x, int d) {
  const unsigned r = 0xffffffffu / static_cast<unsigned>(d);
  const unsigned n = static_cast<unsigned>(x);
  const unsigned q = static_cast<unsigned>((static_cast<unsigned long long>(n) * r) >> 32);
  return static_cast<int>(n - q * static_cast<unsigned>(d) >= static_cast<unsigned>(d) ? q + 1 : q);
}
WEFT_INLINE int mod_const(int x, int d) { return x - d * div_const(x, d); }

// Bit row_start + c.kv_idx of the little-endian bits that start `byte_offset` bytes into the tensor. Reads words: 4
// bytes must follow the last bit's byte, as pack_mask leaves them.
WEFT_INLINE bool mask_bit(const Tensor<unsigned char, 1>& bits, long long byte_offset, long long row_start,
                          const Score& c) {
  return detail::bit_of(bits.data + byte_offset, row_start, c.kv_idx, c.run);
}

}  // namespace weft
