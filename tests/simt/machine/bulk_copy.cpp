// Bulk copies: they land as late as the waits allow, and until then nobody may touch what they write.
#include <fmt/format.h>

#include <cstring>

#include "tests/simt/machine/places.h"
#include "tests/simt/machine/thread.h"

namespace weft::simt {

void Machine::bulk_copy(void* shared, const void* global, unsigned bytes, const void* mbarrier_place, const void* pc) {
  auto* to = static_cast<char*>(shared);
  const auto* from = static_cast<const char*>(global);
  require_aligned(to, 16, "copies to", pc);
  require_aligned(from, 16, "copies from", pc);
  if (bytes == 0 || bytes % 16 != 0)
    fault(fmt::format("copies {} bytes by bulk_copy; allowed are multiples of 16", bytes), pc);
  require_own_shared(to, bytes, "copies to", pc);
  if (!global_.contains(from)) fault(fmt::format("copies from {}: not global memory", place_of(from, bytes)), pc);
  start_copy({{{to, from, bytes}}, bytes, -1, current_->id, pc, current_->clock}, mbarrier_place, pc);
}

void Machine::start_copy(PhaseCopy copy, const void* mbarrier_place, const void* pc) {
  Mbarrier& mbarrier = mbarrier_at(mbarrier_place, "completes a copy on", pc);
  const auto self = static_cast<uint16_t>(current_->id);
  if (mbarrier.fence.clock == 0 || (mbarrier.fence.who != self && !mbarrier.fence.is_before(current_->clock)))
    fault(
        fmt::format("completes a copy on {}: {} initialises it ({}), and no fence_mbarrier_init() lies between the two",
                    text_of(mbarrier), name_of(mbarrier.init.who), place(mbarrier.init.pc)),
        pc);
  for (const CopyPiece& piece : copy.pieces) {
    if (piece.global != nullptr) check(piece.global, piece.bytes, Access::read, Proxy::async, "copies from", pc);
    check(piece.shared, piece.bytes, Access::write, Proxy::async, "copies to", pc);
  }
  for (const CopyPiece& piece : copy.pieces) {
    std::memset(piece.shared, 0xff, piece.bytes);
    for (size_t i = 0; i < piece.bytes; ++i) shared_[piece.shared + i].flight = Flight::bulk_copy;
  }
  mbarrier.copies.push_back(std::move(copy));
  current_->clock.count(self);
  ++changes_;
  check_bytes(mbarrier, "completes a copy on", pc);
}

void Machine::land(const Mbarrier& mbarrier, const PhaseCopy& copy) {
  const Event event{mbarrier.phase + 1, mbarrier.who, false, copy.is_bulk, copy.pc};
  for (const CopyPiece& piece : copy.pieces) {
    for (size_t i = 0; i < piece.bytes; ++i) {
      ShadowByte& to = shared_[piece.shared + i];
      to.flight = Flight::none;
      to.write = event;
      to.readers = 0;
      to.swizzle = static_cast<int8_t>(copy.swizzle + 1);
      if (piece.global == nullptr) continue;
      const char* from = piece.global + i;
      const Event& write = global_[from].write;
      if (write.clock != 0 && !write.is_before(copy.seen) && fault_.empty())
        fault_ = fmt::format("{} at {} writes {} while {} of {} ({}) reads it: it has not waited for phase {} of {}",
                             name_of(write.who), place(write.pc), place_of(from, 1), copy.name(), name_of(copy.thread),
                             place(copy.pc), mbarrier.phase, text_of(mbarrier));
      global_.read(from, slot_of(mbarrier.who), event, mbarrier.over);
    }
    if (piece.global != nullptr)
      std::memcpy(piece.shared, piece.global, piece.bytes);
    else
      std::memset(piece.shared, 0, piece.bytes);
  }
}

bool Machine::land_some(std::mt19937_64& random) {
  std::vector<Mbarrier*> ready;
  for (auto& [place, mbarrier] : mbarriers_)
    if (mbarrier.can_land() && (mbarrier.is_polled || !mbarrier.waiting.empty())) ready.push_back(&mbarrier);
  if (ready.empty()) return false;
  Mbarrier& mbarrier = *(launch_.order == Order::up     ? ready.front()
                         : launch_.order == Order::down ? ready.back()
                                                        : ready[random() % ready.size()]);
  for (const PhaseCopy& copy : mbarrier.copies) land(mbarrier, copy);
  mbarrier.copies.clear();
  mbarrier.expected = 0;
  end_phase(mbarrier);
  return true;
}

void Machine::bulk_store(void* global, const void* shared, unsigned bytes, const void* pc) {
  auto* to = static_cast<char*>(global);
  const auto* from = static_cast<const char*>(shared);
  require_aligned(to, 16, "stores to", pc);
  require_aligned(from, 16, "stores from", pc);
  if (bytes == 0 || bytes % 16 != 0)
    fault(fmt::format("stores {} bytes by bulk_store; allowed are multiples of 16", bytes), pc);
  if (!global_.contains(to)) fault(fmt::format("stores to {}: not global memory", place_of(to, bytes)), pc);
  require_own_shared(from, bytes, "stores from", pc);
  start_store({{to, from, bytes}}, pc);
}

void Machine::start_store(std::vector<StorePiece> pieces, const void* pc) {
  for (const StorePiece& piece : pieces) {
    check(piece.shared, piece.bytes, Access::read, Proxy::async, "stores from", pc);
    check(piece.global, piece.bytes, Access::write, Proxy::async, "stores to", pc);
  }
  for (const StorePiece& piece : pieces) {
    std::memset(piece.global, 0xff, piece.bytes);
    for (size_t i = 0; i < piece.bytes; ++i) global_[piece.global + i].flight = Flight::bulk_store;
  }
  current_->open_stores.push_back({std::move(pieces), pc, current_->clock});
  current_->clock.count(static_cast<size_t>(current_->id));
  ++changes_;
}

void Machine::commit_stores() {
  current_->store_groups.push_back(std::move(current_->open_stores));
  current_->open_stores.clear();
}

void Machine::read_source(BulkStore& store, const void* pc) {
  if (store.is_read) return;
  const auto self = static_cast<uint16_t>(current_->id);
  const Event event{current_->clock[self], self, false, true, store.pc};
  for (const StorePiece& piece : store.pieces) {
    for (size_t i = 0; i < piece.bytes; ++i) {
      const char* from = piece.shared + i;
      const Event& write = shared_[from].write;
      if (write.clock != 0 && !write.is_before(store.seen))
        fault(fmt::format("waits for a bulk store ({}) of {}, which {} has written ({}) before it was read",
                          place(store.pc), place_of(from, 1), is_thread(write) ? name_of(write.who) : "a bulk copy",
                          place(write.pc)),
              pc);
      shared_.read(from, slot_of(self), event, current_->clock);
    }
    store.content.append(piece.shared, piece.bytes);
  }
  store.is_read = true;
}

void Machine::land(BulkStore& store, const void* pc) {
  read_source(store, pc);
  const auto self = static_cast<uint16_t>(current_->id);
  const char* content = store.content.data();
  for (const StorePiece& piece : store.pieces) {
    for (size_t i = 0; i < piece.bytes; ++i) {
      ShadowByte& to = global_[piece.global + i];
      to.flight = Flight::none;
      to.write = {current_->clock[self], self, false, true, store.pc};
    }
    std::memcpy(piece.global, content, piece.bytes);
    content += piece.bytes;
  }
}

void Machine::wait_stores(size_t pending, bool written, const void* pc) {
  auto& groups = current_->store_groups;
  if (written) {
    for (; groups.size() > pending; groups.pop_front())
      for (BulkStore& store : groups.front()) land(store, pc);
    return;
  }
  for (size_t i = 0; i + pending < groups.size(); ++i)
    for (BulkStore& store : groups[i]) read_source(store, pc);
}

// Copies of a thread that ends. Shared memory goes with its CTA: what reads it must have done so.
void Machine::check_end(const Thread& thread) {
  for (const Copy& copy : thread.open) fault("ends with a cp.async in flight that it never waits for", copy.pc);
  for (const auto& group : thread.groups)
    for (const Copy& copy : group) fault("ends with a cp.async in flight that it never waits for", copy.pc);
  for (const BulkStore& store : thread.open_stores)
    fault("ends with a bulk store in flight that it never commits", store.pc);
  for (const auto& group : thread.store_groups)
    for (const BulkStore& store : group)
      if (!store.is_read) fault("ends with a bulk store in flight whose source it never waits for", store.pc);
  for (const HeldRegisters& held : thread.products.held)
    if (held.waited_at == nullptr) fault("ends with a product under way that it never waits for", held.pc);
  for (auto& group : current_->store_groups)
    for (BulkStore& store : group) land(store, store.pc);
}

}  // namespace weft::simt
