#include "tests/support/temp_folder.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <stdexcept>

namespace weft::testing {
namespace {

void remove_all(const std::string& path) {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

// The folders that are there, and which process made each. It is made before the first, and so destroyed after the last
// that is static.
class Folders {
 public:
  static Folders& get() {
    static Folders folders;
    return folders;
  }
  ~Folders() {
    for (const auto& [path, owner] : owners_)
      if (owner == getpid()) remove_all(path);
  }
  void add(const std::string& path) {
    const std::lock_guard lock(mutex_);
    owners_.emplace(path, getpid());
  }
  void remove(const std::string& path) {
    const std::lock_guard lock(mutex_);
    if (owners_.at(path) == getpid()) remove_all(path);
    owners_.erase(path);
  }

 private:
  std::mutex mutex_;
  std::map<std::string, pid_t> owners_;
};

}  // namespace

TempFolder::TempFolder() {
  Folders& folders = Folders::get();
  std::string pattern = (std::filesystem::temp_directory_path() / "weft-test-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("cannot make a folder like " + pattern);
  path_ = pattern;
  folders.add(path_);
}
TempFolder::~TempFolder() { Folders::get().remove(path_); }

std::string TempFolder::write(std::string_view name, std::string_view bytes) const {
  std::ofstream out(path(name), std::ios::binary);
  out.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("cannot write " + path(name));
  return path(name);
}

}  // namespace weft::testing
