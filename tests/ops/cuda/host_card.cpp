#include "tests/ops/cuda/host_card.h"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <stdexcept>

#include "ops/cuda/kernels/args.h"
#include "tests/device/cuda/fake_driver.h"
#include "tests/ops/cuda/instances.h"
#include "tests/simt/machine/machine.h"

#define WEFT_DECLARE(symbol, args, instance) extern "C" void symbol(weft::ops::args);
WEFT_CACHES(WEFT_DECLARE)
WEFT_ELEMENTWISE(WEFT_DECLARE)
WEFT_LINEARS(WEFT_DECLARE)

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

cuda::fake::State& state() {
  void* library = dlopen(WEFT_FAKE_DRIVER_FOLDER "/libcuda.so.1", RTLD_NOW);
  return *reinterpret_cast<decltype(&weft_fake_driver)>(dlsym(library, "weft_fake_driver"))();
}

// One for all tests of the program: what the product keeps on the card, it keeps.
simt::Memory& own_memory() {
  static auto* instance = new simt::Memory;
  return *instance;
}

struct OnHost {
  void (*run)(const void* args);
  size_t bytes_of_args;
};
const std::map<std::string, OnHost>& kernels() {
#define WEFT_ENTRY(symbol, args, instance) \
  {#symbol, {[](const void* p) { symbol(*static_cast<const ops::args*>(p)); }, sizeof(ops::args)}},
  static const std::map<std::string, OnHost> all{WEFT_CACHES(WEFT_ENTRY) WEFT_ELEMENTWISE(WEFT_ENTRY)
                                                     WEFT_LINEARS(WEFT_ENTRY)};
  return all;
}

}  // namespace

HostCard::HostCard() : HostCard(own_memory()) {}

HostCard::HostCard(simt::Memory& memory) {
  state() = {};
  state().allocate = [&memory](size_t bytes) -> void* { return memory.make<char>("card", bytes).data(); };
  state().bytes_of_args = [](const char* symbol) {
    const auto kernel = kernels().find(symbol);
    if (kernel == kernels().end()) throw std::runtime_error(std::string("no kernel of the host: ") + symbol);
    return kernel->second.bytes_of_args;
  };
  state().launch = [this, &memory](const char* symbol, const cuda::api::LaunchConfig& config, const void* args) {
    launched.emplace_back(symbol);
    const auto kernel = kernels().find(symbol);
    if (kernel == kernels().end()) throw std::runtime_error(std::string("no kernel of the host: ") + symbol);
    simt::run(memory,
              {.ctas = static_cast<int>(config.grid_x),
               .threads = static_cast<int>(config.block_x),
               .shared_bytes = config.shared_bytes},
              [&] { kernel->second.run(args); });
  };
}

HostCard::~HostCard() { state().launch = {}; }

bool HostCard::is_capturing() { return state().is_capturing; }
bool HostCard::defer(std::function<void()> work) {
  if (!is_capturing()) return false;
  state().captured.push_back(std::move(work));
  return true;
}

void* HostCard::place_bytes(const void* from, size_t bytes) {
  placed_.emplace_back(Device::cuda(0), bytes);
  if (bytes > 0) std::memcpy(placed_.back().data(), from, bytes);
  return placed_.back().data();
}

}  // namespace weft::testing
