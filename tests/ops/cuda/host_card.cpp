#include "tests/ops/cuda/host_card.h"

#include <cstring>
#include <map>
#include <stdexcept>

#include "ops/cuda/kernels/args.h"
#include "tests/ops/cuda/instances.h"
#include "tests/simt/machine/machine.h"

#define WEFT_DECLARE(symbol, args, instance) extern "C" void symbol(weft::ops::args);
WEFT_CACHES(WEFT_DECLARE)
WEFT_ELEMENTWISE(WEFT_DECLARE)
WEFT_LINEARS(WEFT_DECLARE)

namespace weft::testing {
namespace {

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
  driver().allocate = [&memory](size_t bytes) -> void* { return memory.make<char>("card", bytes).data(); };
  driver().bytes_of_args = [](const char* symbol) {
    const auto kernel = kernels().find(symbol);
    if (kernel == kernels().end()) throw std::runtime_error(std::string("no kernel of the host: ") + symbol);
    return kernel->second.bytes_of_args;
  };
  driver().launch = [this, &memory](const char* symbol, const cuda::api::LaunchConfig& config, const void* args) {
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

bool HostCard::is_capturing() { return driver().is_capturing; }
bool HostCard::defer(std::function<void()> work) {
  if (!is_capturing()) return false;
  driver().captured.push_back(std::move(work));
  return true;
}

void* HostCard::place_bytes(const void* from, size_t bytes) {
  placed_.emplace_back(Device::cuda(0), bytes);
  if (bytes > 0) std::memcpy(placed_.back().data(), from, bytes);
  return placed_.back().data();
}

}  // namespace weft::testing
