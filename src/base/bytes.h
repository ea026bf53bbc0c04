// Bytes of the host that are given to someone else.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

namespace weft {

struct Bytes {
  const void* data;
  int64_t size;
};

// One piece behind another.
inline void copy(std::span<const Bytes> pieces, void* to) {
  char* at = static_cast<char*>(to);
  for (const Bytes& piece : pieces) {
    if (piece.size > 0) std::memcpy(at, piece.data, static_cast<size_t>(piece.size));
    at += piece.size;
  }
}

}  // namespace weft
