// The kernel cache: text + flags -> key -> disk -> loaded module.
//
//   for (const weft::jit::Entry& entry : weft::jit::list()) fmt::print("{} {}\n", entry.key, entry.name);
//   weft::jit::prune({.max_bytes = 64 << 20});
//
// The cache's folder is WEFT_CACHE_DIR, or weft/ in the user's cache folder; it is private to the user (0700)
// and refused (Error(cache_refused)) when someone else owns or may write it. Thread- and process-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::jit {

struct Entry {
  std::string key;   // hex, 64 digits
  std::string name;  // e.g. "leaf softcap fp32 avx2"
  std::string compiler;
  uint64_t bytes = 0;
  int64_t modified_s = 0;  // Unix time
  bool intact = true;      // checksum agrees
};

std::string cache_dir();
std::vector<Entry> list();
// The text a module was made from. Throws Error(invalid_argument) for a key that is not there or is ambiguous;
// a unique prefix of at least 4 digits is enough.
std::string source(std::string_view key);
// What `list` says of it. Throws like source.
Entry find(std::string_view key);
// The module itself, a shared object or a cubin, for a disassembler. Throws like source.
std::string object(std::string_view key);
// Checks every entry's checksum and removes the broken ones; returns what it removed.
std::vector<Entry> verify();
struct PruneOptions {
  int64_t max_bytes = -1;  // oldest first until what is left fits; -1: any size
  int64_t max_age_s = -1;  // -1: any age
};
std::vector<Entry> prune(const PruneOptions& options);
// Copies the given entries (all when empty) to a folder that can serve as WEFT_CACHE_DIR elsewhere.
void export_to(const std::string& folder, const std::vector<std::string>& keys = {});

}  // namespace weft::jit
