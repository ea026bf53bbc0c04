// mbarriers: whose arrivals and bytes a phase waits for, and which phase a wait means.
#include "tests/simt/machine/mbarrier.h"

#include <fmt/format.h>

#include <cstring>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

namespace weft::simt {
namespace {

constexpr uint32_t kMost = (1 << 20) - 1;  // arrivals of a phase, and bytes that it expects

}  // namespace

std::string Machine::text_of(const Mbarrier& mbarrier) const {
  const size_t at = static_cast<size_t>(mbarrier.place - shared_begin_) % shared_stride_;
  return launch_.ctas == 1 ? fmt::format("the mbarrier at byte {}", at)
                           : fmt::format("the mbarrier at byte {} of cta {}", at, mbarrier.cta);
}

std::string Machine::missing_of(const Mbarrier& mbarrier) const {
  if (mbarrier.pending > 0) return fmt::format("{} of {} arrivals are missing", mbarrier.pending, mbarrier.arrivals);
  return fmt::format("{} bytes are expected ({}) that no copy brings", mbarrier.expected - mbarrier.bytes_in_flight(),
                     place(mbarrier.expected_at));
}

void Machine::init_mbarrier(const void* address, unsigned arrivals, const void* pc) {
  const char* p = static_cast<const char*>(address);
  require_aligned(p, 8, "initialises an mbarrier at", pc);
  require_own_shared(p, 8, "initialises an mbarrier at", pc);
  if (arrivals < 1 || arrivals > kMost)
    fault(fmt::format("initialises an mbarrier for {} arrivals; allowed are 1 to {}", arrivals, kMost), pc);
  if (const auto found = mbarriers_.find(p); found != mbarriers_.end())
    fault(fmt::format("initialises {} again, which {} initialised ({}); invalidate it first", text_of(found->second),
                      name_of(found->second.init.who), place(found->second.init.pc)),
          pc);
  access(p, 8, Access::write, pc);
  std::memset(const_cast<char*>(p), 0xff, 8);
  for (int i = 0; i < 8; ++i) shared_[p + i].is_mbarrier = true;
  mbarriers_.emplace(p, Mbarrier{.place = p,
                                 .cta = current_->cta,
                                 .who = new_who("initialises an mbarrier", pc),
                                 .init = shared_[p].write,
                                 .arrivals = arrivals,
                                 .pending = arrivals,
                                 .next = std::vector<int32_t>(static_cast<size_t>(launch_.threads), -1)});
}

// Of one who is no thread, and stands in clocks for what is done behind their backs.
uint16_t Machine::new_who(const char* verb, const void* pc) {
  if (num_who_ > 0xffff) fault(fmt::format("{}: one more than the machine has numbers for", verb), pc);
  return static_cast<uint16_t>(num_who_++);
}

void Machine::inval_mbarrier(const void* address, const void* pc) {
  const Mbarrier& mbarrier = mbarrier_at(address, "invalidates", pc);
  if (!mbarrier.waiting.empty())
    fault(fmt::format("invalidates {}, for whose phase {} {} waits ({})", text_of(mbarrier), mbarrier.phase,
                      name_of(*mbarrier.waiting.front()), place(mbarrier.waiting.front()->waits_at)),
          pc);
  if (!mbarrier.copies.empty())
    fault(fmt::format("invalidates {}, on which a copy of {} ({}) is still to complete", text_of(mbarrier),
                      name_of(mbarrier.copies.front().thread), place(mbarrier.copies.front().pc)),
          pc);
  const char* p = mbarrier.place;
  for (int i = 0; i < 8; ++i) shared_[p + i].is_mbarrier = false;
  mbarriers_.erase(p);
  access(p, 8, Access::write, pc);
}

Mbarrier& Machine::mbarrier_at(const void* address, const char* verb, const void* pc) {
  const char* p = static_cast<const char*>(address);
  const auto found = mbarriers_.find(p);
  if (found == mbarriers_.end())
    fault(fmt::format("{} {}: no mbarrier is initialised there", verb, place_of(p, 8)), pc);
  Mbarrier& mbarrier = found->second;
  if (mbarrier.cta != current_->cta) fault(fmt::format("{} {}: not its own CTA's", verb, text_of(mbarrier)), pc);
  if (mbarrier.init.who != current_->id && !mbarrier.init.is_before(current_->clock))
    fault(fmt::format("{} {}: {} initialises it ({}), and no barrier orders the two", verb, text_of(mbarrier),
                      name_of(mbarrier.init.who), place(mbarrier.init.pc)),
          pc);
  return mbarrier;
}

void Machine::fence_inits(const void* pc) {
  const auto self = static_cast<uint16_t>(current_->id);
  for (auto& [place, mbarrier] : mbarriers_)
    if (mbarrier.cta == current_->cta && (mbarrier.init.who == self || mbarrier.init.is_before(current_->clock)) &&
        mbarrier.fence.clock == 0)
      mbarrier.fence = {current_->clock[self], self, false, false, pc};
}

void Machine::arrive(const void* address, unsigned bytes, const void* pc) {
  Mbarrier& mbarrier = mbarrier_at(address, "arrives at", pc);
  check_arrivals(mbarrier, "arrives at", pc);
  if (bytes > 0) {
    mbarrier.expected += bytes;
    mbarrier.expected_at = pc;
    if (mbarrier.expected > kMost)
      fault(fmt::format("expects {} bytes in one phase of {}; allowed are {}", mbarrier.expected, text_of(mbarrier),
                        kMost),
            pc);
  }
  mbarrier.arriving.join(current_->clock);
  current_->clock.count(static_cast<size_t>(current_->id));
  mbarrier.last_arrival = current_->id;
  mbarrier.last_arrival_at = pc;
  --mbarrier.pending;
  ++changes_;
  check_bytes(mbarrier, "arrives at", pc);
  if (mbarrier.pending > 0) return;
  for (const Event& event : mbarrier.behind_copies)
    if (!event.is_before(mbarrier.arriving))
      fault(fmt::format("arrives at {}: phase {} may be over before {} arrives behind its cp.async ({}), as no barrier "
                        "orders that before an arrival",
                        text_of(mbarrier), mbarrier.phase, name_of(event.who), place(event.pc)),
            pc);
  if (mbarrier.expected == 0 && mbarrier.copies.empty()) end_phase(mbarrier);
}

// On a card one arrival more is expected, and comes when the copies have landed.
void Machine::arrive_behind_copies(const void* address, const void* pc) {
  Mbarrier& mbarrier = mbarrier_at(address, "arrives behind its cp.async at", pc);
  check_arrivals(mbarrier, "arrives behind its cp.async at", pc);
  const auto self = static_cast<uint16_t>(current_->id);
  mbarrier.behind_copies.push_back({current_->clock[self], self, false, false, pc});
  PhaseCopy all{{}, 0, -1, current_->id, pc, current_->clock, false};
  current_->groups.push_back(std::move(current_->open));
  for (const auto& group : current_->groups)
    for (const Copy& copy : group) {
      all.pc = copy.pc;
      const auto bytes = static_cast<size_t>(copy.bytes), size = static_cast<size_t>(copy.size);
      if (bytes > 0) all.pieces.push_back({copy.shared, copy.global, bytes});
      if (bytes < size) all.pieces.push_back({copy.shared + bytes, nullptr, size - bytes});
    }
  current_->open.clear();
  current_->groups.clear();
  if (!all.pieces.empty()) mbarrier.copies.push_back(std::move(all));
  current_->clock.count(self);
  ++changes_;
}

void Machine::check_arrivals(const Mbarrier& mbarrier, const char* what, const void* pc) {
  if (mbarrier.pending > 0) return;
  fault(fmt::format("{} {}: all {} arrivals of phase {} have come, the last of {} ({})", what, text_of(mbarrier),
                    mbarrier.arrivals, mbarrier.phase, name_of(mbarrier.last_arrival), place(mbarrier.last_arrival_at)),
        pc);
}

// Copies bring more than all arrivals together expect: the phase ends among them, or never.
void Machine::check_bytes(const Mbarrier& mbarrier, const char* what, const void* pc) {
  const uint64_t bytes = mbarrier.bytes_in_flight();
  if (mbarrier.pending > 0 || bytes <= mbarrier.expected) return;
  const PhaseCopy& last = mbarrier.copies.back();
  fault(fmt::format("{} {}: phase {} expects {} bytes{}, and copies bring {}, the last of {} ({})", what,
                    text_of(mbarrier), mbarrier.phase, mbarrier.expected,
                    mbarrier.expected_at != nullptr ? fmt::format(" ({})", place(mbarrier.expected_at)) : "", bytes,
                    name_of(last.thread), place(last.pc)),
        pc);
}

void Machine::end_phase(Mbarrier& mbarrier) {
  mbarrier.over.join(mbarrier.arriving);
  mbarrier.arriving = Clock();
  mbarrier.behind_copies.clear();
  ++mbarrier.phase;
  mbarrier.over.set(mbarrier.who, mbarrier.phase);
  mbarrier.pending = mbarrier.arrivals;
  mbarrier.expected_at = nullptr;
  mbarrier.is_polled = false;
  for (Thread* thread : mbarrier.waiting) {
    thread->clock.join(mbarrier.over);
    thread->mbarrier = nullptr;
    mbarrier.next[static_cast<size_t>(thread->index)] = static_cast<int32_t>(mbarrier.phase);
    release(*thread);
  }
  mbarrier.waiting.clear();
  ++changes_;
}

// Which phase a wait means follows from what the thread has seen by barriers of any kind: the first one that it does
// not know to be over, or the last one that it does. That is where a right kernel waits, as with any other phase the
// parity alone would let it pass too early, or never.
bool Machine::is_over(Mbarrier& mbarrier, unsigned parity, const void* pc) {
  if (parity > 1) fault(fmt::format("waits for parity {} of {}; allowed are 0 and 1", parity, text_of(mbarrier)), pc);
  const auto known = static_cast<int32_t>(current_->clock[mbarrier.who]);  // phases
  const int32_t meant = (known & 1) == static_cast<int32_t>(parity) ? known : known - 1;
  int32_t& next = mbarrier.next[static_cast<size_t>(current_->index)];
  if (meant < next)
    fault(fmt::format("waits for parity {} of {} again: it has waited for {}, and the wait for phase {}, which has the "
                      "other parity, would pass at once",
                      parity, text_of(mbarrier), meant < 0 ? "the empty ring" : fmt::format("phase {}", meant),
                      meant + 1),
          pc);
  if (static_cast<int32_t>(mbarrier.phase) > meant + 1)
    fault(fmt::format("waits for parity {} of {}, as for phase {}: that and phase {} are over, and the wait would be "
                      "for a later one",
                      parity, text_of(mbarrier), meant, meant + 1),
          pc);
  if (static_cast<int32_t>(mbarrier.phase) == meant) return false;
  next = meant + 1;
  if (meant >= 0) current_->clock.join(mbarrier.over);
  return true;
}

bool Machine::try_wait(const void* address, unsigned parity, const void* pc) {
  poll(address, pc);
  Mbarrier& mbarrier = mbarrier_at(address, "waits for", pc);
  if (is_over(mbarrier, parity, pc)) return true;
  mbarrier.is_polled = true;
  return false;
}

void Machine::wait_mbarrier(const void* address, unsigned parity, const void* pc) {
  Mbarrier& mbarrier = mbarrier_at(address, "waits for", pc);
  if (is_over(mbarrier, parity, pc)) return;
  mbarrier.waiting.push_back(current_);
  current_->mbarrier = &mbarrier;
  wait("mbarrier_wait", pc);
}

}  // namespace weft::simt
