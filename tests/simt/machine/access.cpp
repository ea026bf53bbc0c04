// Every access of a kernel: is it in bounds, aligned, and ordered after those that it conflicts with?
#include <dlfcn.h>
#include <fmt/format.h>

#include <bit>
#include <cstdlib>
#include <cstring>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

extern "C" const char __executable_start, _end;  // of the program, by the linker

namespace weft::simt {
namespace {

constexpr const char* verb(Access access) {
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
    return may_access_shared(p, bytes, why);
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
  if (current_ == nullptr || bytes == 0) return;
  if (is_stack(p)) {
    touch_registers(p, bytes, verb(access), pc);
    return;
  }
  if (access == Access::write) ++changes_;
  check(p, bytes, access, Proxy::generic, verb(access), pc);
}

void Machine::check(const char* p, size_t bytes, Access access, Proxy proxy, const char* verb, const void* pc) {
  std::string why;
  if (!may_access(p, bytes, access, why)) fault(fmt::format("{} {}: {}", verb, place_of(p, bytes), why), pc);
  if (launch_.cluster > 1) note_access_of_another(p, pc);
  check_order(p, bytes, access, proxy, verb, pc);
}

void Machine::require_aligned(const void* address, size_t bytes, const char* what, const void* pc) {
  if (current_ == nullptr || reinterpret_cast<uintptr_t>(address) % bytes == 0) return;
  fault(fmt::format("{} {}: not aligned to {} bytes", what, place_of(static_cast<const char*>(address), bytes), bytes),
        pc);
}

std::string Machine::in_flight(const ShadowByte& seen, const char* byte) const {
  const std::string whose =
      fmt::format("of {} ({}) is still in flight there", name_of(seen.write.who), place(seen.write.pc));
  if (seen.flight == Flight::bulk_store)
    return fmt::format("a bulk store {}, until that thread waits for it (bulk_wait)", whose);
  for (const auto& [place, mbarrier] : mbarriers_)
    for (const PhaseCopy& copy : mbarrier.copies)
      if (copy.covers(byte))
        return fmt::format("{} {}; wait for phase {} of {}", copy.name(), whose, mbarrier.phase, text_of(mbarrier));
  if (seen.flight == Flight::cp_async) return fmt::format("a cp.async {}; wait for it, then for a barrier", whose);
  return "a bulk copy " + whose;
}

void Machine::check_order(const char* p, size_t bytes, Access access, Proxy proxy, const char* verb, const void* pc) {
  const Space space = shared_.contains(p) ? Space::shared : Space::global;
  Shadow& shadow = space == Space::shared ? shared_ : global_;
  if (!shadow.contains(p)) return;  // a constant
  const Clock& now = current_->clock;
  const auto self = static_cast<uint16_t>(current_->id);
  const Event event{now[self], self, access == Access::atomic, proxy == Proxy::async, pc};
  for (const char* byte = p; byte < p + bytes; ++byte) {
    ShadowByte& seen = shadow[byte];
    if (seen.flight != Flight::none)
      fault(fmt::format("{} {}: {}", verb, place_of(p, bytes), in_flight(seen, byte)), pc);
    if (seen.is_mbarrier)
      fault(fmt::format("{} {}: an mbarrier lies there, which {} initialised ({}); invalidate it first", verb,
                        place_of(p, bytes), name_of(seen.write.who), place(seen.write.pc)),
            pc);
    const auto conflicts = [&](const Event& other) {
      return other.clock != 0 && other.who != self && !(other.is_atomic && event.is_atomic) && !other.is_before(now);
    };
    const auto race = [&](const Event& other, const char* did) {
      const std::string what = fmt::format("{} {}: ", verb, place_of(p, bytes));
      if (!is_thread(other)) {
        for (const auto& [place_of_mbarrier, mbarrier] : mbarriers_)
          if (mbarrier.who == other.who)
            fault(fmt::format("{}{} {} it ({}), and this thread has not waited for phase {} of {}", what,
                              other.is_async ? "a bulk copy" : "a cp.async", did, place(other.pc), other.clock - 1,
                              text_of(mbarrier)),
                  pc);
        for (const Cta& cta : ctas_)
          for (const Warpgroup& group : cta.warpgroups)
            if (group.products.who == other.who)
              fault(fmt::format("{}a product {} it ({}), and no barrier orders this behind the wait for that", what,
                                did, place(other.pc)),
                    pc);
        fault(fmt::format("{}a bulk copy {} it ({}), and this thread has not waited for that", what, did,
                          place(other.pc)),
              pc);
      }
      const bool is_far = threads_[other.who].cta != current_->cta;
      fault(fmt::format("{}{} {} it ({}), and no barrier orders the two{}{}", what, name_of(other.who), did,
                        place(other.pc), is_far ? ", nor a release that is acquired" : "",
                        proxy == Proxy::async && access == Access::write ? ": its place is used again too early" : ""),
            pc);
    };
    if (conflicts(seen.write)) race(seen.write, "wrote");
    if (proxy == Proxy::async && seen.write.clock != 0 && !seen.write.is_async && !now.is_fenced(seen.write, space))
      fault(fmt::format("{} {}: {} wrote it ({}) through the generic proxy, and no {} of this CTA lies between the two",
                        verb, place_of(p, bytes), is_thread(seen.write) ? name_of(seen.write.who) : "a cp.async",
                        place(seen.write.pc), space == Space::shared ? "fence_async_shared()" : "fence_async_global()"),
            pc);
    if (access == Access::read) {
      // What a copy reads counts as read when it lands.
      if (proxy == Proxy::generic) shadow.read(byte, slot_of(self), event, now);
      continue;
    }
    for (uint64_t left = seen.readers; left != 0; left &= left - 1)
      if (const Event& other = shadow.reader(byte, static_cast<size_t>(std::countr_zero(left))); conflicts(other))
        race(other, "read");
    seen.write = event;
    seen.readers = 0;
    seen.swizzle = 0;
  }
}

void Machine::copy_async(void* shared, const void* global, int size, int bytes, const void* pc) {
  auto* to = static_cast<char*>(shared);
  const auto* from = static_cast<const char*>(global);
  const auto all = static_cast<size_t>(size);
  require_aligned(to, all, "copies to", pc);
  require_aligned(from, all, "copies from", pc);
  if (bytes < 0 || bytes > size)
    fault(fmt::format("copies {} bytes by cp.async; allowed are 0 to {}", bytes, size), pc);
  require_own_shared(to, all, "copies to", pc);
  if (bytes > 0 && shared_.contains(from))
    fault(fmt::format("copies from {}: not global memory", place_of(from, all)), pc);
  access(from, static_cast<size_t>(bytes), Access::read, pc);
  access(to, all, Access::write, pc);
  std::memset(to, 0xff, all);
  for (int i = 0; i < size; ++i) shared_[to + i].flight = Flight::cp_async;
  current_->open.push_back({to, from, size, bytes, pc});
}

void Machine::commit_copies() {
  current_->groups.push_back(std::move(current_->open));
  current_->open.clear();
}

void Machine::land(const Copy& copy, const void* pc) {
  for (int i = 0; i < copy.size; ++i) shared_[copy.shared + i].flight = Flight::none;
  access(copy.global, static_cast<size_t>(copy.bytes), Access::read, copy.pc);
  access(copy.shared, static_cast<size_t>(copy.size), Access::write, pc);
  std::memset(copy.shared, 0, static_cast<size_t>(copy.size));
  std::memcpy(copy.shared, copy.global, static_cast<size_t>(copy.bytes));
}

void Machine::wait_copies(size_t pending, const void* pc) {
  for (auto& groups = current_->groups; groups.size() > pending; groups.pop_front())
    for (const Copy& copy : groups.front()) land(copy, pc);
}

}  // namespace weft::simt
