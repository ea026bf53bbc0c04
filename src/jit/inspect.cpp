#include <algorithm>
#include <cerrno>
#include <ctime>
#include <system_error>

#include "base/check.h"
#include "base/log.h"
#include "jit/cache.h"
#include "weft/jit.h"

namespace weft::jit {
namespace {

Entry describe(const Cache& cache, const std::string& key) {
  const Cache::Read read = cache.read(key);
  Entry entry;
  entry.key = key;
  entry.bytes = read.bytes;
  entry.modified_s = cache.modified_s(key);
  entry.intact = !read.broken;
  if (read.stored) {
    entry.name = read.stored->name;
    entry.compiler = read.stored->compiler;
  }
  return entry;
}

std::vector<Entry> describe_all(const std::optional<Cache>& cache) {
  std::vector<Entry> entries;
  if (cache)
    for (const std::string& key : cache->keys()) entries.push_back(describe(*cache, key));
  return entries;
}

// The one key that begins with `prefix`.
std::string find_key(const std::optional<Cache>& cache, std::string_view prefix) {
  check(prefix.size() >= 4, ErrorCode::invalid_argument,
        "key '{}' is too short; give at least 4 of its digits (`weft jit list` shows them)", prefix);
  std::vector<std::string> found;
  if (cache)
    for (const std::string& key : cache->keys())
      if (key.starts_with(prefix)) found.push_back(key);
  check(!found.empty(), ErrorCode::invalid_argument,
        "key '{}' is not in the kernel cache '{}'; `weft jit list` shows what is", prefix, cache_dir());
  check(found.size() == 1, ErrorCode::invalid_argument,
        "key '{}' is ambiguous: {} and {} begin with it; give more digits", prefix, found[0],
        found[found.size() > 1 ? 1 : 0]);
  return found[0];
}

StoredModule read_sound(const Cache& cache, const std::string& key) {
  Cache::Read read = cache.read(key);
  check(read.stored.has_value(), ErrorCode::invalid_file,
        "entry {} of the kernel cache '{}' is damaged; `weft jit verify` removes it, and it is compiled again when "
        "needed",
        key, cache.folder());
  return std::move(*read.stored);
}

}  // namespace

std::vector<Entry> list() {
  std::vector<Entry> entries = describe_all(open_cache(false));
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.modified_s > b.modified_s; });
  return entries;
}

std::string source(std::string_view key) {
  const auto cache = open_cache(false);
  return read_sound(*cache, find_key(cache, key)).text;
}

Entry find(std::string_view key) {
  const auto cache = open_cache(false);
  return describe(*cache, find_key(cache, key));
}

std::string object(std::string_view key) {
  const auto cache = open_cache(false);
  return read_sound(*cache, find_key(cache, key)).module;
}

std::vector<Entry> verify() {
  const auto cache = open_cache(false);
  std::vector<Entry> removed = describe_all(cache);
  std::erase_if(removed, [](const Entry& entry) { return entry.intact; });
  for (const Entry& entry : removed) cache->remove(entry.key);
  if (cache) cache->remove_stale_builds();
  return removed;
}

std::vector<Entry> prune(const PruneOptions& options) {
  check(options.max_bytes >= -1, ErrorCode::invalid_argument, "max_bytes = {}; allowed are -1 (any size) and up",
        options.max_bytes);
  check(options.max_age_s >= -1, ErrorCode::invalid_argument, "max_age_s = {}; allowed are -1 (any age) and up",
        options.max_age_s);
  const auto cache = open_cache(false);
  std::vector<Entry> entries = describe_all(cache);
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.modified_s < b.modified_s; });
  uint64_t left = 0;
  for (const Entry& entry : entries) left += entry.bytes;
  const int64_t now = std::time(nullptr);
  std::vector<Entry> removed;
  for (const Entry& entry : entries) {
    const bool is_old = options.max_age_s >= 0 && now - entry.modified_s > options.max_age_s;
    const bool is_too_much = options.max_bytes >= 0 && left > static_cast<uint64_t>(options.max_bytes);
    if (!is_old && !is_too_much) continue;
    cache->remove(entry.key);
    left -= entry.bytes;
    removed.push_back(entry);
  }
  if (cache) cache->remove_stale_builds();
  return removed;
}

void export_to(const std::string& folder, const std::vector<std::string>& keys) {
  check(!folder.empty(), ErrorCode::invalid_argument, "export needs a folder, for example ./kernels");
  const auto cache = open_cache(false);
  std::vector<StoredModule> modules;
  for (const std::string& key : keys) {
    const std::string full = find_key(cache, key);
    modules.push_back(read_sound(*cache, full));
  }
  if (keys.empty() && cache) {
    for (const std::string& key : cache->keys()) {
      if (auto stored = cache->read(key).stored)
        modules.push_back(std::move(*stored));
      else
        log::warn("entry {} is damaged and was not exported", key);
    }
  }
  check(!modules.empty(), ErrorCode::invalid_argument, "the kernel cache '{}' has nothing to export", cache_dir());
  const auto target = Cache::open(folder, true);
  const auto refuse = [&] {
    fail(ErrorCode::io_error, "folder '{}' cannot be written: {}", folder, std::generic_category().message(errno));
  };
  if (!target) refuse();
  check(!target->is_same(*cache), ErrorCode::invalid_argument,
        "folder '{}' is the kernel cache itself; export to another", folder);
  const auto lock = target->lock("export");
  if (!lock) refuse();
  for (const StoredModule& stored : modules)
    if (!target->publish(*lock, "compilers", stored.identity, stored.compiler + "\n") ||
        !target->publish(*lock, "modules", stored.key, encode(stored)))
      refuse();
}

}  // namespace weft::jit
