// Boxes of tensors have the right bytes in shared memory and go back to their places; the machine finds what is wrong
// with copies of boxes.
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "tests/simt/boxes.h"
#include "tests/simt/kernels/args.h"
#include "tests/simt/machine/machine.h"

extern "C" void weft_boxes(weft::BoxArgs args);
#define WEFT_TENSOR(name) extern "C" void weft_##name(weft::TensorArgs args)
WEFT_TENSOR(box_read_early);
WEFT_TENSOR(box_bytes);
WEFT_TENSOR(box_askew);
WEFT_TENSOR(box_of_three);
WEFT_TENSOR(box_odd);
WEFT_TENSOR(box_stored_before);
WEFT_TENSOR(box_stored_without_fence);
WEFT_TENSOR(box_multiplied_early);
WEFT_TENSOR(box_in_another_swizzle);
WEFT_TENSOR(box_filled_early);

namespace weft::simt {
namespace {

class SimtBoxes : public testing::TestWithParam<BoxCase> {};

// Against what a reader of PTX's manual expects, element by element.
TEST_P(SimtBoxes, LieInSharedMemoryAsTheirSwizzleSaysAndGoBack) {
  const BoxCase& test = GetParam();
  Memory memory;
  std::vector<unsigned char> values(test.tensor_bytes());
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned char>(i * 37 % 251);
  const auto from = memory.make("from", values), to = memory.make("to", std::vector<unsigned char>(values.size(), 99));
  const abi::TensorLayout layout = test.layout(from.data());
  const auto shared = memory.make<unsigned>("shared", static_cast<size_t>(layout.box_bytes() / 4));
  const BoxArgs args = test.args(from.data(), to.data(), shared.data());
  run_in_all_orders(memory, {.threads = 64, .shared_bytes = kMostBoxBytes + 8}, [&] { weft_boxes(args); });

  const auto* const box = reinterpret_cast<const unsigned char*>(shared.data());
  std::vector<unsigned char> expected(values.size(), 99);
  const auto bytes = static_cast<size_t>(layout.element_bytes);
  for (size_t i = 0; i * bytes < static_cast<size_t>(layout.box_bytes()); ++i) {
    size_t rest = i, source = 0, target = 0;
    bool from_inside = true, to_inside = true;
    for (int dim = 0; dim < layout.dims; rest /= static_cast<size_t>(layout.box[dim++])) {
      const long at = static_cast<long>(rest % static_cast<size_t>(layout.box[dim]));
      const auto locate = [&](const int(&corner)[5], size_t& place, bool& is_inside) {
        const long coordinate = corner[dim] + at;
        is_inside = is_inside && coordinate >= 0 && coordinate < static_cast<long>(layout.sizes[dim]);
        place += static_cast<size_t>(coordinate) * layout.strides[dim];
      };
      locate(args.from_at, source, from_inside);
      locate(args.to_at, target, to_inside);
    }
    // Chunk c of the 128-byte line l lies at c ^ l % (chunks of the span), counted within the span.
    const size_t byte = i * bytes, line = byte / 128, chunks = static_cast<size_t>(abi::span_of(layout.swizzle)) / 16,
                 chunk = byte / 16 % 8, swizzled = chunk ^ (line % chunks);
    const size_t place = line * 128 + swizzled * 16 + byte % 16;
    for (size_t b = 0; b < bytes; ++b) {
      const unsigned char value = from_inside ? values[source + b] : 0;
      ASSERT_EQ(box[place + b], value) << "element " << i;
      if (to_inside) expected[target + b] = value;
    }
  }
  EXPECT_EQ(std::vector<unsigned char>(to.begin(), to.end()), expected);
}
INSTANTIATE_TEST_SUITE_P(Cases, SimtBoxes, testing::ValuesIn(kBoxCases));

class SimtTensor : public testing::Test {
 protected:
  using Kernel = void (*)(TensorArgs);
  // What the machine says has all these parts, whoever goes first.
  void finds(Kernel kernel, std::initializer_list<const char*> parts) {
    for (const Order order : {Order::up, Order::down, Order::random}) {
      const std::string before = memory_.content();
      try {
        simt::run(memory_, {.threads = 128, .shared_bytes = 2 * 8192 + 8, .order = order}, [&] { kernel(args_); });
        ADD_FAILURE() << "nothing was found";
      } catch (const Fault& fault) {
        for (const char* part : parts)
          EXPECT_NE(std::string(fault.what()).find(part), std::string::npos) << fault.what();
      }
      memory_.restore(before);
    }
  }

