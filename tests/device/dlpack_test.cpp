#include "weft/dlpack.h"

#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace weft {
namespace {

// The structs of DLPack, declared by their published binary layout.
struct DlDevice {
  int32_t device_type, device_id;
};
struct DlDataType {
  uint8_t code, bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlDataType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct DlManaged {
  DlTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DlManaged*);
};
struct DlVersion {
  uint32_t major, minor;
};
struct DlVersioned {
  DlVersion version;
  void* manager_ctx;
  void (*deleter)(DlVersioned*);
  uint64_t flags;
  DlTensor dl_tensor;
};

class FromDlpack : public ::testing::Test {
 protected:
  float data_[24] = {};
  int64_t shape_[8] = {2, 3, 4, 1, 1, 1, 1, 1};
  int64_t strides_[3] = {1, 2, 6};
  DlTensor t_{data_, {1, 0}, 3, {2, 32, 1}, shape_, nullptr, 0};

  ErrorCode refusal() const {
    try {
      from_dlpack(t_);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "nothing was thrown";
    return ErrorCode::io_error;
  }
};

TEST_F(FromDlpack, TakesNullStridesAsRowMajor) {
  const TensorView view = from_dlpack(t_);
  EXPECT_EQ(view.data(), data_);
  EXPECT_EQ(shape_string(view), "[2, 3, 4]");
  EXPECT_TRUE(view.is_contiguous());
  EXPECT_EQ(view.dtype(), DType::fp32);
  EXPECT_EQ(view.device(), Device::cpu());
}

TEST_F(FromDlpack, KeepsStridesAndAddsTheByteOffset) {
  t_.strides = strides_;
  t_.byte_offset = 8;
  const TensorView view = from_dlpack(t_);
  EXPECT_EQ(view.data(), data_ + 2);
  EXPECT_EQ(view.stride(0), 1);
  EXPECT_EQ(view.stride(2), 6);
}

TEST_F(FromDlpack, KnowsDevices) {
  t_.device = {3, 0};  // pinned host memory
  EXPECT_EQ(from_dlpack(t_).device(), Device::cuda_host());
  EXPECT_EQ(DlpackTensor<DlTensor>(from_dlpack(t_)).tensor.device.device_type, 3);
  t_.device = {2, 3};
  EXPECT_EQ(from_dlpack(t_).device(), Device::cuda(3));
  t_.device = {4, 0};
  EXPECT_EQ(refusal(), ErrorCode::invalid_device);
}

TEST_F(FromDlpack, TakesBoolAsBytes) {
  t_.dtype = {6, 8, 1};
  EXPECT_EQ(from_dlpack(t_).dtype(), DType::uint8);
}

TEST_F(FromDlpack, TakesAScalarAndAnEmptyTensor) {
  t_.ndim = 0;
  t_.shape = nullptr;
  EXPECT_EQ(from_dlpack(t_).size(), 1);
  int64_t none[1] = {0};
  const DlTensor empty{nullptr, {1, 0}, 1, {2, 32, 1}, none, nullptr, 0};
  EXPECT_EQ(from_dlpack(empty).size(), 0);
}

TEST_F(FromDlpack, RefusesWhatAViewCannotBe) {
  const DlTensor good = t_;
  t_.dtype.lanes = 4;
  EXPECT_EQ(refusal(), ErrorCode::invalid_dtype);
  t_ = good, t_.dtype = {5, 64, 1};  // complex
  EXPECT_EQ(refusal(), ErrorCode::invalid_dtype);
  t_ = good, t_.dtype = {2, 8, 1};
  EXPECT_EQ(refusal(), ErrorCode::invalid_dtype);
  t_ = good, t_.ndim = kMaxRank + 1;
  EXPECT_EQ(refusal(), ErrorCode::invalid_shape);
  t_ = good, t_.ndim = -1;
  EXPECT_EQ(refusal(), ErrorCode::invalid_shape);
  t_ = good, t_.shape = nullptr;
  EXPECT_EQ(refusal(), ErrorCode::invalid_shape);
  t_ = good, shape_[1] = -3;
  EXPECT_EQ(refusal(), ErrorCode::invalid_shape);
  shape_[1] = 3;
  t_ = good, t_.data = nullptr;
  EXPECT_EQ(refusal(), ErrorCode::invalid_argument);
  t_ = good, t_.byte_offset = 2;
  EXPECT_EQ(refusal(), ErrorCode::invalid_stride);
}

// A flag of the format: what is smaller than a byte has one each.
TEST(FromDlpackVersioned, RefusesInt4ThatIsNotPacked) {
  char bytes[8] = {};
  int64_t shape[1] = {8};
  constexpr uint64_t kReadOnly = 1, kPadded = 4;
  DlVersioned packed{{1, 1}, nullptr, nullptr, kReadOnly, {bytes, {1, 0}, 1, {0, 4, 1}, shape, nullptr, 0}};
  EXPECT_EQ(from_dlpack(packed).dtype(), DType::int4);
  DlVersioned padded = packed;
  padded.flags |= kPadded;
  EXPECT_THROW(from_dlpack(padded), Error);
  padded.dl_tensor.dtype.bits = 8;  // whole bytes have nothing to pad
  EXPECT_EQ(from_dlpack(padded).dtype(), DType::int8);
}

TEST(ToDlpack, RoundTripsEveryElementType) {
  alignas(8) char bytes[64] = {};
  for (DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4,
                      DType::uint8, DType::int32, DType::int64, DType::fp64}) {
    const TensorView view = TensorView(bytes, dtype, {2, 3}).permute({1, 0});
    const DlpackTensor<DlTensor> exported(view);
    const TensorView back = from_dlpack(exported.tensor);
    EXPECT_EQ(back.dtype(), dtype) << to_string(dtype);
    EXPECT_EQ(back.data(), view.data());
    EXPECT_EQ(back.stride(0), 1);
    EXPECT_EQ(back.stride(1), 3);
    EXPECT_EQ(back.shape(0), 3);
  }
}

template <class ManagedTensor>
void expect_owner_lives_until_deleted() {
  auto owner = std::make_shared<std::vector<float>>(6, 1.5f);
  const std::weak_ptr<std::vector<float>> watch = owner;
  const TensorView view(owner->data(), DType::fp32, {2, 3}, Device::cpu());
  ManagedTensor* managed = to_dlpack<ManagedTensor>(view, std::move(owner));
  ASSERT_FALSE(watch.expired());
  const TensorView back = from_dlpack(*managed);
  EXPECT_EQ(back.as<float>()[5], 1.5f);
  EXPECT_EQ(shape_string(back), "[2, 3]");
  managed->deleter(managed);
  EXPECT_TRUE(watch.expired());
}

TEST(ToDlpack, ManagedTensorKeepsItsOwnerUntilDeleted) { expect_owner_lives_until_deleted<DlManaged>(); }

TEST(ToDlpack, VersionedTensorSaysVersionOne) {
  expect_owner_lives_until_deleted<DlVersioned>();
  DlVersioned* managed = to_dlpack<DlVersioned>(TensorView(), nullptr);
  EXPECT_EQ(managed->version.major, 1u);
  managed->version.major = 2;
  EXPECT_THROW(from_dlpack(*managed), Error);
  managed->deleter(managed);
}

}  // namespace
}  // namespace weft
