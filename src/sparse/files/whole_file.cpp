#include "sparse/files/whole_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/check.h"

namespace weft::sparse {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { close_now(); }
  int number() const { return number_; }
  bool close_now() {
    const int closed = number_ < 0 ? 0 : close(number_);
    number_ = -1;
    return closed == 0;
  }

 private:
  int number_;
};

bool write_all(int file, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = write(file, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    content.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

// A device or a pipe: a file in its place would end it.
bool is_special(const std::string& path) {
  struct stat found {};
  return stat(path.c_str(), &found) == 0 && !S_ISREG(found.st_mode);
}

void write_into(const std::string& path, std::string_view content) {
  Descriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  check(file.number() >= 0 && write_all(file.number(), content) && file.close_now(), ErrorCode::io_error,
        "'{}': cannot be written: {}", path, std::strerror(errno));
}

}  // namespace

std::string read_whole(const std::string& path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check(file.number() >= 0, ErrorCode::io_error, "'{}': cannot be opened: {}", path, std::strerror(errno));
  std::string text, chunk(1 << 20, '\0');
  for (;;) {
    const ssize_t count = read(file.number(), chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    check(count >= 0, ErrorCode::io_error, "'{}': cannot be read: {}", path, std::strerror(errno));
    if (count == 0) return text;
    text.append(chunk, 0, static_cast<size_t>(count));
  }
}

void write_whole(const std::string& path, std::string_view content) {
  if (is_special(path)) return write_into(path, content);
  static std::atomic<int> number{0};
  const std::string making = fmt::format("{}.{}.{}.making", path, getpid(), number++);
  Descriptor file(open(making.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  check(file.number() >= 0, ErrorCode::io_error, "'{}': cannot be written: {}", path, std::strerror(errno));
  const bool written = write_all(file.number(), content) && fsync(file.number()) == 0 && file.close_now() &&
                       std::rename(making.c_str(), path.c_str()) == 0;
  if (written) return;
  const int error = errno;
  unlink(making.c_str());
  fail(ErrorCode::io_error, "'{}': cannot be written: {}", path, std::strerror(error));
}

}  // namespace weft::sparse
