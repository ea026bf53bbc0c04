// Addresses of code as lines of sources.
#pragma once

#include <string>

namespace weft::simt {

// "tile/cuda/reduce.h:34, called at tests/simt/kernels/sum.h:20": the line of the kernel's text that lies at the return
// address, without the twins that it goes through.
const std::string& place(const void* return_address);
// The compiler may copy a call; its line stays the same.
inline bool same_place(const void* a, const void* b) { return a == b || place(a) == place(b); }

}  // namespace weft::simt
