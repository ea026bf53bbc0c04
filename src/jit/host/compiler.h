// Which compiler there is, and who it is: found on our own, known by its content.
#pragma once

#include <string>

#include "jit/cache.h"
#include "jit/toolchain.h"

namespace weft::jit {

// WEFT_CXX, or the first of g++, c++ and clang++ on PATH that runs. Hashing a compiler takes long, so its identity is
// remembered in this process and in the cache (null: not there) under path, size, mtime and inode of its files.
CompilerSearch find_compiler(const Cache* cache);

}  // namespace weft::jit
