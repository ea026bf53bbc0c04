#include "jit/build.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>
#include <shared_mutex>
#include <system_error>
#include <unordered_map>

#include "base/check.h"
#include "base/env.h"
#include "base/log.h"
#include "jit/cache.h"
#include "jit/compile.h"
#include "jit/compiler.h"
#include "jit/key.h"

namespace weft::jit {
namespace {

thread_local Origin t_last_origin = Origin::memory;

// A request that was made in this process. `building` is held by the thread that makes its module.
struct Slot {
  std::string text;
  std::vector<std::string> flags;
  Isa isa;
  std::mutex building;
  std::shared_ptr<const Module> module;
  bool is_of(const Request& request) const {
    return isa == request.isa && text == request.text && flags == request.flags;
  }
};

// Modules of this process. Never removed: a kernel may hold the address of their code.
class Memory {
 public:
  // The module, or null.
  std::shared_ptr<const Module> find(const Request& request) {
    const std::shared_lock lock(mutex_);
    const Slot* slot = find_slot(request, memory_hash(request));
    return slot != nullptr ? slot->module : nullptr;
  }
  Slot& slot(const Request& request) {
    const std::unique_lock lock(mutex_);
    const uint64_t hash = memory_hash(request);
    if (Slot* slot = find_slot(request, hash)) return *slot;
    auto slot = std::make_unique<Slot>();
    slot->text = request.text;
    slot->flags = request.flags;
    slot->isa = request.isa;
    return *slots_.emplace(hash, std::move(slot))->second;
  }
  void set(Slot& slot, std::shared_ptr<const Module> module) {
    const std::unique_lock lock(mutex_);
    slot.module = std::move(module);
  }

 private:
  Slot* find_slot(const Request& request, uint64_t hash) {
    const auto [begin, end] = slots_.equal_range(hash);
    for (auto item = begin; item != end; ++item)
      if (item->second->is_of(request)) return item->second.get();
    return nullptr;
  }
  std::shared_mutex mutex_;
  std::unordered_multimap<uint64_t, std::unique_ptr<Slot>> slots_;
};

Memory& memory() {
  static Memory* instance = new Memory;  // outlives every static kernel
  return *instance;
}

std::shared_ptr<const Module> load(const std::string& module, const Request& request) {
  return Module::load(module, request.name);
}

// The module from the cache's file, if it is there and sound. A broken file is removed; `broken` tells.
std::shared_ptr<const Module> from_disk(const Cache& cache, const std::string& key, const Request& request,
                                        bool& broken) {
  const Cache::Read read = cache.read(key);
  if (read.broken) {
    broken = true;
    log::warn("kernel cache '{}': entry {} ('{}') is damaged and was removed", cache.folder(), key.substr(0, 16),
              request.name);
    cache.remove(key);
  }
  if (!read.stored || read.stored->text != request.text) return nullptr;
  return load(read.stored->module, request);
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
  return compile(compiler, request, id, folder->path());
}

// In the cache, if it can be written and goes on being there.
std::string compile_text(const std::optional<Cache>& cache, const std::optional<BuildFolder>& lock,
                         const Compiler& compiler, const std::string& key, const RequestId& id,
                         const Request& request) {
  if (lock && cache->has_room()) {
    try {
      return compile(compiler, request, id, lock->path());
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

std::shared_ptr<const Module> from_compiler(const std::optional<Cache>& cache, const Compiler& compiler,
                                            const std::string& key, const RequestId& id, const Request& request) {
  const std::optional<BuildFolder> lock = cache ? cache->lock(key) : std::nullopt;
  if (lock) {
    bool broken = false;
    if (auto module = from_disk(*cache, key, request, broken)) {  // another process was first
      t_last_origin = Origin::disk;
      return module;
    }
    cache->remove_stale_builds();
  } else if (cache) {
    log::warn("kernel cache '{}' cannot be written ({}): '{}' will be compiled again next time", cache->folder(),
              std::generic_category().message(errno), request.name);
  }
  const std::string code = compile_text(cache, lock, compiler, key, id, request);
  auto module = load(code, request);
  std::string flags;
  for (const std::string& flag : id.flags) flags += flag + "\n";
  if (lock)
    store(*cache, *lock,
          {key, request.name, compiler.version, compiler.identity, id.target, flags, request.text, code});
  t_last_origin = Origin::compiler;
  return module;
}

std::shared_ptr<const Module> make(const Request& request) {
  const RequestId id = request_id(request);
  const std::optional<Cache> cache = open_cache(true);
  const CompilerSearch search = find_compiler(cache ? &*cache : nullptr);
  std::vector<std::string> identities;
  if (search.compiler != nullptr)
    identities = {search.compiler->identity};
  else if (cache)
    identities = cache->identities();  // a module made by any of them is the module asked for
  bool broken = false;
  for (const std::string& identity : identities)
    if (cache)
      if (auto module = from_disk(*cache, entry_key(id, identity), request, broken)) {
        t_last_origin = Origin::disk;
        return module;
      }
  check(search.compiler != nullptr, ErrorCode::no_compiler,
        "'{}' must be compiled{} and no C++ compiler is there: {}; install one with `apt-get install g++`, name one in "
        "WEFT_CXX, or bring its module from elsewhere with `weft jit export`",
        request.name, broken ? ", for its module in the kernel cache was damaged," : "", search.tried);
  return from_compiler(cache, *search.compiler, entry_key(id, search.compiler->identity), id, request);
}

}  // namespace

std::shared_ptr<const Module> build(const Request& request) {
  if (auto module = memory().find(request)) {
    t_last_origin = Origin::memory;
    return module;
  }
  Slot& slot = memory().slot(request);
  const std::scoped_lock lock(slot.building);
  if (auto module = memory().find(request)) {  // another thread was first
    t_last_origin = Origin::memory;
    return module;
  }
  auto module = make(request);
  memory().set(slot, module);
  return module;
}

Origin last_origin() { return t_last_origin; }

}  // namespace weft::jit
