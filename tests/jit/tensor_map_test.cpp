// Maps of tensors: which they describe, what the driver is told of them, and how often.
#include "jit/cuda/tensor_map.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "support.h"
#include "tests/device/cuda/fake_driver.h"

namespace weft::cuda {
namespace {

fake::State& state() {
  void* library = dlopen(WEFT_FAKE_DRIVER_FOLDER "/libcuda.so.1", RTLD_NOW);
  return *reinterpret_cast<decltype(&weft_fake_driver)>(dlsym(library, "weft_fake_driver"))();
}

// Keys of 8 heads of 128 dims: 64 keys of one head at once, in two panels.
alignas(16) char memory[64];
abi::TensorLayout keys() {
  return {.data = memory,
          .dims = 3,
          .element_bytes = 2,
          .sizes = {64, 1000, 2},
          .strides = {2, 2048, 128},
          .box = {64, 64, 2},
          .swizzle = abi::Swizzle::bytes_128};
}

TEST(TensorMap, IsEncodedOnceForATensor) {
  state() = {};
  const auto count = [] { return std::count(state().calls.begin(), state().calls.end(), "cuTensorMapEncodeTiled"); };
  const abi::TensorMap map = tensor_map(cards(), Device::cuda(0), keys(), "k");
  EXPECT_EQ(count(), 1);
  EXPECT_EQ(state().tensor_map,
            (std::vector<unsigned long long>{3, api::kUint16, 3, 64, 2048, 64, 1000, 128, 64, 2, 0, 2}));
  EXPECT_TRUE(map.layout == keys());
  void* data = nullptr;
  std::memcpy(&data, map.encoded, sizeof data);
  EXPECT_EQ(data, memory);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(&map) % api::kTensorMapAlignment, 0u);

  EXPECT_EQ(std::memcmp(tensor_map(cards(), Device::cuda(0), keys(), "k").encoded, map.encoded, sizeof map.encoded), 0);
  EXPECT_EQ(count(), 1);
  abi::TensorLayout longer = keys();
  longer.sizes[1] = 1001;
  EXPECT_EQ(tensor_map(cards(), Device::cuda(0), longer, "k").layout.sizes[1], 1001u);
  EXPECT_EQ(count(), 2);
}

TEST(TensorMap, IsRefusedWithWhatIsRequired) {
  struct Case {
    void (*change)(abi::TensorLayout&);
    const char* why;
  };
  const Case cases[] = {
      {[](abi::TensorLayout& of) { of.dims = 6; }, "required 1 to 5 dimensions, and it has 6"},
      {[](abi::TensorLayout& of) { of.element_bytes = 3; },
       "required elements of 1, 2, 4 or 8 bytes, and it has some of 3"},
      {[](abi::TensorLayout& of) { of.data = memory + 6; },
       "required data at a multiple of 16 bytes, and it begins 6 bytes behind one"},
      {[](abi::TensorLayout& of) { of.sizes[1] = 0; },
       "required 1 to 2^32 elements of a dimension, and dimension 1 has 0"},
      {[](abi::TensorLayout& of) { of.strides[1] = 200; },
       "required strides that are multiples of 16 bytes below 2^40, and dimension 1 has one of 200"},
      {[](abi::TensorLayout& of) { of.strides[2] = 1ull << 40; },
       "required strides that are multiples of 16 bytes below 2^40, and dimension 2 has one of 1099511627776"},
      {[](abi::TensorLayout& of) { of.box[1] = 257; },
       "required a box of 1 to 256 elements of a dimension, and dimension 1 has 257"},
      {[](abi::TensorLayout& of) { of.box[0] = 12, of.swizzle = abi::Swizzle::none; },
       "required rows of a box that are multiples of 16 bytes, and they have 24"},
      {[](abi::TensorLayout& of) { of.box[0] = 80; },
       "required rows of a box as long as the 128 bytes that its swizzle spans, and they have 160"}};
  for (const Case& test : cases) {
    abi::TensorLayout layout = keys();
    test.change(layout);
    EXPECT_EQ(why_no_map(layout), test.why);
    const Error error = jit::error_of([&] { tensor_map(cards(), Device::cuda(0), layout, "k"); });
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_EQ(std::string(error.what()), fmt::format("unsupported: k: {}: no tensor map describes it", test.why));
  }
  EXPECT_EQ(why_no_map(keys()), "");
}

TEST(TensorMap, RefusalOfTheDriverIsItsError) {
  state() = {};
  state().fails = "cuTensorMapEncodeTiled";
  state().result = api::kInvalidValue;
  abi::TensorLayout other = keys();
  other.sizes[1] = 77;
  EXPECT_THROW(tensor_map(cards(), Device::cuda(0), other, "k"), std::exception);
  state() = {};
  EXPECT_EQ(tensor_map(cards(), Device::cuda(0), other, "k").layout.sizes[1], 77u);
}

}  // namespace
}  // namespace weft::cuda
