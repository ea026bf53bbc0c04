#include "base/env.h"

#include <charconv>
#include <cstdlib>

#include "base/check.h"

namespace weft::env {
namespace {

constexpr Variable kVariables[] = {
    {"WEFT_ISA", "plain|avx2|avx512|avx512_bf16", "uses a lower instruction set than the machine has"},
    {"WEFT_NUM_THREADS", "1..1024", "workers of the shared team; default: what affinity and cgroup quota allow"},
    {"WEFT_CACHE_DIR", "an absolute path", "folder of the kernel cache; default: weft/ in the user's cache folder"},
    {"WEFT_CXX", "a C++ compiler, or none", "compiles attention variants; default: g++, c++ or clang++ on PATH"},
    {"WEFT_CHECK", "0|1", "evaluates every mask everywhere, so that no tile skips one by accident"},
    {"WEFT_RECORD", "a folder", "writes what every attention call is given and gives, for weft replay"},
    {"WEFT_TRACE", "a file", "writes when each work item began and ended, for Perfetto or chrome://tracing"},
    {"WEFT_LOG", "error|warn|info|debug", "what is logged; default: warn"},
};

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

[[noreturn]] void refuse(std::string_view name, std::string_view value) {
  for (const Variable& variable : kVariables)
    if (variable.name == name)
      fail(ErrorCode::invalid_argument, "environment variable {} = '{}'; allowed are {}", name, value, variable.values);
  throw InternalError("an environment variable is missing from the table");
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

std::optional<std::string> isa() { return get("WEFT_ISA"); }

std::optional<int> num_threads() {
  const auto value = get("WEFT_NUM_THREADS");
  if (!value) return std::nullopt;
  int number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size() || number < 1 || number > 1024)
    refuse("WEFT_NUM_THREADS", *value);
  return number;
}

std::optional<std::string> cache_dir() {
  auto value = get("WEFT_CACHE_DIR");
  if (value && value->front() != '/') refuse("WEFT_CACHE_DIR", *value);
  return value;
}

std::optional<std::string> compiler() { return get("WEFT_CXX"); }

bool check_masks() {
  const auto value = get("WEFT_CHECK");
  if (!value || *value == "0") return false;
  if (*value == "1") return true;
  refuse("WEFT_CHECK", *value);
}

std::optional<std::string> record_dir() { return get("WEFT_RECORD"); }
std::optional<std::string> trace_file() { return get("WEFT_TRACE"); }

int log_level() {
  const auto value = get("WEFT_LOG");
  if (!value) return 1;
  constexpr std::string_view kLevels[] = {"error", "warn", "info", "debug"};
  for (int level = 0; level < 4; ++level)
    if (*value == kLevels[level]) return level;
  refuse("WEFT_LOG", *value);
}

std::optional<std::string> user_cache_dir() {
  if (auto folder = get("XDG_CACHE_HOME"); folder && folder->front() == '/') return folder;
  if (const auto home = get("HOME"); home && home->front() == '/') return *home + "/.cache";
  return std::nullopt;
}

std::string temp_dir() {
  const auto folder = get("TMPDIR");
  return folder && folder->front() == '/' ? *folder : "/tmp";
}

std::string search_path() { return get("PATH").value_or("/usr/local/bin:/usr/bin:/bin"); }

}  // namespace weft::env
