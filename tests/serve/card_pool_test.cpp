// The page pool of a card, whose driver says what is free: a card whose launches do nothing.
#include <gtest/gtest.h>

#include "decode/forward.h"
#include "serve/forward_runner.h"
#include "tests/device/cuda/fake_card.h"
#include "weft/error.h"

namespace weft::serve {
namespace {

class CardPool : public testing::FakeCard {
 protected:
  CardPool() { have_memory_without_bytes(); }
  // Of an engine that is not told how many.
  int64_t pages(uint64_t free_bytes) const {
    driver().free_bytes = free_bytes;
    return make_forward_runner(file_, {.forward = forward_, .max_running = kRunning})->limits().num_pages;
  }
  // That hold so many tokens, with a page that is not full for each choice.
  static int64_t pages_for(int64_t tokens) { return pages_of(tokens, 16) + kRunning; }
  static constexpr int kRunning = 4;
  const ModelFile file_{WEFT_TEST_DATA "/stories260K.gguf"};
  const ForwardOptions forward_{.device = Device::cuda(0)};
  const int64_t context_ = file_.config().context_length;
};

TEST_F(CardPool, IsTheShareOfItsFreeMemoryThatItIsOfAnyDevice) {
  uint64_t free_bytes = uint64_t{1} << 20;
  while (decode::tokens_that_fit(free_bytes, file_, forward_) < 2 * context_) free_bytes += 1 << 14;
  const int64_t fit = decode::tokens_that_fit(free_bytes, file_, forward_);
  ASSERT_LT(fit, kRunning * context_);
  EXPECT_EQ(pages(free_bytes), pages_for(fit));
}

TEST_F(CardPool, IsAContextAtLeastAndOneForEachChoiceAtMost) {
  EXPECT_EQ(pages(0), pages_for(context_));
  EXPECT_EQ(pages(uint64_t{80} << 30), pages_for(kRunning * context_));
}

TEST_F(CardPool, IsRefusedWhereThereIsNoSuchCard) {
  try {
    make_forward_runner(file_, {.forward = {.device = Device::cuda(7)}});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_device);
    EXPECT_NE(std::string(error.what()).find("cuda:7 is not there"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace weft::serve
