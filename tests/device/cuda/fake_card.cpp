#include "tests/device/cuda/fake_card.h"

#include <dlfcn.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace weft::testing {
namespace {

// Before anything asks for the driver or a compiler. Their modules are kept apart: no card takes them.
const int kFake = [] {
  setenv("FAKE_CUDA_VERSION", "99000", 1);
  setenv("FAKE_CUDA_CAPABILITY", "90", 1);
  setenv("FAKE_CUDA_MULTIPROCESSORS", "1", 1);
  setenv("WEFT_CACHE_DIR", WEFT_FAKE_CACHE, 1);
  return setenv("WEFT_CUDA_LIBS", WEFT_FAKE_DRIVER_FOLDER ":" WEFT_FAKE_NVRTC_FOLDER, 1);
}();

}  // namespace

FakeCard::FakeCard() { driver() = {}; }

cuda::fake::State& FakeCard::driver() {
  constexpr const char* kPath = WEFT_FAKE_DRIVER_FOLDER "/libcuda.so.1";
  void* library = dlopen(kPath, RTLD_NOW);
  void* symbol = library == nullptr ? nullptr : dlsym(library, "weft_fake_driver");
  if (symbol == nullptr) throw std::runtime_error(std::string("no fake driver at ") + kPath);
  return *reinterpret_cast<decltype(&weft_fake_driver)>(symbol)();
}

int64_t FakeCard::driver_calls(std::string_view name) {
  return std::count(driver().calls.begin(), driver().calls.end(), name);
}

void FakeCard::have_memory_without_bytes() {
  driver().moves_bytes = false;
  // Kept to the end of the program, as what the product keeps on a card is.
  driver().allocate = [](size_t bytes) -> void* {
    void* data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return data == MAP_FAILED ? nullptr : data;
  };
}

}  // namespace weft::testing
