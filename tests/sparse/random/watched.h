// Runs what may crash or hang, and goes on after it: a test says what did, and finds the smallest that does.
#pragma once

#include <functional>
#include <string>

namespace weft::sparse::random {

// "" where the call came back, else what ended it: "SIGSEGV", or "no end after 20 s". What it held is never released.
std::string watched(const std::function<void()>& call, int seconds = 20);

}  // namespace weft::sparse::random
