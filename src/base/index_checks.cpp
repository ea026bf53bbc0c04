#include "base/index_checks.h"

#include <algorithm>

#include "base/check.h"

namespace weft {
namespace {

// A negative id counts as a large one.
[[gnu::always_inline]] inline uint32_t largest(std::span<const int32_t> ids) {
  uint32_t most = 0;
  for (const int32_t id : ids) most = std::max(most, static_cast<uint32_t>(id));
  return most;
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] uint32_t largest_avx2(std::span<const int32_t> ids) { return largest(ids); }
#endif
uint32_t largest_id(std::span<const int32_t> ids) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return largest_avx2(ids);
#endif
  return largest(ids);
}

}  // namespace

void check_indptr(std::string_view of, std::string_view name, std::span<const int32_t> indptr) {
  check(!indptr.empty(), ErrorCode::invalid_indptr, "{}{}: is empty; give [batch + 1] entries, the first one 0", of,
        name);
  check(indptr[0] == 0, ErrorCode::invalid_indptr, "{}{}[0] = {}; an indptr starts at 0", of, name, indptr[0]);
  // The sign of an entry, or of its step from the one before, shows a fall; steps of entries without sign do not wrap.
  uint32_t wrong = 0;
  for (size_t i = 1; i < indptr.size(); ++i) {
    const auto entry = static_cast<uint32_t>(indptr[i]);
    wrong |= entry | (entry - static_cast<uint32_t>(indptr[i - 1]));
  }
  if ((wrong >> 31) == 0) [[likely]]
    return;
  for (size_t i = 1; i < indptr.size(); ++i)
    check(indptr[i] >= indptr[i - 1], ErrorCode::invalid_indptr,
          "{}{}[{}] = {} after {}; an indptr never decreases: give running sums of lengths", of, name, i, indptr[i],
          indptr[i - 1]);
}

size_t find_bad_id(std::span<const int32_t> ids, size_t first, int64_t num_pages) {
  const std::span<const int32_t> looked_at = ids.subspan(first);
  if (looked_at.empty() || (num_pages > 0 && largest_id(looked_at) < static_cast<uint32_t>(num_pages))) [[likely]]
    return ids.size();
  while (first < ids.size() && ids[first] >= 0 && ids[first] < num_pages) ++first;
  return first;
}

}  // namespace weft
