// Offsets beyond 2^32 elements, in memory that the host machine has only where something lies.
#include <gtest/gtest.h>

#include <cstring>

#include "far_pages.h"
#include "host_target.h"

namespace weft {
namespace {

TEST(HostMachineFar, PagesBeyondFourBillionElementsAreRead) {
  for (const DType type : {DType::fp32, DType::bf16}) {
    const testing::FarPages pages{
        {.q_dtype = type, .kv_dtype = type, .o_dtype = type, .head_dim_qk = 16, .head_dim_vo = 16}};
    const std::vector<char> content = pages.content();
    std::vector<char> near(static_cast<size_t>(8 * pages.page_bytes()), '\xff'), far(512 << 10, '\xff');
    char* const base = static_cast<char*>(testing::host_machine().place(near.data(), near.size()));
    constexpr int64_t kMargin = 256 << 10;
    testing::host_memory().leave_gap(static_cast<size_t>(pages.far() * pages.page_bytes() - kMargin));
    char* const behind = static_cast<char*>(testing::host_machine().place(far.data(), far.size()));
    char* const far_pages = base + pages.far() * pages.page_bytes();
    ASSERT_GE(far_pages, behind);
    ASSERT_LE(far_pages + content.size(), behind + far.size());
    std::memcpy(base + testing::FarPages::kNear * pages.page_bytes(), content.data(), content.size());
    std::memcpy(far_pages, content.data(), content.size());
    const std::string expected = pages.output(testing::host_machine(), base, testing::FarPages::kNear);
    EXPECT_NE(expected, std::string(expected.size(), '\0'));
    EXPECT_EQ(pages.output(testing::host_machine(), base, pages.far()), expected) << to_string(type);
    testing::host_machine().release(behind, far.size());
    testing::host_machine().release(base, near.size());
  }
}

}  // namespace
}  // namespace weft
