// Ten thousand random calls of the public API, most of them wrong: each one works, or throws weft::Error with a code
// and a sentence that names an argument. None crashes, hangs, or throws anything else.
//
// GTEST_RANDOM_SEED=N tries other calls; WEFT_TEST_CALL=N only those of its family, up to that one.
#include "bad_calls.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/support/gguf_writer.h"
#include "weft/error.h"

namespace weft {
namespace {

using testing::CallFamilies;
using testing::CallFamily;
using testing::Dice;

constexpr int kCalls = 10'000;

// What is wrong with an error; empty: nothing.
std::string complaint(const CallFamily& family, const Error& error) {
  const std::string_view message = error.what(), code = to_string(error.code());
  if (!message.starts_with(std::string(code) + ": ")) return "does not begin with its code";
  const std::string_view sentence = message.substr(code.size() + 2);
  if (sentence.size() < 20) return "is no sentence";
  const auto arguments = family.arguments();
  if (std::none_of(arguments.begin(), arguments.end(),
                   [&](std::string_view word) { return sentence.find(word) != sentence.npos; }))
    return "names no argument";
  return "";
}

struct Count {
  int worked = 0, refused = 0;
};

void try_call(CallFamily& family, uint64_t seed, Count& count) {
  try {
    Dice dice(seed);
    family.call(dice);
    ++count.worked;
  } catch (const Error& error) {
    ++count.refused;
    const std::string wrong = complaint(family, error);
    EXPECT_EQ(wrong, "") << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "threw no weft::Error: " << error.what();
  }
}

TEST(PublicApi, TenThousandBadCallsWorkOrAreRefusedWithASentence) {
  // Only what is built in: a compiler would take a tenth of a second a call. And no kernel of the user's is pruned.
  const testing::TempFolder cache;
  setenv("WEFT_CXX", "none", 1);
  setenv("WEFT_CACHE_DIR", cache.path("kernels").c_str(), 1);
  CallFamilies families;
  add_attention_calls(families);
  add_operator_calls(families);
  add_model_calls(families);

  const auto seed = static_cast<uint64_t>(GTEST_FLAG_GET(random_seed));
  const char* only = std::getenv("WEFT_TEST_CALL");
  std::vector<Count> counts(families.size());
  for (int i = 0; i < (only != nullptr ? std::atoi(only) + 1 : kCalls); ++i) {
    const size_t f = static_cast<size_t>(i) % families.size();
    if (only != nullptr && f != static_cast<size_t>(std::atoi(only)) % families.size()) continue;
    SCOPED_TRACE("call " + std::to_string(i) + " (" + families[f]->name() +
                 "), again with GTEST_RANDOM_SEED=" + std::to_string(seed) + " WEFT_TEST_CALL=" + std::to_string(i));
    try_call(*families[f], seed << 32 | static_cast<uint64_t>(i), counts[f]);
  }
  if (only != nullptr) return;
  // Neither half is empty in any family.
  for (size_t f = 0; f < families.size(); ++f) {
    EXPECT_GT(counts[f].worked, 30) << families[f]->name();
    EXPECT_GT(counts[f].refused, 100) << families[f]->name();
  }
}

}  // namespace
}  // namespace weft
