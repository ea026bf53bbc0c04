#include "jit/identity.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <list>
#include <mutex>
#include <system_error>

#include "base/log.h"
#include "jit/cache.h"

namespace weft::jit {
namespace {

constexpr std::string_view kRecordHead = "weft-compiler 1";
constexpr const char* kStamps = "stamps";

std::optional<Stamp> stamp_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return Stamp{path, status.st_size, int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
               status.st_ino};
}

std::string_view next_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

template <class Number>
bool parse(std::string_view word, Number& number) {
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  return error == std::errc() && end == word.data() + word.size();
}

std::string to_record(const KnownCompiler& known) {
  std::string record(kRecordHead);
  for (const Stamp& file : known.files)
    record += fmt::format("\nfile {} {} {} {}", file.size, file.mtime_ns, file.inode, file.path);
  return record + fmt::format("\nversion {}\nidentity {}\n", known.compiler.version, known.compiler.identity);
}

std::optional<KnownCompiler> from_record(std::string_view record, const std::string& path) {
  KnownCompiler known;
  known.compiler.path = path;
  for (bool first = true; !record.empty(); first = false) {
    std::string_view line = record.substr(0, record.find('\n'));
    record.remove_prefix(std::min(line.size() + 1, record.size()));
    if (first) {
      if (line != kRecordHead) return std::nullopt;
      continue;
    }
    const std::string_view kind = next_word(line);
    if (kind == "file") {
      Stamp file;
      if (!parse(next_word(line), file.size) || !parse(next_word(line), file.mtime_ns) ||
          !parse(next_word(line), file.inode))
        return std::nullopt;
      file.path = line;
      known.files.push_back(std::move(file));
    } else if (kind == "version") {
      known.compiler.version = line;
    } else if (kind == "identity") {
      known.compiler.identity = line;
    }
  }
  if (known.files.empty() || known.files[0].path != path || known.compiler.identity.size() != 64) return std::nullopt;
  return known;
}

bool add_content(Sha256& hash, const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::string buffer(size_t{1} << 18, '\0');
  Sha256 content;
  for (;;) {
    const ssize_t count = read(file.get(), buffer.data(), buffer.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    if (count == 0) break;
    content.update({buffer.data(), static_cast<size_t>(count)});
  }
  hash.update(content.hex_digest());
  return true;
}

std::string stamp_name(const std::string& path) { return sha256_hex(path).substr(0, 32); }

std::optional<KnownCompiler> remembered(const Cache* cache, const std::string& path) {
  if (cache == nullptr) return std::nullopt;
  const auto record = cache->read_file(kStamps, stamp_name(path));
  if (!record) return std::nullopt;
  auto known = from_record(*record, path);
  return known && known->is_current() ? known : std::nullopt;
}

using Examine = std::optional<KnownCompiler> (*)(const std::string&, std::string&);

std::optional<KnownCompiler> find_out(const Cache* cache, const std::string& path, Examine examine, std::string& why) {
  if (auto known = remembered(cache, path)) return known;
  const std::string name = stamp_name(path);
  // Hashing is slow: of several processes that start together, one does it.
  const auto lock = cache != nullptr ? cache->lock("compiler-" + name) : std::nullopt;
  if (lock)
    if (auto known = remembered(cache, path)) return known;
  auto known = examine(path, why);
  if (known && lock && path.find('\n') == path.npos && !cache->publish(*lock, kStamps, name, to_record(*known)))
    log::info("the identity of {} cannot be remembered: {}", path, std::generic_category().message(errno));
  return known;
}

}  // namespace

bool KnownCompiler::is_current() const {
  return std::all_of(files.begin(), files.end(), [](const Stamp& file) { return stamp_of(file.path) == file; });
}

bool add_file(KnownCompiler& known, Sha256& hash, const std::string& path, std::string& why) {
  const auto stamp = stamp_of(path);
  if (!stamp || !add_content(hash, path)) {
    why = path + ": " + std::generic_category().message(errno);
    return false;
  }
  known.files.push_back(*stamp);
  return true;
}

const Compiler* identify(const Cache* cache, const std::string& path, Examine examine, std::string& why) {
  static std::mutex mutex;
  static std::list<KnownCompiler> all;  // grows by one when a compiler is replaced; never shrinks
  const std::scoped_lock lock(mutex);
  for (auto known = all.rbegin(); known != all.rend(); ++known)
    if (known->compiler.path == path && known->is_current()) return &known->compiler;
  auto known = find_out(cache, path, examine, why);
  return known ? &all.emplace_back(std::move(*known)).compiler : nullptr;
}

}  // namespace weft::jit
