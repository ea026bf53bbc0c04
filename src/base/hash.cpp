#include "base/hash.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#include <bit>
#include <cstring>

namespace weft {
namespace {

constexpr std::array<uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t load_be(const uint8_t* p) {
  return uint32_t{p[0]} << 24 | uint32_t{p[1]} << 16 | uint32_t{p[2]} << 8 | uint32_t{p[3]};
}

#if defined(__x86_64__)
bool has_sha_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const bool has_leaf = __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0;
  return has_leaf && (b >> 29 & 1) != 0 && __builtin_cpu_supports("sse4.1") != 0;
}

// The instructions keep the state as (a b e f) and (c d g h), highest lane first, and do two rounds each.
[[gnu::target("sha,sse4.1")]] void block_with_instructions(uint32_t* state, const uint8_t* data) {
  const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
  const auto load = [](const auto* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); };
  const __m128i cdab = _mm_shuffle_epi32(load(state), 0xb1), efgh = _mm_shuffle_epi32(load(state + 4), 0x1b);
  const __m128i abef_before = _mm_alignr_epi8(cdab, efgh, 8), cdgh_before = _mm_blend_epi16(efgh, cdab, 0xf0);
  __m128i abef = abef_before, cdgh = cdgh_before, w[4];
  for (size_t i = 0; i < 16; ++i) {
    __m128i& next = w[i % 4];  // holds the words of 16 rounds ago
    if (i < 4) {
      next = _mm_shuffle_epi8(load(data + 16 * i), big_endian);
    } else {
      const __m128i last = w[(i + 3) % 4];
      next = _mm_add_epi32(_mm_sha256msg1_epu32(next, w[(i + 1) % 4]), _mm_alignr_epi8(last, w[(i + 2) % 4], 4));
      next = _mm_sha256msg2_epu32(next, last);
    }
    const __m128i sum = _mm_add_epi32(next, load(kRound.data() + 4 * i));
    cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
    abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
  }
  const __m128i feba = _mm_shuffle_epi32(_mm_add_epi32(abef, abef_before), 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(_mm_add_epi32(cdgh, cdgh_before), 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

}  // namespace

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::block(const uint8_t* data) {
#if defined(__x86_64__)
  static const bool use_instructions = has_sha_instructions();
  if (use_instructions) return block_with_instructions(state_.data(), data);
#endif
  uint32_t w[64];
  for (size_t i = 0; i < 16; ++i) w[i] = load_be(data + 4 * i);
  for (size_t i = 16; i < 64; ++i) {
    const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
    const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
    w[i] = w[i - 16] + s0 + w[i - 7] + s1;
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (size_t i = 0; i < 64; ++i) {
    const uint32_t t1 =
        h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) + ((e & f) ^ (~e & g)) + kRound[i] + w[i];
    const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g, g = f, f = e, e = d + t1, d = c, c = b, b = a, a = t1 + t2;
  }
  const uint32_t sum[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i) state_[i] += sum[i];
}

Sha256& Sha256::update(std::string_view bytes) {
  auto* data = reinterpret_cast<const uint8_t*>(bytes.data());
  size_t left = bytes.size();
  size_t filled = length_ % 64;
  length_ += left;
  if (filled != 0) {
    const size_t take = left < 64 - filled ? left : 64 - filled;
    std::memcpy(buffer_.data() + filled, data, take);
    data += take, left -= take, filled += take;
    if (filled < 64) return *this;
    block(buffer_.data());
  }
  for (; left >= 64; data += 64, left -= 64) block(data);
  if (left != 0) std::memcpy(buffer_.data(), data, left);
  return *this;
}

std::array<uint8_t, 32> Sha256::digest() {
  const uint64_t bits = length_ * 8;
  const size_t filled = length_ % 64;
  const size_t zeros = (filled < 56 ? 56 : 120) - filled - 1;
  std::array<char, 72> tail{};
  tail[0] = static_cast<char>(0x80);
  for (size_t i = 0; i < 8; ++i) tail[1 + zeros + i] = static_cast<char>(bits >> (56 - 8 * i));
  update({tail.data(), 1 + zeros + 8});
  std::array<uint8_t, 32> out;
  for (size_t i = 0; i < 32; ++i) out[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string Sha256::hex_digest() {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  for (uint8_t byte : digest()) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string sha256_hex(std::string_view bytes) { return Sha256().update(bytes).hex_digest(); }

Hash64& Hash64::add_bytes(std::string_view bytes) {
  for (const char c : bytes) state_ = (state_ ^ static_cast<uint8_t>(c)) * 0x100000001b3ull;
  return *this;
}

Hash64& Hash64::add(double value) { return add(std::bit_cast<uint64_t>(value)); }

}  // namespace weft
