#include "bench/own_cache.h"

#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/env.h"

namespace weft::bench {

OwnCache::OwnCache(const std::string& bench) {
  const std::filesystem::path parent = std::filesystem::temp_directory_path();
  folder_ = parent / "weft-bench-XXXXXX";
  check(mkdtemp(folder_.data()) != nullptr, ErrorCode::io_error, "{}: no folder can be made in '{}'; set TMPDIR", bench,
        parent.string());
  before_ = env::cache_dir().value_or("");
  setenv("WEFT_CACHE_DIR", folder_.c_str(), 1);
}

OwnCache::~OwnCache() {
  before_.empty() ? unsetenv("WEFT_CACHE_DIR") : setenv("WEFT_CACHE_DIR", before_.c_str(), 1);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

}  // namespace weft::bench
