// Every access of a kernel: is it in bounds, aligned, and ordered after those that it conflicts with?
#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

extern "C" const char __executable_start, _end;  // of the program, by the linker

namespace weft::simt {
namespace {

constexpr std::string_view verb(Access access) {
  return access == Access::read ? "reads" : access == Access::write ? "writes" : "changes atomically";
}

}  // namespace

bool Machine::is_stack(const char* p) const {
  return p >= current_->stack && p < current_->stack + stacks_bytes_ / threads_.size();
}

std::string Machine::place_of(const char* p, size_t bytes) const {
  if (shared_.contains(p)) {
    const size_t at = static_cast<size_t>(p - shared_begin_), owner = at / shared_stride_;
    return fmt::format("{} bytes at byte {} of cta {}'s {} bytes of shared memory", bytes, at % shared_stride_, owner,
                       launch_.shared_bytes);
  }
  const Memory::Buffer* nearest = nullptr;
  long distance = 64 << 10;  // within a red zone
  for (const Memory::Buffer& buffer : memory_.buffers()) {
    const long before = buffer.begin - p, behind = p - (buffer.begin + static_cast<long>(buffer.bytes));
    const long far = before > 0 ? before : behind >= 0 ? behind : 0;
    if (far < distance) nearest = &buffer, distance = far;
  }
  if (nearest != nullptr)
    return fmt::format("{} bytes at byte {} of the {} bytes of '{}'", bytes, p - nearest->begin, nearest->bytes,
                       nearest->name);
  if (p >= stacks_ && p < stacks_ + stacks_bytes_)
    return fmt::format("{} bytes of the stack of {}", bytes,
                       name_of(static_cast<int>(static_cast<size_t>(p - stacks_) / (stacks_bytes_ / threads_.size()))));
  return fmt::format("{} bytes at {}, which no launch gave it", bytes, fmt::ptr(p));
}

bool Machine::may_access(const char* p, size_t bytes, Access access, std::string& why) const {
  if (shared_.contains(p)) {
    const size_t at = static_cast<size_t>(p - shared_begin_);
    why = "out of bounds";
    return at / shared_stride_ == static_cast<size_t>(current_->cta) &&
           at % shared_stride_ + bytes <= launch_.shared_bytes;
  }
  for (const Memory::Buffer& buffer : memory_.buffers())
    if (p >= buffer.begin && p + bytes <= buffer.begin + buffer.bytes) return true;
  why = "out of bounds";
  if (access != Access::read) return false;
  if (p >= &__executable_start && p < &_end) return true;  // constants, of the program or of a module
  Dl_info found;
  return dladdr(p, &found) != 0;
}

void Machine::access(const void* address, size_t bytes, Access access, const void* pc) {
  const char* p = static_cast<const char*>(address);
  if (current_ == nullptr || bytes == 0 || is_stack(p)) return;
  std::string why;
  if (!may_access(p, bytes, access, why)) fault(fmt::format("{} {}: {}", verb(access), place_of(p, bytes), why), pc);
  check_order(p, bytes, access, pc);
}

void Machine::require_aligned(const void* address, size_t bytes, const char* what, const void* pc) {
  if (current_ == nullptr || reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  fault(fmt::format("{} {}: not aligned to {} bytes", what, place_of(static_cast<const char*>(address), bytes), bytes),
        pc);
}

void Machine::check_order(const char* p, size_t bytes, Access access, const void* pc) {
  Shadow& shadow = shared_.contains(p) ? shared_ : global_;
  if (!shadow.contains(p)) return;  // a constant
  const Clock& now = current_->clock;
  const auto self = static_cast<uint16_t>(current_->id);
  const Event event{now[self], self, access == Access::atomic, pc};
  for (const char* byte = p; byte < p + bytes; ++byte) {
    ShadowByte& seen = shadow[byte];
    if (seen.in_flight)
      fault(fmt::format("{} {}: a cp.async of {} ({}) is still in flight there; wait for it, then for a barrier",
                        verb(access), place_of(p, bytes), name_of(seen.write.thread), place(seen.write.pc)),
            pc);
    const auto conflicts = [&](const Event& other) {
      return other.clock != 0 && other.thread != self && !(other.is_atomic && event.is_atomic) && !other.is_before(now);
    };
    const auto race = [&](const Event& other, const char* did) {
      fault(fmt::format("{} {}: {} {} it ({}), and no barrier orders the two", verb(access), place_of(p, bytes),
                        name_of(other.thread), did, place(other.pc)),
            pc);
    };
    if (conflicts(seen.write)) race(seen.write, "wrote");
    if (access == Access::read) {
      // Of those who read since the last write two are kept, of two warps if there are two: whoever writes unordered is
      // unordered with one of them.
      Event& first = seen.reads[0];
      Event& second = seen.reads[1];
      if (first.clock == 0 || first.thread == self || first.is_before(now))
        first = event;
      else if (second.clock == 0 || second.thread / 32 == first.thread / 32 || second.is_before(now))
        second = event;
      continue;
    }
    for (const Event& other : seen.reads)
      if (conflicts(other)) race(other, "read");
    seen.write = event;
    seen.reads[0] = seen.reads[1] = {};
  }
}

Clock& Machine::clock_of(const void* atomic) {
  for (size_t i = 0; i < atomics_.size(); ++i)
    if (atomics_[i] == atomic) return atomics_clocks_[i];
  atomics_.push_back(atomic);
  return atomics_clocks_.emplace_back(threads_.size());
}

void Machine::copy_async(void* shared, const void* global, int bytes, const void* pc) {
  auto* to = static_cast<char*>(shared);
  const auto* from = static_cast<const char*>(global);
  require_aligned(to, 16, "copies to", pc);
  require_aligned(from, 16, "copies from", pc);
  if (bytes < 0 || bytes > 16) fault(fmt::format("copies {} bytes by cp.async; allowed are 0 to 16", bytes), pc);
  if (!shared_.contains(to)) fault(fmt::format("copies to {}: not shared memory", place_of(to, 16)), pc);
  if (bytes > 0 && shared_.contains(from))
    fault(fmt::format("copies from {}: not global memory", place_of(from, 16)), pc);
  access(from, static_cast<size_t>(bytes), Access::read, pc);
  access(to, 16, Access::write, pc);
  std::memset(to, 0xff, 16);
  for (int i = 0; i < 16; ++i) shared_[to + i].in_flight = true;
  current_->open.push_back({to, from, bytes, pc});
}

void Machine::commit_copies() {
  current_->groups.push_back(std::move(current_->open));
  current_->open.clear();
}

void Machine::land(const Copy& copy, const void* pc) {
  for (int i = 0; i < 16; ++i) shared_[copy.shared + i].in_flight = false;
  access(copy.global, static_cast<size_t>(copy.bytes), Access::read, copy.pc);
  access(copy.shared, 16, Access::write, pc);
  std::memset(copy.shared, 0, 16);
  std::memcpy(copy.shared, copy.global, static_cast<size_t>(copy.bytes));
}

void Machine::wait_copies(size_t pending, const void* pc) {
  for (auto& groups = current_->groups; groups.size() > pending; groups.pop_front())
    for (const Copy& copy : groups.front()) land(copy, pc);
}

}  // namespace weft::simt
