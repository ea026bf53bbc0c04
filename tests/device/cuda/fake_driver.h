// What tests tell a driver that is none, and ask it. It is a library of its own, libcuda.so.1, which the product finds
// in WEFT_CUDA_LIBS; the environment says what machine it plays.
//
//   FAKE_CUDA_CARDS=2  FAKE_CUDA_VERSION=12040  FAKE_CUDA_INIT=803  FAKE_CUDA_CAPABILITY=80
//   FAKE_CUDA_MULTIPROCESSORS=132
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/cuda/api.h"

namespace weft::cuda::fake {

struct State {
  std::vector<std::string> calls;  // names of functions, as the driver has them
  std::string fails;               // this one
  int result = 0;                  // with this, from then on all of them where it is one that ends a context
  api::LaunchConfig config = {};   // of the last launch
  std::vector<api::LaunchAttribute> attributes = {};
  std::string image = {};  // of the last module
  // Of the last map: rank, type and swizzle, then for each dimension its size, the stride of the next one, and the box.
  std::vector<unsigned long long> tensor_map = {};
  size_t free_bytes = size_t{1} << 30;
  int context_depth = 0;                             // pushed and not popped
  std::function<void*(size_t bytes)> allocate = {};  // where it is given: a card's memory, which is not freed
  bool moves_bytes = true;  // false: copies and fills do nothing, so that memory may be larger than the machine's
  // Where a stream is being captured: what is enqueued, for graphs to do.
  bool is_capturing = false;
  std::vector<std::function<void()>> captured = {};
};

}  // namespace weft::cuda::fake

extern "C" weft::cuda::fake::State* weft_fake_driver();
