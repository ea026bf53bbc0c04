// What names a module: SHA-256 of its text, flags, target, compiler and the cache's format.
//
//   const RequestId id = request_id(request);
//   const std::string key = entry_key(id, compiler.identity);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "jit/toolchain.h"

namespace weft::jit {

// Change when the files of the cache change form or meaning.
inline constexpr int kFormatVersion = 1;

// Everything of a request that decides its machine code, without the compiler.
struct RequestId {
  std::string target;              // "x86_64-linux avx2"
  std::vector<std::string> flags;  // of every build for the target, of the request
  std::string digest;              // SHA-256 of both and the text
};
RequestId request_id(const Request& request);

// 64 hex digits.
std::string entry_key(const RequestId& id, std::string_view compiler_identity);
bool is_key(std::string_view name);  // has the form of one

// A quick signature for the look-up in memory, of all but the name; equal requests have equal ones.
uint64_t memory_hash(const Request& request);
// And what is compared there: a request but for its name, which is for people.
struct MemoryKey {
  std::string text;
  Target target;
  std::vector<std::string> flags;
  explicit MemoryKey(const Request& of) : text(of.text), target(of.target), flags(of.flags) {}
  friend bool operator==(const MemoryKey& key, const Request& request) {
    return key.target == request.target && key.text == request.text && key.flags == request.flags;
  }
};

}  // namespace weft::jit
