#include "models/byte_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace weft {
namespace {

std::string system_message(int error) { return std::generic_category().message(error); }

class FileSource : public ByteSource {
 public:
  explicit FileSource(const std::string& path) : path_(path) {
    check(!path.empty(), ErrorCode::io_error, "model file: the path is empty; give the path of a GGUF file");
    check(path.find('\0') == std::string::npos, ErrorCode::io_error, "model file: the path holds a NUL character");
    // O_NONBLOCK: opening a FIFO must not wait for a writer. It means nothing for a regular file.
    do fd_ = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    while (fd_ < 0 && errno == EINTR);
    check(fd_ >= 0, ErrorCode::io_error, "{}: cannot open the model file: {}; check the path and its permissions", path,
          system_message(errno));
    try {
      opened_ = status();
      check(!S_ISDIR(opened_.st_mode), ErrorCode::io_error, "{}: is a directory; give the path of a GGUF file in it",
            path);
      check(S_ISREG(opened_.st_mode), ErrorCode::io_error,
            "{}: is no regular file; models are read at random, so copy it to a file first", path);
    } catch (...) {
      ::close(fd_);
      throw;
    }
  }
  ~FileSource() override { ::close(fd_); }
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;

  const std::string& name() const override { return path_; }
  uint64_t size() const override { return static_cast<uint64_t>(opened_.st_size); }

  void read(uint64_t offset, void* to, uint64_t bytes) const override {
    ensure(offset <= size() && bytes <= size() - offset, "read of bytes {} to {} of a file of {}", offset,
           offset + bytes, size());
    auto* out = static_cast<char*>(to);
    while (bytes > 0) {
      const size_t want = static_cast<size_t>(std::min<uint64_t>(bytes, uint64_t{1} << 30));
      const ssize_t got = ::pread(fd_, out, want, static_cast<off_t>(offset));
      if (got < 0 && errno == EINTR) continue;
      check(got >= 0, ErrorCode::io_error, "{}: cannot read {} bytes at byte {}: {}", path_, want, offset,
            system_message(errno));
      if (got == 0) refuse_change();
      out += got;
      offset += static_cast<uint64_t>(got);
      bytes -= static_cast<uint64_t>(got);
    }
    const struct stat now = status();
    if (now.st_size != opened_.st_size || now.st_mtim.tv_sec != opened_.st_mtim.tv_sec ||
        now.st_mtim.tv_nsec != opened_.st_mtim.tv_nsec)
      refuse_change();
  }

 private:
  struct stat status() const {
    struct stat result {};
    check(::fstat(fd_, &result) == 0, ErrorCode::io_error, "{}: cannot examine the model file: {}", path_,
          system_message(errno));
    return result;
  }
  [[noreturn]] void refuse_change() const {
    fail(ErrorCode::invalid_file, "{}: the file changed while it was open (it had {} bytes, now {}); open it again",
         path_, size(), status().st_size);
  }

  std::string path_;
  int fd_ = -1;
  struct stat opened_ {};
};

class MemorySource : public ByteSource {
 public:
  MemorySource(std::string name, std::string_view bytes) : name_(std::move(name)), bytes_(bytes) {}
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  void read(uint64_t offset, void* to, uint64_t bytes) const override {
    ensure(offset <= size() && bytes <= size() - offset, "read of bytes {} to {} of {}", offset, offset + bytes,
           size());
    if (bytes > 0) std::memcpy(to, bytes_.data() + offset, bytes);
  }

 private:
  std::string name_;
  std::string_view bytes_;
};

}  // namespace

std::unique_ptr<ByteSource> open_file(const std::string& path) { return std::make_unique<FileSource>(path); }

std::unique_ptr<ByteSource> open_memory(std::string name, std::string_view bytes) {
  return std::make_unique<MemorySource>(std::move(name), bytes);
}

}  // namespace weft
