// Weights of logits (tile/abi/draw.h), the same bits on every device: one list of operations, of which each rounds once
// and none is fused with another. Whoever includes this says first what WEFT_INLINE is, and gives the operations:
//
//   struct Math {                                  // of one number, or of as many as a vector has lanes
//     using Real = ..., Int = ..., Mask = ...;
//     static Real number(float), add(Real, Real), multiply(Real, Real), choose(Mask, Real, Real), from_bits(Int);
//     static Int bits(Real), truncated(Real), choose(Mask, Int, Int);
//     static Mask equal(Real, Real), at_least(Real, Real);      // false for NaN
//   };
#pragma once

#include "tile/abi/draw.h"

namespace weft::tile {

inline constexpr float kLeastExponent = -20.75f;  // below it a logit weighs nothing; from it on at least 1

// A finite logit stays finite, whatever finite number changes it. Math of one number.
template <class Math>
WEFT_INLINE float changed_logit(float logit, const DrawPenalties& penalties, const LogitChange& change) {
  constexpr float kMost = 3.402823466e38f;
  const bool is_finite = logit >= -kMost && logit <= kMost;
  const auto held = [&](float x) { return is_finite && x < -kMost ? -kMost : is_finite && x > kMost ? kMost : x; };
  if (change.seen && penalties.repetition != 1.f)
    logit = held(logit > 0.f ? logit / penalties.repetition : Math::multiply(logit, penalties.repetition));
  if (change.count > 0) {
    constexpr float kSmall = 0x1p-32f;  // times a number of tokens nothing overflows
    const float times = Math::multiply(Math::multiply(penalties.frequency, kSmall), static_cast<float>(change.count));
    const float penalty = Math::add(Math::multiply(penalties.presence, kSmall), times);
    logit = held(Math::multiply(Math::add(Math::multiply(logit, kSmall), -penalty), 0x1p32f));
  }
  if (change.bias < -kMost) return change.bias;
  return held(Math::add(logit, change.bias));
}

// (logit - largest) * scale, at most 0, NaN for NaN; falls nowhere as the logit rises. Infinite logits are equal.
template <class Math>
WEFT_INLINE typename Math::Real draw_exponent(typename Math::Real logit, float largest, float scale) {
  const auto difference = Math::multiply(Math::add(logit, Math::number(-largest)), Math::number(scale));
  return Math::choose(Math::equal(logit, Math::number(largest)), Math::number(0.f), difference);
}

// 2^30 e^x to the nearest integer, within 2^-23 of itself before that; exactly 2^30 at 0, and 0 for NaN and below
// kLeastExponent.
template <class Math>
WEFT_INLINE typename Math::Int draw_weight(typename Math::Real exponent) {
  using Real = typename Math::Real;
  constexpr float kMagic = 12582912.f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr int kMagicBits = 0x4b400000;
  const auto weighs = Math::at_least(exponent, Math::number(kLeastExponent));
  const Real x = Math::choose(weighs, exponent, Math::number(0.f));
  // e^x = 2^n e^f, |f| <= ln(2) / 2; ln(2) in two parts, n times the first of which is exact.
  const Real shifted = Math::add(Math::multiply(x, Math::number(1.44269504f)), Math::number(kMagic));
  const Real n = Math::add(shifted, Math::number(-kMagic));
  Real f = Math::add(x, Math::multiply(n, Math::number(-0.693145752f)));
  f = Math::add(f, Math::multiply(n, Math::number(-1.42860677e-6f)));
  Real p = Math::number(1.9875691e-4f);
  p = Math::add(Math::multiply(p, f), Math::number(1.3981999e-3f));
  p = Math::add(Math::multiply(p, f), Math::number(8.3334519e-3f));
  p = Math::add(Math::multiply(p, f), Math::number(4.1665796e-2f));
  p = Math::add(Math::multiply(p, f), Math::number(1.6666665e-1f));
  p = Math::add(Math::multiply(p, f), Math::number(5.0000001e-1f));
  p = Math::add(Math::multiply(p, Math::multiply(f, f)), f);
  p = Math::add(p, Math::number(1.f));
  const Real power = Math::from_bits((Math::bits(shifted) + (127 + 30 - kMagicBits)) << 23);
  const auto weight = Math::truncated(Math::add(Math::multiply(p, power), Math::number(0.5f)));
  return Math::choose(weighs, weight, weight - weight);
}

// The share of a probability in the largest one, at most 1, NaN for NaN; falls nowhere as the probability rises.
// `scale`: scale_of_shares(largest).
template <class Math>
WEFT_INLINE typename Math::Real draw_share(typename Math::Real probability, float largest, float scale) {
  const auto share = Math::multiply(probability, Math::number(scale));
  return Math::choose(Math::equal(probability, Math::number(largest)), Math::number(1.f), share);
}

inline constexpr float kLeastShare = 0x1p-30f;  // below it a probability weighs nothing; from it on at least 1

// 2^30 share to the nearest integer; 0 for NaN and below kLeastShare.
template <class Math>
WEFT_INLINE typename Math::Int share_weight(typename Math::Real share) {
  const auto weighs = Math::at_least(share, Math::number(kLeastShare));
  const auto held = Math::choose(weighs, share, Math::number(0.f));
  const auto rounded = Math::add(Math::multiply(held, Math::number(0x1p30f)), Math::number(0.5f));
  return Math::truncated(rounded);
}
// How many steps of 2^(shift - 23) of itself, counted in floats' bits, a share that weighs lies below 1.
template <class Math, int kShift>
WEFT_INLINE typename Math::Int steps_below_one(typename Math::Real share) {
  const auto one = Math::bits(Math::number(1.f));
  return (one - Math::bits(share)) >> kShift;
}

}  // namespace weft::tile
