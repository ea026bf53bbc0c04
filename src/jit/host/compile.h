// One run of the compiler: text in, verified shared object out.
#pragma once

#include <chrono>
#include <string>

#include "jit/toolchain.h"

namespace weft::jit {

// As of Toolchain. Throws Error(compile_failed) for a text that does not compile, takes longer than
// the time allowed, or uses what it does not define; Error(io_error) when the system refuses something.
std::string compile_host(const Compiler& compiler, const Request& request, const std::vector<std::string>& flags,
                         const std::string& folder, std::chrono::milliseconds timeout = std::chrono::seconds{120});

}  // namespace weft::jit
