#include "bench/memory_use.h"

#include <algorithm>
#include <fstream>
#include <string>
#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace weft::bench {
namespace {

std::optional<long> kilobytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (long count = 0; word == name && status >> count) return count;
  return std::nullopt;
}

// The peak is what is there now, from here on.
bool forget_peak() {
  std::ofstream file("/proc/self/clear_refs");
  file << 5;
  file.flush();
  return file.good();
}

}  // namespace

std::optional<double> extra_mb_of(const std::function<void()>& work) {
#ifdef __GLIBC__
  malloc_trim(0);  // what was given back to the allocator would be taken again unseen
#endif
  const std::optional<long> before = kilobytes("VmRSS:");
  work();
  if (!before || !forget_peak()) return std::nullopt;
  work();
  const std::optional<long> peak = kilobytes("VmHWM:");
  if (!peak) return std::nullopt;
  return static_cast<double>(std::max(0L, *peak - *before)) / 1024;
}

}  // namespace weft::bench
