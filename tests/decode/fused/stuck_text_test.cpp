// What is said of workers that waited and gave up.
#include "decode/fused/cuda/stuck_text.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <vector>

#include "decode/fused/cuda/kernels/stuck.h"

namespace weft::decode::fused {
namespace {

std::string text_of(size_t workers, std::initializer_list<size_t> waiting) {
  std::vector<uint64_t> words(workers);
  for (const size_t w : waiting) words[w] = static_cast<uint64_t>(StuckAt::edge) << 32 | 7;
  return stuck_text(words, [](uint32_t phase) { return "phase " + std::to_string(phase); });
}

TEST(StuckText, NamesWhoIsLeastFarAndWhoDidNotWait) {
  EXPECT_EQ(text_of(3, {}), "");
  EXPECT_EQ(text_of(3, {0, 1, 2}),
            "worker 0 waits in phase 7 for what the phase before leaves, and gave up; 3 of 3 workers did");
  std::vector<uint64_t> words(4);
  words[0] = static_cast<uint64_t>(StuckAt::copy) << 32 | 9;
  words[2] = static_cast<uint64_t>(StuckAt::free_entry) << 32 | 8;
  EXPECT_EQ(stuck_text(words, [](uint32_t phase) { return "phase " + std::to_string(phase); }),
            "worker 2 waits in phase 8 for a free entry of its ring, and gave up; 2 of 4 workers did, all but 1, 3");
}

// A few ranges, however many workers there are.
TEST(StuckText, ListsManyWorkersInRanges) {
  const auto ends_with = [](const std::string& text, const std::string& end) { return text.ends_with(end); };
  const std::string few = text_of(132, {7, 90, 91, 93, 131});
  EXPECT_TRUE(ends_with(few, "; 5 of 132 workers did, all but 0 to 6, 8 to 89, 92, 94 to 130")) << few;
  std::vector<uint64_t> every_other(132);
  for (size_t w = 0; w < every_other.size(); w += 2) every_other[w] = static_cast<uint64_t>(StuckAt::edge) << 32;
  const std::string many = stuck_text(every_other, [](uint32_t) { return "a phase"; });
  EXPECT_TRUE(ends_with(many, "; 66 of 132 workers did, all but 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, ..."))
      << many;
}

}  // namespace
}  // namespace weft::decode::fused
