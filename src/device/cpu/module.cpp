#include "device/cpu/module.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"

namespace weft {

std::shared_ptr<const Module> Module::load(std::string_view elf_bytes, const std::string& name) {
  const int fd = memfd_create(name.c_str(), MFD_CLOEXEC);
  check(fd >= 0, ErrorCode::io_error, "memfd_create for module '{}' failed", name);
  const auto written = write(fd, elf_bytes.data(), elf_bytes.size());
  void* handle = nullptr;
  if (written == static_cast<ssize_t>(elf_bytes.size()))
    handle = dlopen(fmt::format("/proc/self/fd/{}", fd).c_str(), RTLD_NOW | RTLD_LOCAL);
  close(fd);
  check(handle != nullptr, ErrorCode::io_error, "module '{}' does not load", name);
  return std::shared_ptr<const Module>(new Module(handle));
}

Module::~Module() { dlclose(handle_); }

void* Module::symbol(const char* name) const { return dlsym(handle_, name); }

}  // namespace weft
