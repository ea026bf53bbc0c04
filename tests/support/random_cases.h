// Random numbers that are the same on every machine, and how many cases a test draws.
//
//   for (const uint64_t seed : case_seeds(200)) { Random random(seed); ... }
//
// WEFT_RANDOM_SEED=7 draws other cases, WEFT_RANDOM_CASES=20000 so many, WEFT_RANDOM_FIRST=12 leaves out the first 12;
// a test ends with WEFT_RANDOM_FAILURES=3 of them.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace weft::testing {

class Random {
 public:
  explicit Random(uint64_t seed) : engine_(seed) {}
  // 0 to n - 1.
  int64_t below(int64_t n) { return static_cast<int64_t>(engine_() % static_cast<uint64_t>(n)); }
  int64_t between(int64_t least, int64_t most) { return least + below(most - least + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class List>
  auto& pick(List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }
  template <class T>
  const T& pick(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int64_t>(list.size())));
  }
  // An index of the list, as often as its weight says.
  template <class List, class Weight>
  size_t pick_weighted(const List& list, const Weight& weight) {
    int64_t sum = 0;
    for (const auto& item : list) sum += weight(item);
    int64_t left = below(sum);
    size_t index = 0;
    for (const auto& item : list) {
      if ((left -= weight(item)) < 0) break;
      ++index;
    }
    return index;
  }
  template <class List>
  void shuffle(List& list) {
    for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[static_cast<size_t>(below(int64_t(i)))]);
  }

 private:
  std::mt19937_64 engine_;
};

// A seed for each of `usual` cases, or of as many as the environment says.
std::vector<uint64_t> case_seeds(int64_t usual);
// How many failures a test looks for.
size_t most_failures();
// What runs the case of this seed alone: "WEFT_RANDOM_SEED=1 WEFT_RANDOM_FIRST=17 WEFT_RANDOM_CASES=1".
std::string only_case(size_t number);

}  // namespace weft::testing
