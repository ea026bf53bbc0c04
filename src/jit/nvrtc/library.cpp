#include "jit/nvrtc/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <system_error>

#include "device/cuda/folders.h"

namespace weft::jit {
namespace {

namespace fs = std::filesystem;
constexpr std::string_view kName = "libnvrtc.so.", kBuiltins = "libnvrtc-builtins.so.";

std::optional<int> major_of(std::string_view name) {
  if (!name.starts_with(kName)) return std::nullopt;
  name.remove_prefix(kName.size());
  int major = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), major);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(major) : std::nullopt;
}

template <class Function>
bool resolve(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  return function != nullptr;
}

std::unique_ptr<const Nvrtc> open(const std::string& path, std::string& why) {
  // NVRTC asks the loader for its builtins by name alone, and finds those that are loaded already.
  if (const std::string builtins = nvrtc_file(path).builtins; !builtins.empty())
    dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* error = dlerror();
    why = error != nullptr ? error : "it cannot be loaded";
    return nullptr;
  }
  auto nvrtc = std::make_unique<Nvrtc>();
#define WEFT_RESOLVE(name)                     \
  if (!resolve(library, #name, nvrtc->name)) { \
    why = "it has no function " #name;         \
    return nullptr;                            \
  }
  WEFT_RESOLVE(nvrtcGetErrorString)
  WEFT_RESOLVE(nvrtcVersion)
  WEFT_RESOLVE(nvrtcCreateProgram)
  WEFT_RESOLVE(nvrtcDestroyProgram)
  WEFT_RESOLVE(nvrtcCompileProgram)
  WEFT_RESOLVE(nvrtcGetProgramLogSize)
  WEFT_RESOLVE(nvrtcGetProgramLog)
  WEFT_RESOLVE(nvrtcGetCUBINSize)
  WEFT_RESOLVE(nvrtcGetCUBIN)
#undef WEFT_RESOLVE
  return nvrtc;
}

}  // namespace

NvrtcFile nvrtc_file(const std::string& path) {
  NvrtcFile file{path, major_of(fs::path(path).filename().string()).value_or(0), {}};
  std::error_code error;
  const std::string prefix = std::string(kBuiltins) + std::to_string(file.major) + ".";
  for (fs::directory_iterator it(fs::path(path).parent_path(), error), end; !error && it != end; it.increment(error))
    if (const std::string name = it->path().filename(); name.starts_with(prefix) && it->path().string() > file.builtins)
      file.builtins = it->path();
  return file;
}

std::vector<NvrtcFile> find_nvrtc() {
  std::vector<NvrtcFile> found;
  std::set<fs::path> seen;  // folders are links to each other, too
  for (const std::string& folder : cuda::library_folders()) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error))
      if (major_of(it->path().filename().string())) names.push_back(it->path());
    std::sort(names.begin(), names.end(), [](const std::string& a, const std::string& b) {
      return major_of(fs::path(a).filename().string()) > major_of(fs::path(b).filename().string());
    });
    for (const std::string& name : names)
      if (seen.insert(fs::weakly_canonical(name, error)).second) found.push_back(nvrtc_file(name));
  }
  return found;
}

const Nvrtc* load_nvrtc(const std::string& path, std::string& why) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<const Nvrtc>> loaded;
  const std::scoped_lock lock(mutex);
  std::unique_ptr<const Nvrtc>& nvrtc = loaded[path];
  if (nvrtc == nullptr) nvrtc = open(path, why);
  return nvrtc.get();
}

}  // namespace weft::jit
