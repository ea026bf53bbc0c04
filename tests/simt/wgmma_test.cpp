// Products of warpgroups have the right values, in every form.
#include <gtest/gtest.h>

#include <bit>
#include <random>
#include <vector>

#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/device.h"
#include "tests/simt/machine/machine.h"

extern "C" void weft_wgmma_form(int form, weft::WgmmaFormArgs args);

namespace weft::simt {
namespace {

// Of small integers: exact in any order of sums.
struct Operand {
  std::vector<int> values;                // [mn][kFormDepth]
  std::vector<unsigned short> tile = {};  // as the tile's rows have them
};
Operand operand(std::mt19937& random, int mn, abi::Major major, bool bf16) {
  Operand made;
  for (int i = 0; i < mn * kFormDepth; ++i) made.values.push_back(static_cast<int>(random() % 17) - 8);
  for (int row = 0; row < (major == abi::Major::k ? mn : kFormDepth); ++row)
    for (int column = 0; column < (major == abi::Major::k ? kFormDepth : mn); ++column) {
      const int value = made.values[static_cast<size_t>(major == abi::Major::k ? row * kFormDepth + column
                                                                               : column * kFormDepth + row)];
      made.tile.push_back(bf16 ? static_cast<unsigned short>(std::bit_cast<unsigned>(static_cast<float>(value)) >> 16)
                               : to_fp16(static_cast<float>(value)));
    }
  return made;
}

class SimtWgmma : public testing::TestWithParam<int> {};

TEST_P(SimtWgmma, IsExactOnIntegers) {
  const WgmmaForm& form = forms::kAll[GetParam()];
  std::mt19937 random(20261127);
  const Operand a = operand(random, 64, form.a, form.bf16), b = operand(random, form.n, form.b, form.bf16);
  Memory memory;
  const auto d = memory.make<float>("d", static_cast<size_t>(64 * form.n));
  const WgmmaFormArgs args{memory.make("a", a.tile).data(), memory.make("b", b.tile).data(), d.data()};
  run_in_all_orders(memory, {.threads = 128, .shared_bytes = kFormShared}, [&] { weft_wgmma_form(GetParam(), args); });
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j < form.n; ++j) {
      int expected = GetParam() % 2 == 1 ? 7 - i : 0;
      for (int k = 0; k < kFormDepth; ++k)
        expected +=
            a.values[static_cast<size_t>(i * kFormDepth + k)] * b.values[static_cast<size_t>(j * kFormDepth + k)];
      ASSERT_EQ(d[static_cast<size_t>(i * form.n + j)], static_cast<float>(expected)) << i << ", " << j;
    }
}
INSTANTIATE_TEST_SUITE_P(Forms, SimtWgmma, testing::Range(0, kWgmmaForms));

}  // namespace
}  // namespace weft::simt