  Memory memory_;
  std::span<unsigned short> x_ = memory_.make<unsigned short>("x", 200 * 64);
  std::span<unsigned> y_ = memory_.make<unsigned>("y", 128);
  TensorArgs args_ = {.map = {.encoded = {},
                              .layout = {.data = x_.data(),
                                         .dims = 2,
                                         .element_bytes = 2,
                                         .sizes = {64, 200},
                                         .strides = {2, 128},
                                         .box = {64, 64},
                                         .swizzle = abi::Swizzle::bytes_128}},
                      .y = y_.data()};
};

TEST_F(SimtTensor, BoxThatIsReadBeforeItHasLanded) {
  finds(weft_box_read_early, {"box_read_early:5 reads 4 bytes at byte ", "a bulk copy of thread 0 (",
                              "is still in flight there; wait for phase 0 of the mbarrier at byte 16384"});
}
// What lies outside of the tensor counts too.
TEST_F(SimtTensor, BytesOfABoxThatNobodyExpects) {
  finds(weft_box_bytes, {"box_bytes:3 completes a copy on the mbarrier at byte 16384: phase 0 expects 6144 bytes",
                         "and copies bring 8192"});
}
TEST_F(SimtTensor, BoxWhosePatternBeginsElsewhere) {
  finds(weft_box_askew, {"box_askew:3 loads a box with rows of 128 bytes in 8192 bytes at byte 128 of cta 0's",
                         "not aligned to 1024 bytes"});
}
TEST_F(SimtTensor, BoxByTooManyCoordinates) {
  finds(weft_box_of_three, {"box_of_three:3 loads a box of a tensor of 2 dimensions by 3 coordinates"});
}
TEST_F(SimtTensor, BoxFromTheMiddleOf16Bytes) {
  finds(weft_box_odd, {"box_odd:3 loads a box from byte 6 of rows on: no multiple of 16"});
}
TEST_F(SimtTensor, BoxThatIsStoredFromBeforeTheTensor) {
  finds(weft_box_stored_before, {"box_stored_before:2 stores a box from -5 of dimension 1 on: before the tensor"});
}
TEST_F(SimtTensor, StoresBeforeABoxIsStoredWithoutAFence) {
  finds(weft_box_stored_without_fence,
        {"box_stored_without_fence:4 stores from ", "through the generic proxy, and no fence_async_shared()"});
}
TEST_F(SimtTensor, BoxThatAWarpMultipliesBeforeItHasLanded) {
  finds(weft_box_multiplied_early, {"box_multiplied_early:6 multiplies A of 16 bytes at byte "});
}
TEST_F(SimtTensor, BoxThatIsMultipliedInAnotherSwizzle) {
  finds(weft_box_in_another_swizzle,
        {"box_in_another_swizzle:8 multiplies A of 16 bytes at byte ", "box_in_another_swizzle:3",
         "brought it in rows of 128 bytes, and the descriptor's have 64"});
}
TEST_F(SimtTensor, BoxThatIsFilledWhileAProductReadsIt) {
  finds(weft_box_filled_early, {"box_filled_early:9 waits for a product (", "box_filled_early:6",
                                "that reads A of 16 bytes at byte ", "a bulk copy of thread 0 ("});
}

}  // namespace
}  // namespace weft::simt
