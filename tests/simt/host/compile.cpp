#include "tests/simt/host/compile.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include "base/check.h"
#include "base/hash.h"
#include "base/once_map.h"

namespace weft::simt {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = WEFT_SOURCE_DIR, kCache = WEFT_SIMT_CACHE;

std::string read_file(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Breakage& breakage() {
  static Breakage instance;
  return instance;
}

// A folder that stands before the kernels' own on the include path.
fs::path folder_of_broken() {
  const Breakage& what = breakage();
  const fs::path of_product = kRoot / "src" / what.file;
  std::string text = read_file(fs::exists(of_product) ? of_product : kRoot / what.file);
  const size_t at = text.find(what.from);
  ensure(at != text.npos && text.find(what.from, at + 1) == text.npos, "'{}' is not once in {}", what.from, what.file);
  text.replace(at, what.from.size(), what.to);
  const fs::path folder = kCache / fmt::format("broken.{}", getpid());
  fs::remove_all(folder);
  fs::create_directories((folder / what.file).parent_path());
  std::ofstream(folder / what.file) << text;
  return folder;
}

const std::string& content_of_headers() {
  static const std::string content = [] {
    std::string all;
    for (const std::string& header : headers_of_machine()) all += read_file(header);
    return all;
  }();
  return content;
}

struct Module {
  void* handle = nullptr;
  std::string error;
};

// False, and the compiler's first error, where the source does not become NAME.so. Other processes may make it too.
bool make(const std::string& name, const std::string& source, std::string& error) {
  fs::create_directories(kCache);
  const std::string own = fmt::format("{}.{}", name, getpid());
  std::ofstream(own + ".cpp") << source;
  const std::string broken = breakage().file.empty() ? "" : "-I" + folder_of_broken().string();
  const std::string command = fmt::format(
      "{0} -std=c++20 -O1 -g1 -fPIC -fsanitize=thread -fno-optimize-sibling-calls -ffp-contract=off "
      "-ftrivial-auto-var-init=pattern -w {3} -I{1}/tests/simt/twins -I{1}/src -I{1} -c {2}.cpp -o {2}.o "
      "2> {2}.errors && {0} -shared {2}.o -o {2}.so 2>> {2}.errors",
      WEFT_TEST_CXX, kRoot.string(), own, broken);
  const bool compiles = std::system(command.c_str()) == 0;
  std::ifstream errors(own + ".errors");
  for (std::string line; !compiles && error.empty() && std::getline(errors, line);)
    if (const size_t at = line.find("error: "); at != line.npos) error = line.substr(at);
  if (compiles) fs::rename(own + ".so", name + ".so");
  for (const char* rest : {".o", ".cpp", ".errors"}) fs::remove(own + rest);
  return compiles;
}

}  // namespace

std::vector<std::string> headers_of_machine() {
  std::vector<std::string> headers;
  for (const char* folder : {"machine", "sparse", "twins"})
    for (const auto& file : fs::recursive_directory_iterator(kRoot / "tests/simt" / folder))
      if (file.path().extension() == ".h") headers.push_back(file.path().string());
  std::sort(headers.begin(), headers.end());
  return headers;
}

void* compile(const std::string& source, std::string_view read, std::string& error) {
  const Breakage& broken = breakage();
  Sha256 hash;
  hash.update(source).update(read).update(WEFT_TEST_CXX).update(content_of_headers());
  hash.update(broken.file + broken.from + broken.to);
  const std::string name = (kCache / hash.hex_digest()).string();
  static auto* modules = new OnceMap<std::string, Module>;
  const Module& module = modules->get(std::hash<std::string>()(name), name, [&] {
    Module made;
    if (!fs::exists(name + ".so") && !make(name, source, made.error)) return made;
    made.handle = dlopen((name + ".so").c_str(), RTLD_NOW | RTLD_LOCAL);
    ensure(made.handle != nullptr, "{}", made.handle == nullptr ? dlerror() : "");
    return made;
  });
  error = module.error;
  return module.handle;
}

void break_kernels(const Breakage& what) { breakage() = what; }

}  // namespace weft::simt
