#include "cli/packed_file.h"

#include <filesystem>

#include "base/check.h"

#if defined(WEFT_HAVE_ZLIB)
#include <zlib.h>
#else
#include <fstream>
#include <sstream>
#endif

namespace weft::cli {

std::string read_packed_file(const std::string& path) {
  std::error_code ignored;
  check(!std::filesystem::is_directory(path, ignored), ErrorCode::io_error, "'{}': is a folder; a file is expected",
        path);
#if defined(WEFT_HAVE_ZLIB)
  gzFile file = gzopen(path.c_str(), "rb");
  check(file != nullptr, ErrorCode::io_error, "'{}': cannot be opened; is the path right?", path);
  std::string text;
  std::string chunk(1 << 20, '\0');
  int read = 0;
  while ((read = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0)
    text.append(chunk, 0, static_cast<size_t>(read));
  const int closed = gzclose(file);
  check(read == 0 && closed == Z_OK, ErrorCode::invalid_file, "'{}': is damaged, or no file that can be read", path);
  return text;
#else
  check(!path.ends_with(".gz"), ErrorCode::unsupported,
        "'{}': required: zlib when weft is built; supported: the unpacked file (gunzip it first)", path);
  std::ifstream file(path, std::ios::binary);
  check(file.good(), ErrorCode::io_error, "'{}': cannot be opened; is the path right?", path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
#endif
}

}  // namespace weft::cli
