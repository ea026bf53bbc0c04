// SHA-256 for content keys and checksums; a fast 64-bit hash for signatures. Neither depends on the machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

class Sha256 {
 public:
  Sha256();
  Sha256& update(std::string_view bytes);
  std::array<uint8_t, 32> digest();  // ends the computation
  std::string hex_digest();

 private:
  void block(const uint8_t* data);
  std::array<uint32_t, 8> state_;
  std::array<uint8_t, 64> buffer_{};
  uint64_t length_ = 0;
};

std::string sha256_hex(std::string_view bytes);

// FNV-1a, for small inputs.
class Hash64 {
 public:
  template <class T>
  Hash64& add(const T& value) {
    static_assert(__is_trivially_copyable(T) && __has_unique_object_representations(T));
    return add_bytes({reinterpret_cast<const char*>(&value), sizeof value});
  }
  Hash64& add(double value);
  Hash64& add_bytes(std::string_view bytes);
  uint64_t value() const { return state_; }

 private:
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace weft
