// Limits of `weft serve`, and how often each refused something or ended it, or paused an answer.
//
//   throw Failure(413, "body_too_large", message, {}, Limit::max_body);  // says which limit it is
//   counted(met, [&] { return read(body); });                            // counts it
//   met.count(Limit::max_body);
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <optional>
#include <utility>

namespace weft::serve {

enum class Limit {
  max_connections,
  max_header,
  max_body,
  max_waiting_bytes,
  header_time,
  body_time,
  idle_time,
  max_json_depth,
  max_prompt_tokens,
  max_n,
  max_queued,
  max_queued_tokens,
  queue_time,
  request_time,
  max_unread,
  unread_time,
  max_running,
  kv_tokens
};
// Names of their options, in the order of Limit.
inline constexpr const char* kLimitNames[] = {"max-connections",   "max-header",   "max-body",   "max-waiting-bytes",
                                              "header-time",       "body-time",    "idle-time",  "max-json-depth",
                                              "max-prompt-tokens", "max-n",        "max-queued", "max-queued-tokens",
                                              "queue-time",        "request-time", "max-unread", "unread-time",
                                              "max-running",       "kv-tokens"};
static_assert(std::size(kLimitNames) == static_cast<size_t>(Limit::kv_tokens) + 1);

// Any thread may count.
class LimitsMet {
 public:
  void add(Limit limit) noexcept { counts_[static_cast<size_t>(limit)].fetch_add(1, std::memory_order_relaxed); }
  uint64_t count(Limit limit) const { return counts_[static_cast<size_t>(limit)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, std::size(kLimitNames)> counts_{};
};

// What an exception is that a limit may be the reason of.
struct OfLimit {
  std::optional<Limit> limit;
};

// What `work` returns; the limit that it throws for is counted.
template <class Work>
auto counted(LimitsMet& met, Work&& work) {
  try {
    return std::forward<Work>(work)();
  } catch (const OfLimit& thrown) {
    if (thrown.limit) met.add(*thrown.limit);
    throw;
  }
}

}  // namespace weft::serve
