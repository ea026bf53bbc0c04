#include "jit/cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "jit/key.h"

namespace weft::jit {
namespace {

constexpr const char* kModules = "modules";
constexpr const char* kBuild = "build";

void require_private(int fd, const std::string& path) {
  struct stat status {};
  check(fstat(fd, &status) == 0, ErrorCode::io_error, "kernel cache '{}': {}", path,
        std::generic_category().message(errno));
  check(status.st_uid == geteuid(), ErrorCode::cache_refused,
        "kernel cache '{}' belongs to user {}, and this process runs as user {}: code in it could be anyone's; set "
        "WEFT_CACHE_DIR to a folder of your own",
        path, status.st_uid, geteuid());
  check((status.st_mode & (S_IWGRP | S_IWOTH)) == 0, ErrorCode::cache_refused,
        "kernel cache '{}' has mode {:04o}, so others may put code into it; allowed is a folder that only you may "
        "write: check what is in it, then chmod 0700, or set WEFT_CACHE_DIR to another",
        path, status.st_mode & 07777);
}

// Whether the open folder is still what its name below `parent` says, and not one that was removed meanwhile.
bool same_folder(int fd, int parent, const std::string& name) {
  struct stat opened {
  }, named{};
  return fstat(fd, &opened) == 0 && fstatat(parent, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

}  // namespace

BuildFolder::~BuildFolder() {
  if (!folder_) return;
  for (const std::string& item : list_names(folder_.get())) remove_tree(folder_.get(), item);
  // Removed while the lock is held: whoever waits for it sees that the folder is gone, and makes a new one.
  unlinkat(parent_.get(), name_.c_str(), AT_REMOVEDIR);
}

bool BuildFolder::is_there() const { return same_folder(folder_.get(), AT_FDCWD, path_); }

std::optional<Cache> Cache::open(const std::string& folder, bool create) {
  Fd root(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root && errno == ENOENT && create && make_folders(folder))
    root.reset(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root) return std::nullopt;
  require_private(root.get(), folder);
  return Cache(std::move(root), folder);
}

bool Cache::is_same(const Cache& other) const {
  struct stat a {
  }, b{};
  return fstat(root_.get(), &a) == 0 && fstat(other.root_.get(), &b) == 0 && a.st_ino == b.st_ino &&
         a.st_dev == b.st_dev;
}

Fd Cache::open_subfolder(const std::string& name, bool create) const {
  constexpr int kFlags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  Fd subfolder(openat(root_.get(), name.c_str(), kFlags));
  if (!subfolder && errno == ENOENT && create && (mkdirat(root_.get(), name.c_str(), 0700) == 0 || errno == EEXIST))
    subfolder.reset(openat(root_.get(), name.c_str(), kFlags));
  if (subfolder) require_private(subfolder.get(), folder_ + "/" + name);
  return subfolder;
}

Cache::Read Cache::read(const std::string& key) const {
  Read result;
  const auto file = read_file(kModules, key);
  if (!file) {
    result.broken = errno != ENOENT;
    return result;
  }
  result.bytes = file->size();
  result.stored = decode(*file, key);
  result.broken = !result.stored;
  return result;
}

void Cache::remove(const std::string& key) const {
  if (const Fd modules = open_subfolder(kModules, false)) remove_tree(modules.get(), key);
}

std::vector<std::string> Cache::keys() const {
  std::vector<std::string> result;
  if (const Fd modules = open_subfolder(kModules, false))
    for (std::string& name : list_names(modules.get()))
      if (is_key(name)) result.push_back(std::move(name));
  return result;
}

int64_t Cache::modified_s(const std::string& key) const {
  struct stat status {};
  return fstatat(root_.get(), (std::string(kModules) + "/" + key).c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0
             ? status.st_mtime
             : 0;
}

std::optional<BuildFolder> Cache::lock(const std::string& name) const {
  Fd builds = open_subfolder(kBuild, true);
  if (!builds) return std::nullopt;
  for (;;) {
    if (mkdirat(builds.get(), name.c_str(), 0700) != 0 && errno != EEXIST) return std::nullopt;
    Fd folder(openat(builds.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder && errno == ENOENT) continue;
    if (!folder) return std::nullopt;
    while (flock(folder.get(), LOCK_EX) != 0)
      if (errno != EINTR) return std::nullopt;
    if (!same_folder(folder.get(), builds.get(), name)) continue;
    for (const std::string& item : list_names(folder.get())) remove_tree(folder.get(), item);
    return BuildFolder(std::move(builds), std::move(folder), name, folder_ + "/" + kBuild + "/" + name);
  }
}

void Cache::remove_stale_builds() const {
  const Fd builds = open_subfolder(kBuild, false);
  if (!builds) return;
  for (const std::string& name : list_names(builds.get())) {
    const Fd folder(openat(builds.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!folder || (flock(folder.get(), LOCK_EX | LOCK_NB) == 0 && same_folder(folder.get(), builds.get(), name)))
      remove_tree(builds.get(), name);
  }
}

bool Cache::has_room() const {
  constexpr uint64_t kNeeded = uint64_t{4} << 20;
  struct statvfs status {};
  if (fstatvfs(root_.get(), &status) != 0) return false;
  const bool has_inodes = status.f_files == 0 || status.f_favail >= 8;
  return has_inodes && uint64_t{status.f_bavail} * status.f_frsize >= kNeeded;
}

bool Cache::publish(const BuildFolder& build, const std::string& subfolder, const std::string& name,
                    std::string_view bytes) const {
  const Fd target = open_subfolder(subfolder, true);
  return target && publish_file(build.fd(), "publish-" + name, target.get(), name, bytes);
}

std::optional<std::string> Cache::read_file(const std::string& subfolder, const std::string& name) const {
  const Fd folder = open_subfolder(subfolder, false);
  if (!folder) return std::nullopt;
  return jit::read_file(folder.get(), name);
}

std::vector<std::string> Cache::identities() const {
  std::vector<std::string> result;
  if (const Fd compilers = open_subfolder("compilers", false))
    for (std::string& name : list_names(compilers.get()))
      if (is_key(name)) result.push_back(std::move(name));
  return result;
}

std::string cache_dir() {
  if (auto folder = env::cache_dir()) return *folder;
  const auto folder = env::user_cache_dir();
  check(folder.has_value(), ErrorCode::io_error,
        "there is no place for the kernel cache: HOME and XDG_CACHE_HOME are not set; set WEFT_CACHE_DIR");
  return *folder + "/weft/kernels";
}

std::optional<Cache> open_cache(bool create) {
  std::string folder;
  try {
    folder = cache_dir();
  } catch (const Error& error) {
    if (error.code() != ErrorCode::io_error) throw;
    log::warn("{}", error.what());
    return std::nullopt;
  }
  auto cache = Cache::open(folder, create);
  if (!cache && (create || errno != ENOENT))
    log::warn("kernel cache '{}' cannot be used: {}", folder, std::generic_category().message(errno));
  return cache;
}

}  // namespace weft::jit
