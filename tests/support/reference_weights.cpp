#include "tests/support/reference_weights.h"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>

#include "tests/support/gguf_writer.h"

namespace weft::testing {
namespace {

using Bytes = const unsigned char*;

template <class T>
T load(Bytes from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

double half(Bytes from) {
  const auto bits = load<uint16_t>(from);
  const int exponent = bits >> 10 & 31;
  const double fraction = bits & 1023;
  const double magnitude = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return bits >> 15 ? -magnitude : magnitude;
}

// A block of each type: how many weights it holds in how many bytes, and what they are.
void f32(Bytes block, double* to) { to[0] = static_cast<double>(load<float>(block)); }
void f16(Bytes block, double* to) { to[0] = half(block); }
void bf16(Bytes block, double* to) {
  const uint32_t bits = uint32_t{load<uint16_t>(block)} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  to[0] = static_cast<double>(value);
}
void q8_0(Bytes block, double* to) {
  const double d = half(block);
  for (int i = 0; i < 32; ++i) to[i] = d * static_cast<signed char>(block[2 + i]);
}
// Low nibbles are the first half, high ones the second.
void q4_0(Bytes block, double* to) {
  const double d = half(block);
  for (int i = 0; i < 32; ++i) to[i] = d * ((i < 16 ? block[2 + i] & 15 : block[2 + i - 16] >> 4) - 8);
}
void q4_1(Bytes block, double* to) {
  const double d = half(block), m = half(block + 2);
  for (int i = 0; i < 32; ++i) to[i] = d * (i < 16 ? block[4 + i] & 15 : block[4 + i - 16] >> 4) + m;
}
// The fifth bits stand first, in a 32-bit word.
void q5_0(Bytes block, double* to) {
  const double d = half(block);
  const auto fifth = load<uint32_t>(block + 2);
  for (int i = 0; i < 32; ++i) {
    const int low = i < 16 ? block[6 + i] & 15 : block[6 + i - 16] >> 4;
    to[i] = d * ((low | static_cast<int>(fifth >> i & 1) << 4) - 16);
  }
}
// 8 blocks of 32 with a scale and a minimum of 6 bits each: the first four in bytes 0 to 3 and 4 to 7, the others as
// low nibbles and high nibbles of bytes 8 to 11 and the top bits of the bytes before.
void q4_k(Bytes block, double* to) {
  const double d = half(block), m = half(block + 2);
  const Bytes six = block + 4, nibbles = block + 16;
  for (int i = 0; i < 256; ++i) {
    const int j = i / 32;
    const int scale = j < 4 ? six[j] & 63 : (six[j + 4] & 15) | (six[j - 4] >> 6) << 4;
    const int least = j < 4 ? six[j + 4] & 63 : six[j + 4] >> 4 | (six[j] >> 6) << 4;
    const int byte = nibbles[j / 2 * 32 + i % 32];
    to[i] = d * scale * (j % 2 == 0 ? byte & 15 : byte >> 4) - m * least;
  }
}
// Two halves of 128: 64 bytes of low nibbles, 32 bytes of upper bits; then 16 scales of 16 weights each, and d.
void q6_k(Bytes block, double* to) {
  const double d = half(block + 208);
  for (int i = 0; i < 256; ++i) {
    const int part = i / 128, quarter = i / 32 % 4, at = i % 32;
    const int byte = block[part * 64 + quarter % 2 * 32 + at];
    const int low = quarter < 2 ? byte & 15 : byte >> 4;
    const int high = block[128 + part * 32 + at] >> 2 * quarter & 3;
    to[i] = d * static_cast<signed char>(block[192 + i / 16]) * ((low | high << 4) - 32);
  }
}

struct Type {
  uint32_t id;
  int weights, bytes;  // of a block
  void (*read)(Bytes block, double* to);
};
constexpr Type kTypes[] = {
    {GgufWriter::kF32, 1, 4, f32},     {GgufWriter::kF16, 1, 2, f16},       {GgufWriter::kBF16, 1, 2, bf16},
    {GgufWriter::kQ8_0, 32, 34, q8_0}, {GgufWriter::kQ4_0, 32, 18, q4_0},   {GgufWriter::kQ4_1, 32, 20, q4_1},
    {GgufWriter::kQ5_0, 32, 22, q5_0}, {GgufWriter::kQ4_K, 256, 144, q4_k}, {GgufWriter::kQ6_K, 256, 210, q6_k},
};

const Type& find(uint32_t id) {
  for (const Type& type : kTypes)
    if (type.id == id) return type;
  throw std::runtime_error("reference: tensor type " + std::to_string(id));
}

}  // namespace

int64_t file_bytes(uint32_t type, int64_t count) { return count / find(type).weights * find(type).bytes; }

void dequantise(uint32_t type, const unsigned char* from, int64_t count, double* to) {
  const Type& found = find(type);
  for (int64_t i = 0; i < count; i += found.weights, from += found.bytes) found.read(from, to + i);
}

void dequantise_q4_g128(const unsigned char* from, int64_t count, double* to) {
  for (int64_t group = 0; group < count / 128; ++group, from += 66)
    for (int i = 0; i < 128; ++i) *to++ = half(from) * ((i < 64 ? from[2 + i] & 15 : from[2 + i - 64] >> 4) - 8);
}

}  // namespace weft::testing
