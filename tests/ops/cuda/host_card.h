// A card that is the host machine (tests/simt/host): the product uploads, launches and captures as it would with a
// driver that is none (tests/device/cuda/fake_driver.h), and every kernel's text runs in the machine, all accesses
// watched.
//
//   TEST_F(HostCard, ...) { ops::linear(matrix, {.x = place(x), ...}, Stream::cuda(nullptr)); }
//
// The card has one multiprocessor. Kernels run in one order of threads, unless a test wants all.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>
#include <vector>

#include "tests/device/cuda/fake_card.h"
#include "tests/simt/host/host_machine.h"
#include "weft/device.h"

namespace weft::testing {

class HostCard : public FakeCard {
 protected:
  explicit HostCard(bool in_all_orders = false, std::string_view architecture = "sm_90a");
  ~HostCard() override;

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
