#include "weft/tensor.h"

#include <gtest/gtest.h>

#include "weft/error.h"

namespace weft {
namespace {

ErrorCode code_of(auto&& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "nothing was thrown";
  return ErrorCode::invalid_argument;
}

TEST(TensorView, IsRowMajorByDefault) {
  float data[24] = {};
  const TensorView view(data, DType::fp32, {2, 3, 4});
  EXPECT_EQ(view.stride(0), 12);
  EXPECT_EQ(view.stride(2), 1);
  EXPECT_EQ(view.size(), 24);
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(shape_string(view), "[2, 3, 4]");
}

TEST(TensorView, SlicesSelectsAndPermutesWithoutCopying) {
  float data[24] = {};
  const TensorView view(data, DType::fp32, {2, 3, 4});
  EXPECT_EQ(view.slice(1, 1, 3).as<float>(), data + 4);
  EXPECT_EQ(view.select(0, 1).as<float>(), data + 12);
  EXPECT_EQ(view.select(0, 1).rank(), 2);
  const TensorView turned = view.permute({1, 0, 2});
  EXPECT_EQ(turned.shape(0), 3);
  EXPECT_EQ(turned.stride(0), 4);
  EXPECT_FALSE(turned.is_contiguous());
}

TEST(TensorView, OfInt4BeginsOnBytes) {
  uint8_t data[24] = {};
  const TensorView row(data, DType::int4, {8});
  EXPECT_EQ(row.slice(0, 2, 7).as<uint8_t>(), data + 1);
  EXPECT_EQ(row.slice(0, 2, 7).shape(0), 5);
  EXPECT_EQ(row.select(0, 6).as<uint8_t>(), data + 3);
  EXPECT_EQ(code_of([&] { row.slice(0, 1, 5); }), ErrorCode::invalid_stride);
  EXPECT_EQ(code_of([&] { row.slice(0, 7, 7); }), ErrorCode::invalid_stride);
  EXPECT_EQ(code_of([&] { row.select(0, 3); }), ErrorCode::invalid_stride);
  // Rows of three: every second one begins within a byte, whichever axis is asked for.
  const TensorView odd(data, DType::int4, {4, 2, 3});
  EXPECT_EQ(odd.select(0, 1).as<uint8_t>(), data + 3);
  EXPECT_EQ(odd.slice(1, 0, 1).as<uint8_t>(), data);
  EXPECT_EQ(code_of([&] { odd.select(1, 1); }), ErrorCode::invalid_stride);
  EXPECT_EQ(code_of([&] { odd.permute({1, 0, 2}).slice(0, 1, 2); }), ErrorCode::invalid_stride);
  // Backwards, in which a division by two rounds towards the beginning.
  const int64_t shape[1] = {4}, strides[1] = {-1};
  const TensorView backwards(data + 4, DType::int4, shape, strides);
  EXPECT_EQ(backwards.select(0, 2).as<uint8_t>(), data + 3);
  EXPECT_EQ(code_of([&] { backwards.select(0, 1); }), ErrorCode::invalid_stride);
  try {
    row.slice(0, 1, 5);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "invalid_stride: index 1 of axis 0 (stride 1) lies within a byte, which holds two of int4; an "
                 "even number of elements from the first is needed: copy the tensor, or begin elsewhere");
  }
}

TEST(TensorView, RefusesWhatCannotBe) {
  float data[4] = {};
  EXPECT_EQ(code_of([&] { TensorView(data, DType::fp32, {-1}); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] {
              TensorView(data, DType::fp32, {int64_t{1} << 40, int64_t{1} << 40});
            }),
            ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { TensorView(data, DType::fp32, {4}).slice(0, 3, 5); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { TensorView(data, DType::fp32, {4}).select(0, INT64_MAX); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { TensorView(data, DType::fp32, {4}).select(-1, 0); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([&] { TensorView(data, DType::fp32, {2, 2}).permute({0, 0}); }), ErrorCode::invalid_shape);
  EXPECT_EQ(code_of([] { dtype_from_string("float"); }), ErrorCode::invalid_dtype);
}

TEST(Error, SaysTheWholeSentenceAroundAZeroByte) {
  EXPECT_STREQ(Error(ErrorCode::invalid_argument, std::string("key 'a\0b': is none", 18)).what(),
               "invalid_argument: key 'a?b': is none");
}

}  // namespace
}  // namespace weft
