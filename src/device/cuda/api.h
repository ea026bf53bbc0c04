// Our own declarations of the driver API's part that Weft calls, so that it is built without CUDA's headers. A test
// compares them with the vendor's where these are there (tests/device/cuda/header_test.cpp).
#pragma once

#include <cstddef>
#include <cstdint>

struct CUctx_st;
struct CUstream_st;
struct CUevent_st;
struct CUmod_st;
struct CUfunc_st;
struct CUgraph_st;
struct CUgraphExec_st;
struct CUtensorMap_st;

namespace weft::cuda::api {

using Result = int;
using DeviceId = int;
using Pointer = unsigned long long;
using Context = ::CUctx_st*;
using Stream = ::CUstream_st*;
using Event = ::CUevent_st*;
using Module = ::CUmod_st*;
using Function = ::CUfunc_st*;
using Graph = ::CUgraph_st*;
using GraphExec = ::CUgraphExec_st*;
using TensorMap = ::CUtensorMap_st;

enum : Result {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kEccUncorrectable = 214,
  kNvlinkUncorrectable = 220,
  kContained = 226,
  kInvalidHandle = 400,
  kNotReady = 600,
  kIllegalAddress = 700,
  kLaunchOutOfResources = 701,
  kLaunchTimeout = 702,
  kContextIsDestroyed = 709,
  kAssert = 710,
  kHardwareStackError = 714,
  kLaunchFailed = 719,
  kUnknown = 999
};

enum DeviceAttribute : int {
  kMultiprocessorCount = 16,
  kL2CacheSize = 38,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97
};
enum FunctionAttribute : int {
  kMaxThreadsPerBlock = 0,
  kLocalSizeBytes = 3,
  kNumRegs = 4,
  kMaxDynamicSharedSizeBytes = 8,
  kPreferredSharedMemoryCarveout = 9
};
enum : unsigned { kHostAllocPortable = 1, kStreamNonBlocking = 1, kEventDisableTiming = 2 };
enum CaptureMode : int { kCaptureThreadLocal = 1 };

enum LaunchAttributeId : int { kCooperative = 2, kClusterDimension = 4, kProgrammaticStreamSerialization = 6 };
union LaunchAttributeValue {
  char pad[64];
  int cooperative;
  struct {
    unsigned x, y, z;
  } cluster_dim;
  int programmatic_stream_serialization;
};
struct LaunchAttribute {
  LaunchAttributeId id;
  char pad[4];
  LaunchAttributeValue value;
};
struct LaunchConfig {
  unsigned grid_x, grid_y, grid_z;
  unsigned block_x, block_y, block_z;
  unsigned shared_bytes;
  Stream stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

enum TensorDataType : int { kUint8 = 0, kUint16 = 1, kUint32 = 2, kUint64 = 4 };
enum : int { kInterleaveNone = 0, kPromoteTo128Bytes = 2, kZerosOutside = 0 };
inline constexpr size_t kTensorMapBytes = 128, kTensorMapAlignment = 128;

// X(name here, symbol, arguments). All have been there since CUDA 12.0.
#define WEFT_CUDA_FUNCTIONS(X)                                                                    \
  X(init, cuInit, unsigned)                                                                       \
  X(driver_get_version, cuDriverGetVersion, int*)                                                 \
  X(get_error_name, cuGetErrorName, Result, const char**)                                         \
  X(get_error_string, cuGetErrorString, Result, const char**)                                     \
  X(device_get_count, cuDeviceGetCount, int*)                                                     \
  X(device_get, cuDeviceGet, DeviceId*, int)                                                      \
  X(device_get_name, cuDeviceGetName, char*, int, DeviceId)                                       \
  X(device_get_attribute, cuDeviceGetAttribute, int*, DeviceAttribute, DeviceId)                  \
  X(device_total_mem, cuDeviceTotalMem_v2, size_t*, DeviceId)                                     \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, Context*, DeviceId)                             \
  X(ctx_push_current, cuCtxPushCurrent_v2, Context)                                               \
  X(ctx_pop_current, cuCtxPopCurrent_v2, Context*)                                                \
  X(mem_alloc, cuMemAlloc_v2, Pointer*, size_t)                                                   \
  X(mem_free, cuMemFree_v2, Pointer)                                                              \
  X(mem_get_info, cuMemGetInfo_v2, size_t*, size_t*)                                              \
  X(mem_host_alloc, cuMemHostAlloc, void**, size_t, unsigned)                                     \
  X(mem_free_host, cuMemFreeHost, void*)                                                          \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2, Pointer, const void*, size_t, Stream)                \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, void*, Pointer, size_t, Stream)                      \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, Pointer, Pointer, size_t, Stream)                    \
  X(memset_d8_async, cuMemsetD8Async, Pointer, unsigned char, size_t, Stream)                     \
  X(stream_create, cuStreamCreate, Stream*, unsigned)                                             \
  X(stream_destroy, cuStreamDestroy_v2, Stream)                                                   \
  X(stream_synchronize, cuStreamSynchronize, Stream)                                              \
  X(stream_wait_event, cuStreamWaitEvent, Stream, Event, unsigned)                                \
  X(stream_begin_capture, cuStreamBeginCapture_v2, Stream, CaptureMode)                           \
  X(stream_end_capture, cuStreamEndCapture, Stream, Graph*)                                       \
  X(stream_is_capturing, cuStreamIsCapturing, Stream, int*)                                       \
  X(event_create, cuEventCreate, Event*, unsigned)                                                \
  X(event_destroy, cuEventDestroy_v2, Event)                                                      \
  X(event_record, cuEventRecord, Event, Stream)                                                   \
  X(event_query, cuEventQuery, Event)                                                             \
  X(event_synchronize, cuEventSynchronize, Event)                                                 \
  X(event_elapsed_time, cuEventElapsedTime, float*, Event, Event)                                 \
  X(graph_instantiate, cuGraphInstantiateWithFlags, GraphExec*, Graph, unsigned long long)        \
  X(graph_destroy, cuGraphDestroy, Graph)                                                         \
  X(graph_exec_destroy, cuGraphExecDestroy, GraphExec)                                            \
  X(graph_upload, cuGraphUpload, GraphExec, Stream)                                               \
  X(graph_launch, cuGraphLaunch, GraphExec, Stream)                                               \
  X(module_load_data, cuModuleLoadData, Module*, const void*)                                     \
  X(module_unload, cuModuleUnload, Module)                                                        \
  X(module_get_function, cuModuleGetFunction, Function*, Module, const char*)                     \
  X(func_get_attribute, cuFuncGetAttribute, int*, FunctionAttribute, Function)                    \
  X(func_set_attribute, cuFuncSetAttribute, Function, FunctionAttribute, int)                     \
  X(occupancy, cuOccupancyMaxActiveBlocksPerMultiprocessor, int*, Function, int, size_t)          \
  X(launch_kernel, cuLaunchKernelEx, const LaunchConfig*, Function, void**, void**)               \
  X(tensor_map_encode_tiled, cuTensorMapEncodeTiled, TensorMap*, TensorDataType, unsigned, void*, \
    const unsigned long long*, const unsigned long long*, const unsigned*, const unsigned*, int, int, int, int)

}  // namespace weft::cuda::api
