#include "tests/simt/machine/atomic.h"

#include <algorithm>
#include <cstring>

#include "tests/simt/machine/thread.h"

namespace weft::simt {
namespace {

constexpr size_t kMaxVersions = 256;

uint64_t value_at(const void* p, size_t bytes) {
  uint64_t value = 0;
  std::memcpy(&value, p, bytes);
  return value;
}

}  // namespace

Atomic& Machine::atomic_at(const void* p, size_t bytes) {
  Atomic& atomic = atomics_[p];
  if (atomic.seen.empty()) atomic.seen.resize(threads_.size());
  const uint64_t value = value_at(p, bytes);
  if (!atomic.versions.empty() && atomic.versions.back().value == value) return atomic;
  atomic.first += atomic.versions.size();  // what a plain store leaves behind is all that there is
  atomic.versions.clear();
  atomic.versions.push_back({value});
  return atomic;
}

void Machine::change_atomic(void* p, size_t bytes, Ordering ordering, bool is_store,
                            const std::function<void()>& change, const void* pc) {
  require_aligned(p, bytes, "changes atomically", pc);
  access(p, bytes, Access::atomic, pc);
  ++changes_;
  Thread& self = *current_;
  const auto id = static_cast<size_t>(self.id);
  Atomic& atomic = atomic_at(p, bytes);
  Version next{.value = 0, .write = {self.clock[id], static_cast<uint16_t>(id), true, false, pc}};
  if (!is_store) {
    next.published = atomic.versions.back().published;
    (ordering == Ordering::relaxed ? self.acquired : self.clock)
        .join_seen(ordering == Ordering::release ? Clock() : next.published);
  }
  next.published.join_seen(ordering == Ordering::relaxed ? self.released : self.clock);
  if (ordering != Ordering::relaxed) self.clock.count(id);
  change();
  next.value = value_at(p, bytes);
  atomic.versions.push_back(std::move(next));
  if (atomic.versions.size() > kMaxVersions) {
    atomic.versions.pop_front();
    ++atomic.first;
  }
  atomic.seen[id] = atomic.newest() + 1;
}

uint64_t Machine::load_atomic(const void* p, size_t bytes, bool acquires, const void* pc) {
  poll(p, pc);  // who waits for a word lets others write it
  require_aligned(p, bytes, "reads", pc);
  access(p, bytes, Access::atomic, pc);
  Thread& self = *current_;
  Atomic& atomic = atomic_at(p, bytes);
  size_t& seen = atomic.seen[static_cast<size_t>(self.id)];
  size_t number = std::clamp(seen, atomic.first, atomic.newest());
  for (size_t i = atomic.newest(); i > number; --i)
    if (const Event& write = atomic.versions[i - atomic.first].write; write.clock != 0 && write.is_before(self.clock))
      number = i;
  if (number + 1 != seen) ++changes_;
  seen = number + 1;
  const Version& version = atomic.versions[number - atomic.first];
  (acquires ? self.clock : self.acquired).join_seen(version.published);
  return version.value;
}

}  // namespace weft::simt
