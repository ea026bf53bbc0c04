// Text -> key -> memory, disk or compiler -> module.
//
//   jit::Request request{.name = "leaf softcap fp32 avx2", .text = text, .isa = Isa::avx2};
//   std::shared_ptr<const Module> module = jit::build(request);
//
// Key = SHA-256 of text, flags, target and the compiler's identity. Thread- and process-safe: one builder per key.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/cpu/module.h"
#include "weft/device.h"
#include "weft/jit.h"

namespace weft::jit {

struct Request {
  std::string name;  // for people: shown by `weft jit list`
  std::string text;  // a complete C++20 translation unit without includes
  Isa isa = Isa::plain;
  std::vector<std::string> flags;  // beside those of every build (-O3 -fno-trapping-math ...)
};

// Throws Error(no_compiler) when the module is in neither cache and no compiler is found (says which names were
// tried and how to install one), Error(compile_failed) with the compiler's messages, Error(cache_refused),
// Error(io_error). A cache that cannot be written is no error: the module is used and a warning logged.
std::shared_ptr<const Module> build(const Request& request);

// The compiler in use: path, kind and version; remembered under path, size, mtime and inode.
struct Compiler {
  std::string path;      // empty: none
  std::string version;   // first line of --version
  std::string identity;  // content hash
};
const Compiler& compiler();

// Where the last build of this thread came from, for benchmarks and tests.
enum class Origin { memory, disk, compiler };
Origin last_origin();

}  // namespace weft::jit
