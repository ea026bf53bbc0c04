// The header of a GGUF file (versions 2 and 3, little endian): metadata and the list of tensors, checked in full.
// No count, offset or string of the file is trusted: every read is bounded by the bytes that are left.
//
//   Gguf gguf = read_gguf(*source);
//   if (const GgufValue* value = gguf.find("general.architecture")) gguf.string_of(*value);
//
// Limits: header 256 MiB, key 65,535 bytes, tensor name 64 bytes, 65,536 tensors, rank 4, arrays hold scalars or
// strings, alignment a power of two from 8 to 65,536.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/byte_source.h"
#include "weft/model.h"

namespace weft {

// Numbers as they stand in the file.
enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
std::string_view to_string(GgufType type);

// A place in the header.
struct GgufSpan {
  uint32_t at = 0, size = 0;
};

struct GgufValue {
  GgufSpan key;
  GgufType type = GgufType::u8;  // of the elements, when it is an array
  bool is_array = false;
  uint64_t count = 1;  // elements of an array
  GgufSpan data;       // strings: each a 64-bit length and its bytes
};

struct Gguf {
  std::unique_ptr<char[]> header;  // what spans point into
  uint32_t version = 0;
  std::vector<GgufValue> metadata;  // sorted by key
  std::vector<WeightInfo> tensors;  // in file order; offsets count from the start of the file

  std::string_view text(GgufSpan span) const { return {header.get() + span.at, span.size}; }
  const GgufValue* find(std::string_view key) const;
};

// Throws Error(invalid_file), Error(unsupported) for a version, byte order, nested array or tensor type that is not
// there, and whatever the source throws.
Gguf read_gguf(const ByteSource& source);

// Text of the file made fit for a message: control characters escaped, shortened to 80 bytes, in single quotes.
std::string quoted(std::string_view text);

}  // namespace weft
