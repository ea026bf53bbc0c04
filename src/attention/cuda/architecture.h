// What a card is to kernels of attention: how much they may have of it, and what it multiplies.
#pragma once

#include <string_view>

namespace weft::attention::cuda {

struct Architecture {
  std::string_view name;  // whose code it runs: "sm_90a"
  // Bytes of shared memory; a kilobyte of each CTA's is the system's.
  int shared_of_multiprocessor, most_shared_of_cta;
  bool has_bf16_products;       // mma.sync in bf16 as in fp16
  bool has_warpgroup_products;  // wgmma

  // What a CTA may have where two are to fit a multiprocessor.
  constexpr int half_of_shared() const { return shared_of_multiprocessor / 2 - 1024; }
  // What a CTA may have where three are to fit.
  constexpr int third_of_shared() const { return shared_of_multiprocessor / 3 - 1024; }
  // CTAs that it holds at once: two, which tiles are made for, or one where shared memory has no room for another.
  // Registers have: of 128 threads, 255 each are half.
  constexpr int resident_ctas(int shared_bytes) const { return shared_bytes <= half_of_shared() ? 2 : 1; }
};

// One of those that NVRTC makes code for (jit::nvrtc_architectures), by its name. Throws Error(unsupported) for others.
const Architecture& find_architecture(std::string_view name);

}  // namespace weft::attention::cuda
