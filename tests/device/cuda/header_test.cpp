// Our declarations of the driver's and of NVRTC's API say what the vendor's headers say. Compiled where these are
// found.
#include <cuda.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <cstddef>
#include <type_traits>

#include "device/cuda/api.h"
#include "jit/nvrtc/library.h"
#include "tile/abi/matrix_tile.h"

namespace weft::cuda {
namespace {

// The same for a caller: one type, or numbers of one size, or pointers to such.
template <class T>
constexpr bool kIsNumber = std::is_integral_v<T> || std::is_enum_v<T>;
template <class A, class B>
constexpr bool is_same_for_callers() {
  if constexpr (std::is_same_v<A, B> || (std::is_same_v<A, api::LaunchConfig> && std::is_same_v<B, CUlaunchConfig>))
    return true;
  else if constexpr (std::is_pointer_v<A> && std::is_pointer_v<B>)
    return is_same_for_callers<std::remove_cv_t<std::remove_pointer_t<A>>,
                               std::remove_cv_t<std::remove_pointer_t<B>>>();
  else if constexpr (kIsNumber<A> && kIsNumber<B>)
    return sizeof(A) == sizeof(B);
  else
    return false;
}
template <class Ours, class Theirs>
struct SameFunction : std::false_type {};
template <class R, class S, class... A, class... B>
struct SameFunction<R(A...), S(B...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(A) != sizeof...(B))
      return false;
    else
      return is_same_for_callers<R, S>() && (is_same_for_callers<A, B>() && ...);
  }();
};

TEST(CudaHeader, FunctionsTakeWhatOursSay) {
  using namespace api;
#define WEFT_COMPARE(name, symbol, ...) \
  EXPECT_TRUE((SameFunction<Result(__VA_ARGS__), std::remove_pointer_t<decltype(&::symbol)>>::value)) << #symbol;
  WEFT_CUDA_FUNCTIONS(WEFT_COMPARE)
}

TEST(CudaHeader, ComparisonCanFail) {
  EXPECT_FALSE((SameFunction<int(int), int(int, int)>::value));
  EXPECT_FALSE((SameFunction<int(int), int(long long)>::value));
  EXPECT_FALSE((SameFunction<int(int*), int(long long*)>::value));
  EXPECT_FALSE((SameFunction<int(api::Stream), int(api::Event)>::value));
}

