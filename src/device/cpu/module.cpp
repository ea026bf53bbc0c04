#include "device/cpu/module.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace weft {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

void write_all(int fd, std::string_view bytes, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    check(written > 0, ErrorCode::io_error, "module '{}': {} bytes cannot be written: {}", name, bytes.size(),
          std::strerror(errno));
    bytes.remove_prefix(static_cast<size_t>(written));
  }
}

// The dynamic linker takes a path that it has seen for the object it loaded then, and descriptors' numbers come
// back when they are closed. So each load spells the path in a way of its own: a counter's bits, as "/." and "/".
std::string path_of(int fd) {
  static std::atomic<uint64_t> counter{1};
  std::string path = "/proc/self/fd";
  for (uint64_t bits = counter.fetch_add(1, std::memory_order_relaxed); bits != 0; bits >>= 1)
    path += bits & 1 ? "/." : "/";
  return fmt::format("{}/{}", path, fd);
}

}  // namespace

std::shared_ptr<const Module> Module::open(const std::string& path, const std::string& name) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* reason = dlerror();
    fail(ErrorCode::io_error, "module '{}' cannot be loaded: {}", name, reason ? reason : "no reason given");
  }
  return std::shared_ptr<const Module>(new Module(handle));
}

std::shared_ptr<const Module> Module::load(std::string_view elf_bytes, const std::string& name) {
  // The name only shows in /proc/self/maps, and is limited there.
  const FileDescriptor fd(memfd_create(name.substr(0, 200).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0 || access(fmt::format("/proc/self/fd/{}", fd.get()).c_str(), R_OK) != 0)
    return load_from_file(elf_bytes, name);
  write_all(fd.get(), elf_bytes, name);
  check(fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) == 0,
        ErrorCode::io_error, "module '{}': the memory file cannot be sealed: {}", name, std::strerror(errno));
  return open(path_of(fd.get()), name);
}

std::shared_ptr<const Module> Module::load_from_file(std::string_view elf_bytes, const std::string& name) {
  std::string path = "/tmp/weft-module-XXXXXX";
  const FileDescriptor fd(mkostemp(path.data(), O_CLOEXEC));
  check(fd.get() >= 0, ErrorCode::io_error,
        "module '{}': a file in /tmp cannot be made: {}; mount /proc or make /tmp writable", name,
        std::strerror(errno));
  struct Remove {
    const std::string& path;
    ~Remove() { unlink(path.c_str()); }
  } remove{path};
  write_all(fd.get(), elf_bytes, name);
  return open(path, name);
}

Module::~Module() { dlclose(handle_); }

void* Module::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace weft
