// A card that is the host machine: the product compiles, uploads and launches as it would, driver and compiler are none
// (tests/device/cuda/fake_driver.h, fake_nvrtc.cpp), and every launch runs the kernel's text in tests/simt/machine, all
// accesses watched.
//
//   TEST_F(HostCard, ...) { cuda::Card& card = cuda::Card::at(0); ... ops::linear(card, ...); }
//
// The card has one multiprocessor; kernels are those of instances.h.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/device/cuda/fake_card.h"
#include "tests/simt/machine/machine.h"
#include "weft/device.h"

namespace weft::testing {

class HostCard : public FakeCard {
 protected:
  HostCard();
  // Its memory is that of another one who allocates for the product.
  explicit HostCard(simt::Memory& memory);

  // A copy on the card, which lives as long as the test.
  template <class T>
  T* place(const std::vector<T>& values) {
    return static_cast<T*>(place_bytes(values.data(), values.size() * sizeof(T)));
  }
  // Memory of the card full of NaN.
  template <class T>
  T* poisoned(size_t count) {
    return place(std::vector<T>(count, poison<T>()));
  }
  template <class T>
  std::vector<T> fetch(const T* from, size_t count) {
    return {from, from + count};  // it is the host's memory
  }
  std::vector<std::string> launched;  // symbols, in order
  // For those whose kernels the driver does not launch: keeps the work for the graph where a stream is being captured,
  // else false.
  static bool defer(std::function<void()> work);
  static bool is_capturing();

 private:
  template <class T>
  static T poison() {
    T value;
    std::memset(static_cast<void*>(&value), 0xff, sizeof value);
    return value;
  }
  void* place_bytes(const void* from, size_t bytes);
  std::vector<Workspace> placed_;
};

}  // namespace weft::testing
