#include "tests/support/guarded_arrays.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

namespace weft::testing {
namespace {

thread_local int guards = 0;

struct Mapping {
  void* begin;
  size_t bytes;
};
// Never destroyed: arrays may be deleted after it would be.
struct Registry {
  std::mutex mutex;
  std::map<void*, Mapping> mappings;
};
Registry& registry() {
  static auto* const made = new Registry;
  return *made;
}

void* make_guarded(size_t bytes) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const size_t whole = (bytes + page - 1) / page * page;
  void* const begin = ::mmap(nullptr, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  if (::mprotect(static_cast<char*>(begin) + whole, page, PROT_NONE) != 0) std::abort();
  void* const array = static_cast<char*>(begin) + whole - bytes;
  const std::lock_guard lock(registry().mutex);
  registry().mappings[array] = {begin, whole + page};
  return array;
}

bool delete_guarded(void* array) {
  const std::lock_guard lock(registry().mutex);
  const auto found = registry().mappings.find(array);
  if (found == registry().mappings.end()) return false;
  ::munmap(found->second.begin, found->second.bytes);
  registry().mappings.erase(found);
  return true;
}

}  // namespace

GuardedArrays::GuardedArrays() { ++guards; }
GuardedArrays::~GuardedArrays() { --guards; }

}  // namespace weft::testing

void* operator new[](size_t bytes) {
  if (weft::testing::guards > 0) return weft::testing::make_guarded(bytes);
  void* const array = std::malloc(bytes > 0 ? bytes : 1);
  if (array == nullptr) throw std::bad_alloc();
  return array;
}
void operator delete[](void* array) noexcept {
  if (array != nullptr && !weft::testing::delete_guarded(array)) std::free(array);
}
void operator delete[](void* array, size_t) noexcept { operator delete[](array); }