TEST(CudaHeader, NumbersAreTheirs) {
  EXPECT_EQ(api::kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(api::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(api::kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(api::kInvalidImage, CUDA_ERROR_INVALID_IMAGE);
  EXPECT_EQ(api::kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(api::kEccUncorrectable, CUDA_ERROR_ECC_UNCORRECTABLE);
  EXPECT_EQ(api::kNvlinkUncorrectable, CUDA_ERROR_NVLINK_UNCORRECTABLE);
  EXPECT_EQ(api::kInvalidHandle, CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(api::kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(api::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(api::kLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(api::kContextIsDestroyed, CUDA_ERROR_CONTEXT_IS_DESTROYED);
  EXPECT_EQ(api::kAssert, CUDA_ERROR_ASSERT);
  EXPECT_EQ(api::kHardwareStackError, CUDA_ERROR_HARDWARE_STACK_ERROR);
  EXPECT_EQ(api::kLaunchFailed, CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(api::kUnknown, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(api::kMultiprocessorCount, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EXPECT_EQ(api::kL2CacheSize, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  EXPECT_EQ(api::kComputeCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EXPECT_EQ(api::kComputeCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EXPECT_EQ(api::kMaxSharedMemoryPerBlockOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  EXPECT_EQ(api::kMaxThreadsPerBlock, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
  EXPECT_EQ(api::kLocalSizeBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
  EXPECT_EQ(api::kNumRegs, CU_FUNC_ATTRIBUTE_NUM_REGS);
  EXPECT_EQ(api::kPreferredSharedMemoryCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
  EXPECT_EQ(api::kMaxDynamicSharedSizeBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
  EXPECT_EQ(api::kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(api::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(api::kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(api::kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EXPECT_EQ(api::kCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  EXPECT_EQ(api::kClusterDimension, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(api::kProgrammaticStreamSerialization, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(api::kUint8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
  EXPECT_EQ(api::kUint16, CU_TENSOR_MAP_DATA_TYPE_UINT16);
  EXPECT_EQ(api::kUint32, CU_TENSOR_MAP_DATA_TYPE_UINT32);
  EXPECT_EQ(api::kUint64, CU_TENSOR_MAP_DATA_TYPE_UINT64);
  EXPECT_EQ(api::kInterleaveNone, CU_TENSOR_MAP_INTERLEAVE_NONE);
  EXPECT_EQ(api::kPromoteTo128Bytes, CU_TENSOR_MAP_L2_PROMOTION_L2_128B);
  EXPECT_EQ(api::kZerosOutside, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  EXPECT_EQ(static_cast<int>(abi::Swizzle::none), CU_TENSOR_MAP_SWIZZLE_NONE);
  EXPECT_EQ(static_cast<int>(abi::Swizzle::bytes_32), CU_TENSOR_MAP_SWIZZLE_32B);
  EXPECT_EQ(static_cast<int>(abi::Swizzle::bytes_64), CU_TENSOR_MAP_SWIZZLE_64B);
  EXPECT_EQ(static_cast<int>(abi::Swizzle::bytes_128), CU_TENSOR_MAP_SWIZZLE_128B);
}

TEST(CudaHeader, StructuresLieAsTheirs) {
  EXPECT_EQ(api::kTensorMapBytes, sizeof(CUtensorMap));
  EXPECT_EQ(api::kTensorMapAlignment % alignof(CUtensorMap), 0u);  // 64, and 128 from CUDA 13 on
  EXPECT_EQ(sizeof(api::LaunchConfig), sizeof(CUlaunchConfig));
  EXPECT_EQ(offsetof(api::LaunchConfig, grid_y), offsetof(CUlaunchConfig, gridDimY));
  EXPECT_EQ(offsetof(api::LaunchConfig, block_x), offsetof(CUlaunchConfig, blockDimX));
  EXPECT_EQ(offsetof(api::LaunchConfig, shared_bytes), offsetof(CUlaunchConfig, sharedMemBytes));
  EXPECT_EQ(offsetof(api::LaunchConfig, stream), offsetof(CUlaunchConfig, hStream));
  EXPECT_EQ(offsetof(api::LaunchConfig, attributes), offsetof(CUlaunchConfig, attrs));
  EXPECT_EQ(offsetof(api::LaunchConfig, num_attributes), offsetof(CUlaunchConfig, numAttrs));
  EXPECT_EQ(sizeof(api::LaunchAttribute), sizeof(CUlaunchAttribute));
  EXPECT_EQ(offsetof(api::LaunchAttribute, value), offsetof(CUlaunchAttribute, value));
  EXPECT_EQ(sizeof(api::LaunchAttributeValue), sizeof(CUlaunchAttributeValue));
}

TEST(NvrtcHeader, FunctionsTakeWhatOursSay) {
  using jit::Nvrtc;
#define WEFT_COMPARE_NVRTC(name) \
  EXPECT_TRUE((SameFunction<std::remove_pointer_t<decltype(Nvrtc::name)>, decltype(::name)>::value)) << #name;
  WEFT_COMPARE_NVRTC(nvrtcVersion)
  WEFT_COMPARE_NVRTC(nvrtcCreateProgram)
  WEFT_COMPARE_NVRTC(nvrtcDestroyProgram)
  WEFT_COMPARE_NVRTC(nvrtcCompileProgram)
  WEFT_COMPARE_NVRTC(nvrtcGetProgramLogSize)
  WEFT_COMPARE_NVRTC(nvrtcGetProgramLog)
  WEFT_COMPARE_NVRTC(nvrtcGetCUBINSize)
  WEFT_COMPARE_NVRTC(nvrtcGetCUBIN)
  WEFT_COMPARE_NVRTC(nvrtcGetErrorString)
  EXPECT_EQ(Nvrtc::kSuccess, NVRTC_SUCCESS);
  EXPECT_EQ(Nvrtc::kOutOfMemory, NVRTC_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(Nvrtc::kInvalidOption, NVRTC_ERROR_INVALID_OPTION);
  EXPECT_EQ(Nvrtc::kCompilation, NVRTC_ERROR_COMPILATION);
  EXPECT_EQ(Nvrtc::kBuiltinFailure, NVRTC_ERROR_BUILTIN_OPERATION_FAILURE);
}

}  // namespace
}  // namespace weft::cuda
