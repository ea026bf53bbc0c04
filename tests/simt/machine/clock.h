// Which accesses are ordered: vector clocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::simt {

enum class Space : uint8_t { shared, global };

struct Event;

// Of each who there is, how much of its past is seen. A thread counts on whenever it tells others; of an mbarrier the
// phases count that are over.
class Clock {
 public:
  explicit Clock(size_t size = 0) : seen_(size) {}
  uint32_t operator[](size_t who) const { return who < seen_.size() ? seen_[who] : 0; }
  void set(size_t who, uint32_t count) {
    if (who >= seen_.size()) seen_.resize(who + 1);
    seen_[who] = count;
  }
  void count(size_t who) { set(who, (*this)[who] + 1); }
  void join(const Clock& other) {
    join(seen_, other.seen_);
    for (int space = 0; space < 2; ++space) join(fenced_[space], other.fenced_[space]);
  }
  // Only what the other one has too.
  void meet(const Clock& other) {
    meet(seen_, other.seen_);
    for (int space = 0; space < 2; ++space) meet(fenced_[space], other.fenced_[space]);
  }
  // Without fences: they hold within a CTA.
  void join_seen(const Clock& other) { join(seen_, other.seen_); }

  // What is seen by now lies before a fence of the async proxy.
  void fence(Space space) { join(fenced_[static_cast<int>(space)], seen_); }
  bool is_fenced(const Event& event, Space space) const;

 private:
  static void join(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
    if (to.size() < from.size()) to.resize(from.size());
    for (size_t i = 0; i < from.size(); ++i) to[i] = to[i] < from[i] ? from[i] : to[i];
  }
  static void meet(std::vector<uint32_t>& to, const std::vector<uint32_t>& from) {
    if (to.size() > from.size()) to.resize(from.size());
    for (size_t i = 0; i < to.size(); ++i) to[i] = to[i] > from[i] ? from[i] : to[i];
  }
  std::vector<uint32_t> seen_, fenced_[2];
};

// An access.
struct Event {
  uint32_t clock = 0;  // 0: never
  uint16_t who = 0;    // a thread, or an mbarrier for the copies that complete in its phase clock - 1
  bool is_atomic = false;
  bool is_async = false;  // through the async proxy
  const void* pc = nullptr;
  bool is_before(const Clock& now) const { return clock <= now[who]; }
};

inline bool Clock::is_fenced(const Event& event, Space space) const {
  const auto& fenced = fenced_[static_cast<int>(space)];
  return event.who < fenced.size() && event.clock <= fenced[event.who];
}

}  // namespace weft::simt
