// Small pieces over the system's files. Failures are reported by errno, not thrown: the cache decides what they mean.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::jit {

// Owns a file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { reset(); }
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

// The whole file `name` below `folder` (AT_FDCWD allowed). Only a regular file that this user owns and no other may
// write is read, and no symbolic link at the end is followed; errno is EPERM otherwise.
std::optional<std::string> read_file(int folder, const std::string& name);
bool write_all(int fd, std::string_view bytes);
// Writes and fsyncs `temporary`, then renames it to `name`, in folders that may differ but share a file system.
bool publish_file(int temporary_folder, const std::string& temporary, int folder, const std::string& name,
                  std::string_view bytes);
// Names in a folder, sorted, without "." and "..".
std::vector<std::string> list_names(int folder);
// Removes a file, or a folder with all that is below it; symbolic links are removed, not followed.
void remove_tree(int folder, const std::string& name);
// mkdir -p; new folders get mode 0700.
bool make_folders(const std::string& path);

}  // namespace weft::jit
