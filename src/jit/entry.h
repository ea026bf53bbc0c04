// One file of the cache: a module with all that is known about it, under one checksum.
//
// Form: magic, SHA-256 of all that follows it, then each field as a 64-bit little-endian length and its bytes.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft::jit {

struct StoredModule {
  std::string key;
  std::string name;
  std::string compiler;  // its version, for people
  std::string identity;  // its content hash
  std::string target;
  std::string flags;  // separated by line feeds
  std::string text;
  std::string module;  // the shared object
};

std::string encode(const StoredModule& stored);
// Nothing when a byte is wrong, missing or too many, or when the content belongs to another key.
std::optional<StoredModule> decode(std::string_view file, std::string_view key);

}  // namespace weft::jit
