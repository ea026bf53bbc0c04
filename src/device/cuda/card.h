// A card: its primary context, which other libraries of the process share, what it can do, and what it died of.
//
//   Card& card = Card::at(0);
//   const Current current(card);                              // the card's context, while this lives
//   card.check(driver.mem_alloc(&p, bytes), "allocating");
//
// Thread-safe. Every entry asks `at`, which refuses a card that has failed and a child of fork.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/cuda/driver.h"
#include "weft/error.h"
#include "weft/tensor.h"

namespace weft::cuda {

// How many cards there are; 0 where there is no driver, or none that works.
int num_cards();
// Throws Error(unsupported) where there is no driver or no card, Error(invalid_device) for an index beyond, in the
// words that a refusal of a tensor's or workspace's device needs. `otherwise` says how to do without a card, if not by
// Device::cpu().
void require_card(Device device, std::string_view name);
void require_card(Device device, std::string_view name, std::string_view otherwise);

class Card {
 public:
  // Throws like require_card; Error(unsupported) in a forked child, Error(device_failed) for a card that has failed.
  static Card& at(int index);

  int index() const { return index_; }
  const std::string& name() const { return name_; }
  int capability_major() const { return major_; }
  int capability_minor() const { return minor_; }
  int num_multiprocessors() const { return num_multiprocessors_; }
  size_t shared_bytes() const { return shared_bytes_; }  // that a CTA may have
  size_t l2_bytes() const { return l2_bytes_; }
  size_t memory_bytes() const { return memory_bytes_; }
  api::Context context() const { return context_; }
  const Driver& driver() const { return driver_; }
  // Nothing can be done with it any more; destructors then leave things where they are.
  bool is_lost() const;

  // A call's result. Throws Error(out_of_memory), Error(device_failed) for what ends the card's context, from then on
  // for every call, and Error(invalid_argument) for a handle that is none; what is left is our own mistake.
  void check(api::Result result, std::string_view what);
  // A launch's: anything but success ends the card.
  void check_launch(api::Result result, std::string_view kernel);
  // Of kernels and graphs by this process, captured ones too.
  int64_t num_launches() const;
  // All that was launched has ended well.
  void forget_launches();

  // What Weft holds on this card.
  struct Ledger {
    size_t device_bytes = 0, pinned_bytes = 0;
    int num_allocations = 0;
  };
  Ledger ledger() const;
  void count(size_t Ledger::*kind, size_t bytes, bool taken);

 private:
  Card(const Driver& driver, int index);
  [[noreturn]] void fail_for_good(api::Result result, std::string_view what);
  void require_alive() const;
  std::string recent_launches() const;
  friend struct Cards;

  const Driver& driver_;
  int index_;
  api::DeviceId id_ = 0;
  api::Context context_ = nullptr;
  std::string name_;
  int major_ = 0, minor_ = 0, num_multiprocessors_ = 0;
  size_t shared_bytes_ = 0, l2_bytes_ = 0, memory_bytes_ = 0;

  mutable std::mutex mutex_;
  std::optional<Error> failure_;
  std::vector<std::string> launches_;  // since the last synchronisation that went well: the first few and the last
  int64_t num_launches_ = 0;
  Ledger ledger_;
};

// The card's context is this thread's, until the end of the object. Within another one of the same card it asks nothing
// of the driver.
class Current {
 public:
  explicit Current(Card& card) : before_(innermost_), card_(card) {
    if (before_ == &card) return;
    card.check(card.driver().ctx_push_current(card.context()), "entering its context");
    innermost_ = &card;
  }
  ~Current() {
    if (before_ == &card_) return;
    innermost_ = before_;
    api::Context context = nullptr;
    card_.driver().ctx_pop_current(&context);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  static thread_local const Card* innermost_;
  const Card* const before_;
  Card& card_;
};

}  // namespace weft::cuda
