#include "jit/cuda/runtime.h"

#include <algorithm>
#include <atomic>

namespace weft::cuda {
namespace {

std::atomic<const Runtime*> chosen{nullptr};

}  // namespace

const Runtime& runtime() {
  const Runtime* const other = chosen.load(std::memory_order_acquire);
  return other != nullptr ? *other : cards();
}

void set_runtime(const Runtime& runtime) { chosen.store(&runtime, std::memory_order_release); }

void load_all(const Runtime& runtime, Device device, std::span<const KernelText> texts, WorkerTeam& team) {
  std::vector<const KernelText*> once;  // no thread waits for another that makes the same kernel
  for (const KernelText& text : texts)
    if (std::ranges::none_of(once, [&](const KernelText* of) { return *of == text; })) once.push_back(&text);
  std::atomic<size_t> next{0};
  team.run([&](int) {
    for (size_t i; (i = next.fetch_add(1)) < once.size();) runtime.load(device, *once[i]);
  });
}

}  // namespace weft::cuda
