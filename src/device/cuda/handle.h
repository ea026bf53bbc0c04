// What owns a thing of the driver's: a stream, an event, a graph, a module. Its end throws nothing, and leaves alone
// what belongs to a card that is lost.
#pragma once

#include <utility>

#include "device/cuda/card.h"

namespace weft::cuda {

template <class T, api::Result (*Driver::*destroy)(T)>
class Handle {
 public:
  Handle() = default;
  Handle(Card& card, T handle) : card_(&card), handle_(handle) {}
  ~Handle() { reset(); }
  Handle(Handle&& other) noexcept : card_(other.card_), handle_(std::exchange(other.handle_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      card_ = other.card_;
      handle_ = std::exchange(other.handle_, nullptr);
    }
    return *this;
  }
  T get() const { return handle_; }
  Card& card() const { return *card_; }
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  void reset() noexcept {
    if (handle_ == nullptr || card_->is_lost()) return;
    api::Context before = nullptr;
    const Driver& driver = card_->driver();
    if (driver.ctx_push_current(card_->context()) != api::kSuccess) return;
    (driver.*destroy)(handle_);
    driver.ctx_pop_current(&before);
    handle_ = nullptr;
  }
  Card* card_ = nullptr;
  T handle_ = nullptr;
};

}  // namespace weft::cuda
