#include "base/env.h"

#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <system_error>

#include "base/check.h"

namespace weft::env {
namespace {

std::optional<std::string> get(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

[[noreturn]] void refuse(std::string_view name, std::string_view value);

}  // namespace

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

std::optional<std::vector<std::string>> cuda_libs() {
  const auto value = get("WEFT_CUDA_LIBS");
  if (!value) return std::nullopt;
  std::vector<std::string> folders;
  if (*value == "none") return folders;
  std::istringstream parts(*value);
  for (std::string folder; std::getline(parts, folder, ':');) {
    if (!folder.starts_with('/')) refuse("WEFT_CUDA_LIBS", *value);
    folders.push_back(folder);
  }
  return folders;
}

bool check_masks() {
  const auto value = get("WEFT_CHECK");
  if (!value || *value == "0") return false;
  if (*value == "1") return true;
  refuse("WEFT_CHECK", *value);
}

std::optional<std::string> record_dir() { return get("WEFT_RECORD"); }
std::optional<std::string> trace_file() { return get("WEFT_TRACE"); }

int step_limit_ms() {
  const auto value = get("WEFT_STEP_LIMIT_MS");
  if (!value) return 2000;
  int number = 0;
  const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), number);
  if (error != std::errc() || end != value->data() + value->size() || number < 0 || number > 600'000)
    refuse("WEFT_STEP_LIMIT_MS", *value);
  return number;
}

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

std::optional<std::string> user_state_dir() {
  if (auto folder = get("XDG_STATE_HOME"); folder && folder->front() == '/') return folder;
  if (const auto home = get("HOME"); home && home->front() == '/') return *home + "/.local/state";
  return std::nullopt;
}

bool terminal_moves_cursor() { return get("TERM").value_or("dumb") != "dumb"; }

std::string temp_dir() {
  const auto folder = get("TMPDIR");
  return folder && folder->front() == '/' ? *folder : "/tmp";
}

std::optional<std::string> find_program(std::string_view name) {
  const auto is_program = [](const std::string& path) {
    std::error_code ignored;
    return std::filesystem::is_regular_file(path, ignored) && access(path.c_str(), X_OK) == 0;
  };
  if (name.find('/') != name.npos)
    return name.front() == '/' && is_program(std::string(name)) ? std::optional<std::string>(name) : std::nullopt;
  for (const std::string& folder : search_folders())
    if (std::string candidate = folder + "/" + std::string(name); !name.empty() && is_program(candidate))
      return candidate;
  return std::nullopt;
}

namespace {

std::vector<std::string> absolute_folders(const std::string& list) {
  std::istringstream parts(list);
  std::vector<std::string> folders;
  for (std::string folder; std::getline(parts, folder, ':');)
    if (folder.starts_with('/')) folders.push_back(folder);
  return folders;
}

}  // namespace

std::vector<std::string> search_folders() {
  return absolute_folders(get("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
}

std::vector<std::string> loader_folders() { return absolute_folders(get("LD_LIBRARY_PATH").value_or("")); }

std::vector<std::string> cuda_toolkits() {
  std::vector<std::string> folders;
  for (const char* name : {"CUDA_HOME", "CUDA_PATH"})
    if (const auto folder = get(name); folder && folder->starts_with('/')) folders.push_back(*folder);
  return folders;
}

namespace {

// What is there under that name, or above it where nothing is yet, is a folder.
bool can_be_folder(std::filesystem::path path) {
  std::error_code ignored;
  while (path.has_relative_path() && !std::filesystem::exists(path, ignored)) path = path.parent_path();
  return path.empty() || std::filesystem::is_directory(path, ignored);
}

bool can_be_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (path.filename().empty() || std::filesystem::is_directory(path, ignored)) return false;
  return path.parent_path().empty() || std::filesystem::is_directory(path.parent_path(), ignored);
}

void check_isa() {
  const auto value = isa();
  for (const std::string_view name : {"plain", "avx2", "avx512", "avx512_bf16"})
    if (!value || *value == name) return;
  refuse("WEFT_ISA", *value);
}

void check_cache_dir() {
  if (const auto value = cache_dir(); value && !can_be_folder(*value)) refuse("WEFT_CACHE_DIR", *value);
}

void check_compiler() {
  if (const auto value = compiler(); value && *value != "none" && !find_program(*value)) refuse("WEFT_CXX", *value);
}

void check_cuda_libs() {
  std::error_code ignored;
  for (const std::string& folder : cuda_libs().value_or(std::vector<std::string>{}))
    if (!std::filesystem::is_directory(folder, ignored)) refuse("WEFT_CUDA_LIBS", *get("WEFT_CUDA_LIBS"));
}

void check_record_dir() {
  if (const auto value = record_dir(); value && !can_be_folder(*value)) refuse("WEFT_RECORD", *value);
}

void check_trace_file() {
  if (const auto value = trace_file(); value && !can_be_file(*value)) refuse("WEFT_TRACE", *value);
}

constexpr Variable kVariables[] = {
    {"WEFT_ISA", "plain|avx2|avx512|avx512_bf16", "uses a lower instruction set than the machine has", check_isa},
    {"WEFT_NUM_THREADS", "1..1024", "workers of the shared team; default: what affinity and cgroup quota allow",
     [] { num_threads(); }},
    {"WEFT_CACHE_DIR", "an absolute path", "folder of the kernel cache; default: weft/ in the user's cache folder",
     check_cache_dir},
    {"WEFT_CXX", "a C++ compiler, or none", "compiles attention variants; default: g++, c++ or clang++ on PATH",
     check_compiler},
    {"WEFT_CUDA_LIBS", "absolute folders with ':' between them, or none",
     "where NVIDIA's driver and NVRTC are looked for first; none: there is no CUDA", check_cuda_libs},
    {"WEFT_CHECK", "0|1", "evaluates every mask everywhere, so that no tile skips one by accident",
     [] { check_masks(); }},
    {"WEFT_RECORD", "a folder", "writes what every attention call is given and gives, for weft replay",
     check_record_dir},
    {"WEFT_TRACE", "a file", "writes when each work item began and ended, for Perfetto or chrome://tracing",
     check_trace_file},
    {"WEFT_STEP_LIMIT_MS", "0..600000",
     "how long a wait inside of a fused step on a card may take; 0: for ever, for tools that slow a card; default: "
     "2000",
     [] { step_limit_ms(); }},
    {"WEFT_LOG", "error|warn|info|debug", "what is logged; default: warn", [] { log_level(); }},
};

[[noreturn]] void refuse(std::string_view name, std::string_view value) {
  for (const Variable& variable : kVariables)
    if (variable.name == name)
      fail(ErrorCode::invalid_argument, "environment variable {} = '{}'; allowed: {}; unset it for the default", name,
           value, variable.values);
  throw InternalError("an environment variable is missing from the table");
}

}  // namespace

std::span<const Variable> variables() { return kVariables; }

}  // namespace weft::env
