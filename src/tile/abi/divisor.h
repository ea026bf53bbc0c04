// A number that a kernel divides by and its compiler does not know: a quotient takes a multiplication and a correction
// instead of the twenty instructions and more of a division. For host and kernel alike.
//
//   constexpr Divisor band_tiles = 112;
//   const int band = tile / band_tiles;
#pragma once

namespace weft::tile {

struct Divisor {
  unsigned by = 1, inverse = 1u << 31;  // 2^31 / by, rounded up

  constexpr Divisor() = default;
  constexpr Divisor(int divisor)
      : by(static_cast<unsigned>(divisor)), inverse(static_cast<unsigned>(((1u << 31) + by - 1) / by)) {}
  constexpr operator int() const { return static_cast<int>(by); }
};

// Of n from 0 on. The inverse is less than 1 too large, so the quotient of n < 2^31 is too large by 1 at most.
constexpr int operator/(int n, Divisor divisor) {
  const auto quotient =
      static_cast<unsigned>(static_cast<unsigned long long>(static_cast<unsigned>(n)) * divisor.inverse >> 31);
  return static_cast<int>(quotient * divisor.by > static_cast<unsigned>(n) ? quotient - 1 : quotient);
}

}  // namespace weft::tile
