// The cache's folder, everything in it reached through one open descriptor:
//
//   modules/KEY       one file a module (jit/entry.h)
//   compilers/ID      the identities that made them, so that keys can be computed where no compiler is
//   stamps/           identities under path, size, mtime and inode of this machine's compilers
//   build/NAME/       a build in progress, locked by the process that builds; unlocked ones are left-overs
//
//   std::optional<Cache> cache = Cache::open(cache_dir(), /*create=*/true);
//   if (auto stored = cache->read(key).stored) ...
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jit/entry.h"
#include "jit/files.h"

namespace weft::jit {

// A folder build/NAME that this process holds until the end of the object, which removes it.
class BuildFolder {
 public:
  BuildFolder(Fd parent, Fd folder, std::string name, std::string path)
      : parent_(std::move(parent)), folder_(std::move(folder)), name_(std::move(name)), path_(std::move(path)) {}
  ~BuildFolder();
  BuildFolder(BuildFolder&&) = default;
  BuildFolder& operator=(BuildFolder&&) = delete;
  int fd() const { return folder_.get(); }
  const std::string& path() const { return path_; }
  bool is_there() const;  // nobody has removed it, or what it is in

 private:
  Fd parent_, folder_;
  std::string name_, path_;
};

class Cache {
 public:
  // Nothing (and errno) when the folder is not there or cannot be made. Throws Error(cache_refused) when it is not
  // this user's own.
  static std::optional<Cache> open(const std::string& folder, bool create);

  const std::string& folder() const { return folder_; }
  bool is_same(const Cache& other) const;

  struct Read {
    std::optional<StoredModule> stored;
    bool broken = false;  // there is a file, and it is not what was written
    uint64_t bytes = 0;
  };
  Read read(const std::string& key) const;
  void remove(const std::string& key) const;
  std::vector<std::string> keys() const;
  int64_t modified_s(const std::string& key) const;

  // Waits until no other process and no other thread holds the name, then takes it. Nothing (and errno) when the
  // folder cannot be written.
  std::optional<BuildFolder> lock(const std::string& name) const;
  // What killed builders left behind.
  void remove_stale_builds() const;
  // Whether a build fits; a full disk is noticed before the compiler trips over it.
  bool has_room() const;

  // Makes SUBFOLDER/NAME in one atomic step. False (and errno) when the folder cannot be written.
  bool publish(const BuildFolder& build, const std::string& subfolder, const std::string& name,
               std::string_view bytes) const;
  std::optional<std::string> read_file(const std::string& subfolder, const std::string& name) const;
  // Identities of compilers that made modules here.
  std::vector<std::string> identities() const;

 private:
  Cache(Fd root, std::string folder) : root_(std::move(root)), folder_(std::move(folder)) {}
  Fd open_subfolder(const std::string& name, bool create) const;

  Fd root_;
  std::string folder_;
};

// The cache of the environment; made when `create`. Nothing, with a warning, when there is none to be had.
std::optional<Cache> open_cache(bool create);

}  // namespace weft::jit
