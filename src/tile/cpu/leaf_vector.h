// The old vector as a leaf's vector hooks see it (tile/variant/vectors.h): fp32, or bf16 where that is multiplied. Its
// sums are computed in vectors of eight.
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

namespace detail {

namespace vec = tile::WEFT_ISA_NAME;

WEFT_INLINE void load8(const float* x, vec::F32x8& to) { to = *reinterpret_cast<const vec::F32x8Memory*>(x); }
WEFT_INLINE void load8(const unsigned short* bf16, vec::F32x8& to) {
  const vec::U16x8 bits = *reinterpret_cast<const vec::U16x8Memory*>(bf16);
  to = reinterpret_cast<vec::F32x8>(__builtin_convertvector(bits, vec::U32x8) << 16);
}
WEFT_INLINE float sum8(const vec::F32x8& a) {
  return ((a[0] + a[4]) + (a[1] + a[5])) + ((a[2] + a[6]) + (a[3] + a[7]));
}
// Sums of n terms, n a multiple of 8, in four chains of eight: add(sum, i) adds those of eight elements.
template <class Add>
WEFT_INLINE float sum_in_chains(int n, const Add& add) {
  vec::F32x8 a = {}, b = {}, c = {}, d = {};
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    add(a, i);
    add(b, i + 8);
    add(c, i + 16);
    add(d, i + 24);
  }
  for (; i < n; i += 8) add(a, i);
  return sum8((a + b) + (c + d));
}
template <class T>
WEFT_INLINE float sum_of(const T* x, int n) {
  return sum_in_chains(
      n, [&](vec::F32x8 & sum, int i) __attribute__((always_inline)) {
        vec::F32x8 v;
        load8(x + i, v);
        sum += v;
      });
}
template <class T, class U>
WEFT_INLINE float dot_of(const T* x, const U* y, int n) {
  return sum_in_chains(
      n, [&](vec::F32x8 & sum, int i) __attribute__((always_inline)) {
        vec::F32x8 v, w;
        load8(x + i, v);
        load8(y + i, w);
        sum += v * w;
      });
}
}  // namespace detail

namespace detail {
template <class P, class V, class M, int kDimQk, int kDimVo, class Kv>
struct Leaf;
}

// What variants may use, on every target, is public; how elements are stored is the leaf's alone.
class Vec {
 public:
  WEFT_INLINE float operator[](int i) const {
    return is_bf16_ ? detail::from_bits(static_cast<unsigned>(bf16_[i]) << 16) : data_[i];
  }
  WEFT_INLINE int size() const { return dim_; }
  WEFT_INLINE float partner(int i) const { return pairs_[i]; }
  WEFT_INLINE float total() const { return sum_; }
  WEFT_INLINE float squares() const { return sum_of_squares_; }
  WEFT_INLINE float product(TensorRow<float> row) const {
    return is_bf16_ ? detail::dot_of(bf16_, row.data, dim_) : detail::dot_of(data_, row.data, dim_);
  }

 private:
  template <class P, class V, class M, int kDimQk, int kDimVo, class Kv>
  friend struct detail::Leaf;
  WEFT_INLINE Vec(const float* data, const unsigned short* bf16, bool is_bf16, const float* pairs, int dim, float sum,
                  float sum_of_squares)
      : data_(data),
        bf16_(bf16),
        is_bf16_(is_bf16),
        pairs_(pairs),
        dim_(dim),
        sum_(sum),
        sum_of_squares_(sum_of_squares) {}

  const float* data_;           // or:
  const unsigned short* bf16_;  // where is_bf16_, which is constant in every loop
  bool is_bf16_;
  const float* pairs_;
  int dim_;
  float sum_, sum_of_squares_;
};

}  // namespace weft
