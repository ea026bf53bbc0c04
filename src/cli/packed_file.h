// Files that may be compressed by gzip.
#pragma once

#include <string>

namespace weft::cli {

// A whole file, unpacked. Throws Error(io_error), Error(invalid_file) for a damaged one, or Error(unsupported) for one
// whose name ends with .gz where zlib is missing.
std::string read_packed_file(const std::string& path);

}  // namespace weft::cli
