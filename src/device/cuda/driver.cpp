#include "device/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "base/env.h"

namespace weft::cuda {
namespace {

constexpr const char* kLibrary = "libcuda.so.1";
constexpr int kOldest = 12000;
constexpr const char* kRemedy =
    "install NVIDIA's driver, version 525 or newer, or name the folder of its libcuda.so.1 in WEFT_CUDA_LIBS";

std::string last_error() {
  const char* error = dlerror();
  return error != nullptr ? error : "it cannot be loaded";
}

struct Library {
  void* handle = nullptr;
  std::string path, tried;
};

Library open_library() {
  Library library;
  const std::vector<std::string> named = env::cuda_libs().value_or(std::vector<std::string>{});
  std::vector<std::string> names;
  for (const std::string& folder : named) {
    std::error_code ignored;
    const std::string path = folder + "/" + kLibrary;
    if (std::filesystem::exists(path, ignored)) names.push_back(path);
  }
  names.emplace_back(kLibrary);
  for (const std::string& name : names) {
    library.handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library.handle != nullptr) {
      library.path = name;
      return library;
    }
    library.tried += (library.tried.empty() ? "tried " : ", ") + fmt::format("{} ({})", name, last_error());
  }
  return library;
}

DriverSearch search() {
  if (const auto folders = env::cuda_libs(); folders && folders->empty())
    return {nullptr, "CUDA", "WEFT_CUDA_LIBS=none switches CUDA off", "unset WEFT_CUDA_LIBS"};
  const Library library = open_library();
  if (library.handle == nullptr) return {nullptr, "NVIDIA's driver", library.tried, kRemedy};
  auto driver = std::make_unique<Driver>();
  driver->path = library.path;
  const char* absent = nullptr;
#define WEFT_RESOLVE(name, symbol, ...)                                                          \
  driver->name = reinterpret_cast<api::Result (*)(__VA_ARGS__)>(dlsym(library.handle, #symbol)); \
  if (driver->name == nullptr && absent == nullptr) absent = #symbol;
  using namespace api;
  using api::Event;  // weft::cuda has one of its own
  WEFT_CUDA_FUNCTIONS(WEFT_RESOLVE)
#undef WEFT_RESOLVE
  if (driver->driver_get_version != nullptr) driver->driver_get_version(&driver->version);
  if (driver->version < kOldest || absent != nullptr)
    return {nullptr, "a driver for CUDA 12.0 or newer",
            fmt::format("{} is for CUDA {}.{}{}", library.path, driver->version / 1000, driver->version % 1000 / 10,
                        absent != nullptr ? fmt::format(" and has no {}", absent) : ""),
            kRemedy};
  return {driver.release()};  // for good: its memory and streams may outlive every static object
}

}  // namespace

std::string Driver::describe(api::Result result) const {
  const char *name = nullptr, *text = nullptr;
  get_error_name(result, &name);
  get_error_string(result, &text);
  return fmt::format("{} ({})", name != nullptr ? name : fmt::format("error {}", result),
                     text != nullptr ? text : "no description");
}

const DriverSearch& find_driver() {
  static const DriverSearch* const found = new DriverSearch(search());
  return *found;
}

std::optional<int> driver_version() {
  const DriverSearch& found = find_driver();
  return found.driver != nullptr ? std::optional(found.driver->version) : std::nullopt;
}

}  // namespace weft::cuda
