#include "tests/support/random_cases.h"

#include <fmt/format.h>

#include <cstdlib>

namespace weft::testing {
namespace {

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr || *text == 0 ? otherwise : std::strtoull(text, nullptr, 10);
}

// Neighbouring numbers become seeds that have nothing in common (splitmix64).
uint64_t mixed(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

uint64_t seed_of_all() { return number_of("WEFT_RANDOM_SEED", 1); }
uint64_t first_case() { return number_of("WEFT_RANDOM_FIRST", 0); }

}  // namespace

std::vector<uint64_t> case_seeds(int64_t usual) {
  const uint64_t count = number_of("WEFT_RANDOM_CASES", static_cast<uint64_t>(usual));
  std::vector<uint64_t> seeds;
  for (uint64_t i = 0; i < count; ++i) seeds.push_back(mixed(mixed(seed_of_all()) + first_case() + i));
  return seeds;
}

size_t most_failures() { return number_of("WEFT_RANDOM_FAILURES", 3); }

std::string only_case(size_t number) {
  return fmt::format("WEFT_RANDOM_SEED={} WEFT_RANDOM_FIRST={} WEFT_RANDOM_CASES=1", seed_of_all(),
                     first_case() + number);
}

}  // namespace weft::testing
