#include "jit/host/compiler.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>

#include "base/check.h"
#include "base/env.h"
#include "base/hash.h"
#include "base/log.h"
#include "jit/host/process.h"

namespace weft::jit {
namespace {

constexpr std::string_view kRecordHead = "weft-compiler 1";
constexpr const char* kStamps = "stamps";

// A file as it was when its content was hashed.
struct Stamp {
  std::string path;
  int64_t size = 0, mtime_ns = 0;
  uint64_t inode = 0;
  friend bool operator==(const Stamp&, const Stamp&) = default;
};

std::optional<Stamp> stamp_of(const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return std::nullopt;
  return Stamp{path, status.st_size, int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec,
               status.st_ino};
}

struct KnownCompiler {
  Compiler compiler;
  std::vector<Stamp> files;  // the driver, then the compiler proper
  bool is_current() const {
    return std::all_of(files.begin(), files.end(), [](const Stamp& file) { return stamp_of(file.path) == file; });
  }
};

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

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string describe(const ProcessResult& result) {
  using End = ProcessResult::End;
  switch (result.end) {
    case End::not_started: return std::generic_category().message(result.code);
    case End::timed_out: return "it does not answer";
    case End::signalled: return fmt::format("it ends by signal {}", result.code);
    case End::exited: return fmt::format("it ends with status {} {}", result.code, first_line(result.errors));
  }
  return {};
}

// Asks the compiler for its version, its target and the program that does the work. Sets `why` when it is none.
std::optional<KnownCompiler> examine(const std::string& path, std::string& why) {
  KnownCompiler known;
  auto ask = [&](const char* question) -> std::optional<std::string> {
    const ProcessResult answer =
        run_process({.path = path, .arguments = {question}, .temp_dir = {}, .timeout = std::chrono::seconds{30}});
    if (!answer.ok()) {
      why = describe(answer);
      return std::nullopt;
    }
    return first_line(answer.output);
  };
  const auto version = ask("--version"), target = version ? ask("-dumpmachine") : std::nullopt;
  const auto worker = target ? ask("-print-prog-name=cc1plus") : std::nullopt;
  if (!worker) return std::nullopt;
#if defined(__x86_64__)
  constexpr std::string_view kTarget = "x86_64";
#else
  constexpr std::string_view kTarget = "aarch64";
#endif
  if (!target->starts_with(kTarget)) {
    why = "it makes code for " + *target;
    return std::nullopt;
  }
  Sha256 hash;
  hash.update(fmt::format("{}:{}{}:{}", version->size(), *version, target->size(), *target));
  for (const std::string& file : {path, *worker}) {
    // clang does the work in its driver's own libraries, which its version tells apart, and names no program.
    if (!file.starts_with('/')) continue;
    const auto stamp = stamp_of(file);
    if (!stamp || !add_content(hash, file)) {
      why = file + ": " + std::generic_category().message(errno);
      return std::nullopt;
    }
    known.files.push_back(*stamp);
  }
  known.compiler = {path, *version, hash.hex_digest()};
  return known;
}

std::string stamp_name(const std::string& path) { return sha256_hex(path).substr(0, 32); }

std::optional<KnownCompiler> remembered(const Cache* cache, const std::string& path) {
  if (cache == nullptr) return std::nullopt;
  const auto record = cache->read_file(kStamps, stamp_name(path));
  if (!record) return std::nullopt;
  auto known = from_record(*record, path);
  return known && known->is_current() ? known : std::nullopt;
}

std::optional<KnownCompiler> identify(const Cache* cache, const std::string& path, std::string& why) {
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

CompilerSearch find_compiler(const Cache* cache) {
  static std::mutex mutex;
  static std::list<KnownCompiler> all;  // grows by one when a compiler is replaced; never shrinks
  const auto wanted = env::compiler();
  constexpr const char* kRemedy = "install one with `apt-get install g++`, or name one in WEFT_CXX";
  if (wanted == "none") return {nullptr, "WEFT_CXX=none switches compiling off", kRemedy};
  std::vector<std::string> names = {"g++", "c++", "clang++"};
  if (wanted) names = {*wanted};
  const std::scoped_lock lock(mutex);
  std::string tried;
  for (const std::string& name : names) {
    std::string why = name.find('/') != name.npos ? "no such program" : "not on PATH";
    if (const auto path = env::find_program(name)) {
      for (auto known = all.rbegin(); known != all.rend(); ++known)
        if (known->compiler.path == *path && known->is_current()) return {&known->compiler};
      if (auto known = identify(cache, *path, why)) return {&all.emplace_back(std::move(*known)).compiler};
    }
    tried += fmt::format("{}{}{} ({})", tried.empty() ? "tried " : ", ", wanted ? "WEFT_CXX=" : "", name, why);
  }
  return {nullptr, tried, kRemedy};
}

const Compiler& host_compiler() {
  static const Compiler none;
  const auto cache = open_cache(true);
  const CompilerSearch search = find_compiler(cache ? &*cache : nullptr);
  return search.compiler != nullptr ? *search.compiler : none;
}

}  // namespace weft::jit
