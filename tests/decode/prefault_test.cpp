// Memory of pages that come next is backed ahead of use, and no more than that.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "decode/sequences.h"

namespace weft::decode {
namespace {

constexpr int64_t kPageSize = 16;
constexpr size_t kSystemPage = 4096;

bool system_backs_ahead() {
  Workspace probe(Device::cpu(), size_t{4} << 20);
  return madvise(probe.data(), size_t{2} << 20, MADV_POPULATE_WRITE) == 0;
}

// The share of a tensor's pages [begin, end) that the system backs.
double backed(const TensorView& side, int64_t begin, int64_t end) {
  const auto first = reinterpret_cast<uintptr_t>(side.select(0, begin).data()) / kSystemPage * kSystemPage;
  const auto last = reinterpret_cast<uintptr_t>(side.select(0, end - 1).data());
  std::vector<unsigned char> in_memory((last - first) / kSystemPage + 1);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(first), last - first, in_memory.data()), 0);
  const auto count = std::count_if(in_memory.begin(), in_memory.end(), [](unsigned char byte) { return byte & 1; });
  return static_cast<double>(count) / static_cast<double>(in_memory.size());
}

ModelConfig config_of_two_layers() {
  ModelConfig config;
  config.num_layers = 2;
  config.num_kv_heads = 1;
  config.head_dim = 64;
  config.context_length = 1 << 20;
  return config;
}

struct Pool {
  explicit Pool(DType dtype)
      : sequences(config_of_two_layers(), {.max_tokens = 1 << 18, .max_sequences = 2, .page_size = kPageSize}, dtype) {}
  std::vector<TensorView> sides() const {
    std::vector<TensorView> all;
    for (int index = 0; index < 2; ++index) {
      const KvCache cache = sequences.layer(index);
      for (const TensorView& side : {cache.k, cache.v, cache.k_scale, cache.v_scale})
        if (side) all.push_back(side);
    }
    return all;
  }
  Sequences sequences;
};

class Prefault : public ::testing::TestWithParam<DType> {
 protected:
  void SetUp() override {
    if (!system_backs_ahead()) GTEST_SKIP() << "the system has no MADV_POPULATE_WRITE";
  }
};

TEST_P(Prefault, PagesThatComeNextAreBackedAndOthersAreNot) {
  Pool pool(GetParam());
  const int64_t pages = pool.sequences.num_pages();
  int calls = 0;
  while (pool.sequences.prefault()) ASSERT_LT(++calls, 10000);
  EXPECT_GT(calls, 0);
  for (const TensorView& side : pool.sides()) {
    EXPECT_GT(backed(side, 0, pages / 10), 0.99);
    const bool scale = side.shape(3) == 1;  // smaller than a huge page, which its neighbours lie in, too
    EXPECT_LE(backed(side, pages / 4, pages), scale ? 1 : 0.2);
  }
}

TEST_P(Prefault, ItGoesOnWithTheUseAndChangesNoByte) {
  Pool pool(GetParam());
  const int64_t pages = pool.sequences.num_pages();
  const auto sequence = pool.sequences.add();
  pool.sequences.append(sequence, pages / 2 * kPageSize);
  const TensorView k = pool.sequences.layer(1).k;
  const auto bytes = static_cast<size_t>(pages / 2 * k.stride(0) * bits_of(k.dtype()) / 8);
  std::memset(k.data(), 0x5a, bytes);
  while (pool.sequences.prefault()) {
  }
  const auto* data = static_cast<const unsigned char*>(k.data());
  EXPECT_TRUE(std::all_of(data, data + bytes, [](unsigned char byte) { return byte == 0x5a; }));
  for (const TensorView& side : pool.sides()) EXPECT_GT(backed(side, pages / 2 + 1, pages / 2 + pages / 10), 0.99);
  EXPECT_FALSE(pool.sequences.prefault());
}

TEST_P(Prefault, AFullPoolHasNothingToCome) {
  Pool pool(GetParam());
  const auto sequence = pool.sequences.add();
  pool.sequences.append(sequence, pool.sequences.num_pages() * kPageSize);
  EXPECT_FALSE(pool.sequences.prefault());
}

INSTANTIATE_TEST_SUITE_P(KvDtypes, Prefault, ::testing::Values(DType::fp32, DType::bf16, DType::int8),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

}  // namespace
}  // namespace weft::decode
