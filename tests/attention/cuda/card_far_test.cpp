// A pool of more than 2^32 elements on a card.
#include <gtest/gtest.h>

#include "device/cuda/memory.h"
#include "far_pages.h"

namespace weft {
namespace {

TEST(CardFar, PagesBeyondFourBillionElementsAreRead) {
  cuda::Card& card = cuda::Card::at(0);
  for (const DType compute : {DType::fp32, DType::bf16}) {
    if (compute == DType::bf16 && card.capability_major() < 8) continue;  // has no such products
    const testing::FarPages pages{{.q_dtype = DType::bf16,
                                   .kv_dtype = DType::bf16,
                                   .o_dtype = DType::bf16,
                                   .compute = compute,
                                   .head_dim_qk = 128,
                                   .head_dim_vo = 128}};
    const Workspace pool(Device::cuda(), static_cast<size_t>(pages.num_pages() * pages.page_bytes()));  // 8.6 GB, zeros
    char* const base = static_cast<char*>(pool.data());
    const std::vector<char> content = pages.content();
    for (const int64_t first : {testing::FarPages::kNear, pages.far()})
      cuda::copy_to_card(card, base + first * pages.page_bytes(), content.data(), content.size(), nullptr);
    const testing::Target& target = *testing::targets().front();
    const std::string expected = pages.output(target, base, testing::FarPages::kNear);
    EXPECT_NE(expected, std::string(expected.size(), '\0'));
    EXPECT_EQ(pages.output(target, base, pages.far()), expected) << to_string(compute);
  }
}

}  // namespace
}  // namespace weft
