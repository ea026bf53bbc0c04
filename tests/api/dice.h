// Random values for calls that are often wrong: mostly small and plausible, now and then at a limit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "weft/tensor.h"

namespace weft::testing {

class Dice {
 public:
  explicit Dice(uint64_t seed) : random_(seed) {}

  bool once_in(int n) { return below(n) == 0; }
  int below(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  int between(int low, int high) { return low + below(high - low + 1); }
  template <class T>
  T pick(std::initializer_list<T> of) {
    return of.begin()[below(static_cast<int>(of.size()))];
  }
  template <class List>
  auto& pick(List& of) {
    return of[static_cast<size_t>(below(static_cast<int>(of.size())))];
  }

  // A length, a count or an id that may be wrong. Never so large that a right one would take seconds or gigabytes.
  int odd_int() { return pick({0, 1, 2, 3, 7, 8, 16, 17, 64, 100, 1000, -1, -2, -64, INT32_MIN, INT32_MAX}); }
  int64_t odd_long() {
    return once_in(4) ? pick({int64_t{1} << 31, int64_t{1} << 40, int64_t{1} << 62, INT64_MIN, INT64_MAX, -INT64_MAX})
                      : int64_t{odd_int()};
  }
  double odd_number();
  DType dtype();
  Device device() { return once_in(8) ? Device::cuda(below(2)) : Device::cpu(); }
  std::string bytes(int most);

  // Changes one entry, drops or adds one, swaps two, or empties it.
  template <class T>
  void spoil(std::vector<T>& list, T entry) {
    const int how = below(6);
    if (how == 0) list.push_back(entry);
    if (list.empty()) return;
    if (how == 1) list.pop_back();
    if (how == 2) list.clear();
    if (how == 3) std::swap(pick(list), pick(list));
    if (how > 3) pick(list) = entry;
  }
  // Flips, inserts, removes and repeats bytes.
  void spoil(std::string& bytes);
  // Another view that lies within the memory of `view`, or one that must be refused.
  TensorView spoil(const TensorView& view);

 private:
  std::mt19937_64 random_;
};

}  // namespace weft::testing
