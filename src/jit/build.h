// Text -> key -> disk or compiler -> bytes. Who asks loads them (jit/host/module.h on the CPU).
//
//   jit::Request request{.name = "leaf softcap fp32 avx2", .text = text, .target = jit::host_target(Isa::avx2)};
//   const jit::Built built = jit::build(request);
//
// Key = SHA-256 of text, flags, target and the compiler's identity. Thread- and process-safe: one builder per key.
#pragma once

#include <string>

#include "jit/toolchain.h"
#include "weft/jit.h"

namespace weft::jit {

// Where code came from; `memory` is said by those who keep what they have loaded.
enum class Origin { memory, disk, compiler };
std::string_view to_string(Origin origin);

struct Built {
  std::string bytes;
  std::string key;  // in the cache
  Origin origin = Origin::compiler;
};

// Throws Error(no_compiler) when the code is not in the cache and no compiler is found (says which were tried and how
// to install one), Error(compile_failed) with the compiler's messages, Error(cache_refused), Error(io_error). A cache
// that cannot be written is no error: the code is used and a warning logged.
Built build(const Request& request);

}  // namespace weft::jit
