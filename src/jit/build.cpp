#include "jit/build.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "jit/cache.h"
#include "jit/key.h"

namespace weft::jit {
namespace {

// The code from the cache's file, if it is there and sound. A broken file is removed; `broken` tells.
std::optional<Built> from_disk(const Cache& cache, const std::string& key, const Request& request, bool& broken) {
  Cache::Read read = cache.read(key);
  if (read.broken) {
    broken = true;
    log::warn("kernel cache '{}': entry {} ('{}') is damaged and was removed", cache.folder(), key.substr(0, 16),
              request.name);
    cache.remove(key);
  }
  if (!read.stored || read.stored->text != request.text) return std::nullopt;
  return Built{std::move(read.stored->module), key, Origin::disk};
}

// Where to compile when the cache is missing, read-only or full: a folder like it among the temporary files, whose own
// folder is the system's to make.
Cache open_scratch(const Request& request) {
  const std::string path = fmt::format("{}/weft-{}", env::temp_dir(), geteuid());
  const bool is_there = mkdir(path.c_str(), 0700) == 0 || errno == EEXIST;
  auto scratch = is_there ? Cache::open(path, false) : std::nullopt;
  const std::string why = std::generic_category().message(errno);
  const bool has_cache = env::cache_dir() || env::user_cache_dir();
  check(scratch.has_value(), ErrorCode::io_error,
        "there is no place to compile '{}': the kernel cache {} cannot be written, nor can '{}' among the temporary "
        "files ({}); set WEFT_CACHE_DIR or TMPDIR to a folder that is there and that you may write",
        request.name, has_cache ? "'" + cache_dir() + "'" : "of a user without HOME", path, why);
  return std::move(*scratch);
}

std::string compile_in_scratch(const Compiler& compiler, const std::string& key, const RequestId& id,
                               const Request& request) {
  const Cache scratch = open_scratch(request);
  const auto folder = scratch.lock(key);
  check(folder.has_value(), ErrorCode::io_error, "'{}' cannot be compiled in '{}' ({}); set TMPDIR elsewhere",
        request.name, scratch.folder(), std::generic_category().message(errno));
  scratch.remove_stale_builds();
  return request.target.toolchain->compile(compiler, request, id.flags, folder->path());
}

// In the cache, if it can be written and goes on being there.
std::string compile_text(const std::optional<Cache>& cache, const std::optional<BuildFolder>& lock,
                         const Compiler& compiler, const std::string& key, const RequestId& id,
                         const Request& request) {
  if (lock && cache->has_room()) {
    try {
      return request.target.toolchain->compile(compiler, request, id.flags, lock->path());
    } catch (const Error&) {
      if (lock->is_there()) throw;  // else the compiler speaks of the folder that it writes to, not of the text
    }
  }
  return compile_in_scratch(compiler, key, id, request);
}

void store(const Cache& cache, const BuildFolder& build, const StoredModule& stored) {
  // The identity first: an entry must never be there without the means to compute its key.
  const bool is_stored = (cache.read_file("compilers", stored.identity) ||
                          cache.publish(build, "compilers", stored.identity, stored.compiler + "\n")) &&
                         cache.publish(build, "modules", stored.key, encode(stored));
  if (!is_stored)
    log::warn("kernel cache '{}' cannot be written ({}): '{}' will be compiled again next time", cache.folder(),
              std::generic_category().message(errno), stored.name);
}

Built from_compiler(const std::optional<Cache>& cache, const Compiler& compiler, const std::string& key,
                    const RequestId& id, const Request& request) {
  const std::optional<BuildFolder> lock = cache ? cache->lock(key) : std::nullopt;
  if (lock) {
    bool broken = false;
    if (auto built = from_disk(*cache, key, request, broken)) return std::move(*built);  // another was first
    cache->remove_stale_builds();
  } else if (cache) {
    log::warn("kernel cache '{}' cannot be written ({}): '{}' will be compiled again next time", cache->folder(),
              std::generic_category().message(errno), request.name);
  }
  std::string code = compile_text(cache, lock, compiler, key, id, request);
  std::string flags;
  for (const std::string& flag : id.flags) flags += flag + "\n";
  if (lock)
    store(*cache, *lock,
          {key, request.name, compiler.version, compiler.identity, id.target, flags, request.text, code});
  return {std::move(code), key, Origin::compiler};
}

}  // namespace

std::string_view to_string(Origin origin) {
  switch (origin) {
    case Origin::memory: return "memory";
    case Origin::disk: return "disk";
    case Origin::compiler: return "compiler";
  }
  return "?";
}

Built build(const Request& request) {
  const RequestId id = request_id(request);
  const std::optional<Cache> cache = open_cache(true);
  const CompilerSearch search = request.target.toolchain->find(cache ? &*cache : nullptr);
  std::vector<std::string> identities;
  if (search.compiler != nullptr)
    identities = {search.compiler->identity};
  else if (cache)
    identities = cache->identities();  // a module made by any of them is the module asked for
  bool broken = false;
  for (const std::string& identity : identities)
    if (cache)
      if (auto built = from_disk(*cache, entry_key(id, identity), request, broken)) return std::move(*built);
  check(search.compiler != nullptr, ErrorCode::no_compiler,
        "'{}' must be compiled{} and no compiler is there: {}; {}, or bring its module from elsewhere with `weft jit "
        "export`",
        request.name, broken ? ", for its module in the kernel cache was damaged," : "", search.tried, search.remedy);
  return from_compiler(cache, *search.compiler, entry_key(id, search.compiler->identity), id, request);
}

}  // namespace weft::jit
