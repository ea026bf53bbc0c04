#include "device/cuda/module.h"

#include "base/check.h"

namespace weft::cuda {

Module load_module(Card& card, const std::string& cubin, const std::string& name) {
  const Current current(card);
  api::Module module = nullptr;
  const api::Result result = card.driver().module_load_data(&module, cubin.data());
  check(result != api::kNoBinaryForGpu && result != api::kInvalidImage, ErrorCode::unsupported,
        "'{}': its code does not load on cuda:{} ({}, compute capability {}.{}): {}", name, card.index(), card.name(),
        card.capability_major(), card.capability_minor(), card.driver().describe(result));
  card.check(result, fmt::format("loading '{}'", name));
  return {name, {card, module}};
}

Kernel find_kernel(const Module& module, const char* symbol, int most_shared_bytes, Carveout carveout) {
  Card& card = module.handle.card();
  const int there = static_cast<int>(card.shared_bytes());
  check(most_shared_bytes <= there, ErrorCode::unsupported,
        "'{}': required {} bytes of shared memory a CTA, supported on cuda:{} ({}) {}, missing {}", module.name,
        most_shared_bytes, card.index(), card.name(), there, most_shared_bytes - there);
  const Current current(card);
  const Driver& driver = card.driver();
  Kernel kernel{.card = &card, .name = module.name, .most_shared_bytes = most_shared_bytes};
  card.check(driver.module_get_function(&kernel.function, module.handle.get(), symbol),
             fmt::format("finding {}", symbol));
  card.check(driver.func_set_attribute(kernel.function, api::kMaxDynamicSharedSizeBytes, most_shared_bytes),
             fmt::format("giving {} shared memory", symbol));
  // All of it, for every kernel that does not live on its cache: two CTAs of attention need that much, and between
  // kernels that split it alike a multiprocessor does not stop to split it anew. A wish, which a card need not grant.
  if (carveout == Carveout::shared_memory)
    driver.func_set_attribute(kernel.function, api::kPreferredSharedMemoryCarveout, 100);
  driver.func_get_attribute(&kernel.max_threads, api::kMaxThreadsPerBlock, kernel.function);
  driver.func_get_attribute(&kernel.registers, api::kNumRegs, kernel.function);
  driver.func_get_attribute(&kernel.local_bytes, api::kLocalSizeBytes, kernel.function);
  return kernel;
}

int ctas_per_multiprocessor(const Kernel& kernel, const Grid& grid) {
  const Current current(*kernel.card);
  int ctas = 0;
  const auto shared_bytes = static_cast<size_t>(grid.shared_bytes);
  kernel.card->check(kernel.card->driver().occupancy(&ctas, kernel.function, grid.threads_of_cta(), shared_bytes),
                     "counting the CTAs of a multiprocessor");
  return ctas;
}

}  // namespace weft::cuda
