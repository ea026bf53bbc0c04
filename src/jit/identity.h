// Who a compiler is: a digest of its files' content, remembered under their path, size, mtime and inode, as reading
// them takes longer than most of what they do.
//
//   std::string why;
//   const Compiler* compiler = identify(cache, "/usr/bin/g++", examine, why);   // null: why says
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/hash.h"
#include "jit/toolchain.h"

namespace weft::jit {

// A file as it was when its content was hashed.
struct Stamp {
  std::string path;
  int64_t size = 0, mtime_ns = 0;
  uint64_t inode = 0;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

struct KnownCompiler {
  Compiler compiler;
  std::vector<Stamp> files;  // its own, then what else it works with
  bool is_current() const;
};

// Adds the file's content to the digest, and the file to those that the compiler is made of. Sets `why` where it cannot
// be read.
bool add_file(KnownCompiler& known, Sha256& hash, const std::string& path, std::string& why);

// The compiler at `path`; `examine` finds out about one that is not remembered, or sets `why`. It lives as long as the
// program. Thread-safe.
const Compiler* identify(const Cache* cache, const std::string& path,
                         std::optional<KnownCompiler> (*examine)(const std::string& path, std::string& why),
                         std::string& why);

}  // namespace weft::jit
