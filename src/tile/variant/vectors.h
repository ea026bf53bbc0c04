// What a variant's vector hooks may do with the old vector, the same for every target:
//
//   real key_transform(P p, Vec x, int i, Row r) {
//     return x[i] * p.cos(r.pos, i) + weft::pair(x, i) * p.sin(r.pos, i);
//   }
//   real query_transform(P p, Vec x, int i, Row) { return x[i] * weft::rsqrt(weft::dot(x, x) / real(x.size())); }
//
// A target's Vec has operator[] and size(), which variants use, and for the functions below
//   partner(i)      -x[i + 1] for even i, x[i - 1] for odd i
//   total(), squares()   the sums of x[i] and of its squares, computed once a vector
//   product(row)    the sum of x[i] * row[i]
// Part of the generated text, so it includes nothing.
#pragma once

namespace weft {

// The partner of element i when it is rotated: -x[i + 1] for even i, x[i - 1] for odd i.
WEFT_INLINE real pair(const Vec& x, int i) { return x.partner(i); }
// The same between the halves of the vector: -x[i + d/2] in the first half, x[i - d/2] in the second.
WEFT_INLINE real pair_halves(const Vec& x, int i) {
  const int half = x.size() / 2;
  return i < half ? -x[i + half] : x[i - half];
}
// Between the halves of the first n elements only (partial rotation); i < n.
WEFT_INLINE real pair_halves(const Vec& x, int i, int n) { return i < n / 2 ? -x[i + n / 2] : x[i - n / 2]; }
WEFT_INLINE real sum(const Vec& x) { return x.total(); }
// Sum of squares: dot(x, x), computed once a vector.
WEFT_INLINE real dot(const Vec& x, const Vec&) { return x.squares(); }
// With a row of a tensor: a projection; computed for every element that asks for it.
WEFT_INLINE real dot(const Vec& x, TensorRow<float> row) { return x.product(row); }

}  // namespace weft
