#include "tests/support/allocations.h"

#include <cstddef>
#include <cstdlib>
#include <new>

namespace weft::testing {
std::atomic<void (*)()> before_allocation{nullptr};
}  // namespace weft::testing

namespace {

void* allocate(size_t bytes, size_t alignment) {
  if (void (*const tell)() = weft::testing::before_allocation) tell();
  const size_t whole = (bytes + alignment) / alignment * alignment;
  if (void* p = std::aligned_alloc(alignment, whole)) return p;
  throw std::bad_alloc();
}

}  // namespace

// Inlined on one side only, GCC takes them for a mismatched pair.
#define WEFT_NOINLINE [[gnu::noinline]]
WEFT_NOINLINE void* operator new(size_t bytes) { return allocate(bytes, alignof(std::max_align_t)); }
WEFT_NOINLINE void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
// Asked for by algorithms that do without.
WEFT_NOINLINE void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return allocate(bytes, alignof(std::max_align_t));
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}
WEFT_NOINLINE void operator delete(void* p, const std::nothrow_t&) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p, size_t) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
WEFT_NOINLINE void operator delete(void* p, size_t, std::align_val_t) noexcept { std::free(p); }
