#include "jit/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

namespace weft::jit {

void Fd::reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

std::optional<std::string> read_file(int folder, const std::string& name) {
  const Fd file(openat(folder, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status {};
  if (!file || fstat(file.get(), &status) != 0) return std::nullopt;
  if (!S_ISREG(status.st_mode) || status.st_uid != geteuid() || (status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
    errno = EPERM;
    return std::nullopt;
  }
  std::string bytes(static_cast<size_t>(status.st_size), '\0');
  size_t filled = 0;
  while (filled < bytes.size()) {
    const ssize_t count = read(file.get(), bytes.data() + filled, bytes.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return std::nullopt;
    if (count == 0) break;  // the file shrank: what is there is judged by its checksum
    filled += static_cast<size_t>(count);
  }
  bytes.resize(filled);
  return bytes;
}

bool write_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

bool publish_file(int temporary_folder, const std::string& temporary, int folder, const std::string& name,
                  std::string_view bytes) {
  Fd file(openat(temporary_folder, temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return false;
  if (write_all(file.get(), bytes) && fsync(file.get()) == 0 &&
      renameat(temporary_folder, temporary.c_str(), folder, name.c_str()) == 0)
    return true;
  const int error = errno;
  unlinkat(temporary_folder, temporary.c_str(), 0);
  errno = error;
  return false;
}

std::vector<std::string> list_names(int folder) {
  std::vector<std::string> names;
  const int fd = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return names;
  DIR* stream = fdopendir(fd);
  if (stream == nullptr) {
    close(fd);
    return names;
  }
  while (const dirent* item = readdir(stream)) {
    const std::string_view name = item->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  closedir(stream);
  std::sort(names.begin(), names.end());
  return names;
}

void remove_tree(int folder, const std::string& name) {
  if (unlinkat(folder, name.c_str(), 0) == 0 || errno == ENOENT) return;
  {
    const Fd inner(openat(folder, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!inner) return;
    for (const std::string& item : list_names(inner.get())) remove_tree(inner.get(), item);
  }
  unlinkat(folder, name.c_str(), AT_REMOVEDIR);
}

bool make_folders(const std::string& path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (mkdir(part.c_str(), 0700) != 0 && errno != EEXIST) {
      // A parent that may not be written can still be passed through.
      struct stat status {};
      const int error = errno;
      if (stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        errno = error;
        return false;
      }
    }
    if (end == std::string::npos) return true;
  }
}

}  // namespace weft::jit
