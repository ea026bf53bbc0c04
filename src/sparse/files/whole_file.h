// Files that are read and written whole.
#pragma once

#include <string>
#include <string_view>

namespace weft::sparse {

// Throws Error(io_error).
std::string read_whole(const std::string& path);
// Beside the file first, then in its place: a reader sees the old content or all of the new one. Throws
// Error(io_error); then the old content is still there. What is no regular file, as a pipe, is written into.
void write_whole(const std::string& path, std::string_view content);

}  // namespace weft::sparse
