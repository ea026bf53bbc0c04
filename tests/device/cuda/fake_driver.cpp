#include "tests/device/cuda/fake_driver.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <set>

using namespace weft::cuda;
using namespace weft::cuda::api;

namespace {

// Any thread calls a driver: kernels are loaded by several.
std::recursive_mutex the_lock;
fake::State the_state;
// Never destroyed: what lies on a lost card is left there, and is no leak.
auto& the_memory = *new std::map<void*, size_t>;
std::set<std::string> the_symbols;
std::vector<std::vector<std::function<void()>>> the_graphs;

int number(const char* name, int otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr ? std::atoi(value) : otherwise;
}

// What the call of that name gives; it is remembered.
Result called(const char* name) {
  const std::lock_guard lock(the_lock);
  the_state.calls.emplace_back(name);
  const bool fails = the_state.fails == name || the_state.fails == "everything";
  if (fails && (the_state.result >= 700 && the_state.result < 720)) the_state.fails = "everything";
  return fails ? the_state.result : kSuccess;
}

void* take(size_t bytes, bool on_card) {
  if (on_card && the_state.allocate) return the_state.allocate(bytes);
  if (bytes > the_state.free_bytes) return nullptr;
  void* data = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(data, 0xab, bytes);
  the_memory[data] = bytes;
  the_state.free_bytes -= bytes;
  return data;
}

Result give_back(void* data) {
  const auto at = the_memory.find(data);
  if (at == the_memory.end()) return the_state.allocate ? kSuccess : kInvalidValue;
  the_state.free_bytes += at->second;
  the_memory.erase(at);
  std::free(data);
  return kSuccess;
}

// Now, or when the graph of the capture is launched.
void enqueue(std::function<void()> work) {
  if (the_state.is_capturing)
    the_state.captured.push_back(std::move(work));
  else
    work();
}
// The same of what moves bytes.
void enqueue_copy(std::function<void()> work) {
  if (the_state.moves_bytes) enqueue(std::move(work));
}

template <class T>
T handle(int number) {
  return reinterpret_cast<T>(static_cast<uintptr_t>(number));
}

}  // namespace

extern "C" {
fake::State* weft_fake_driver() { return &the_state; }

#define CALLED(name)                    \
  const std::lock_guard lock(the_lock); \
  if (const Result r = called(#name); r != kSuccess) return r

Result cuInit(unsigned) {
  CALLED(cuInit);
  const int result = number("FAKE_CUDA_INIT", number("FAKE_CUDA_CARDS", 2) == 0 ? kNoDevice : kSuccess);
  return result;
}
Result cuDriverGetVersion(int* version) { return *version = number("FAKE_CUDA_VERSION", 12040), kSuccess; }
Result cuGetErrorName(Result result, const char** name) {
  return *name = result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_FAKE", kSuccess;
}
Result cuGetErrorString(Result result, const char** text) {
  return *text = result == kIllegalAddress ? "an illegal memory access was encountered" : "as the test asked", kSuccess;
}
Result cuDeviceGetCount(int* count) { return *count = number("FAKE_CUDA_CARDS", 2), kSuccess; }
Result cuDeviceGet(DeviceId* id, int index) { return *id = index, kSuccess; }
Result cuDeviceGetName(char* name, int, DeviceId) { return std::strcpy(name, "Fake H100"), kSuccess; }
Result cuDeviceGetAttribute(int* value, DeviceAttribute which, DeviceId) {
  const int capability = number("FAKE_CUDA_CAPABILITY", 90);
  switch (which) {
    case kMultiprocessorCount: *value = number("FAKE_CUDA_MULTIPROCESSORS", 132); break;
    case kL2CacheSize: *value = 50 << 20; break;
    case kComputeCapabilityMajor: *value = capability / 10; break;
    case kComputeCapabilityMinor: *value = capability % 10; break;
    case kMaxSharedMemoryPerBlockOptin: *value = 227 << 10; break;
  }
  return kSuccess;
}
Result cuDeviceTotalMem_v2(size_t* bytes, DeviceId) { return *bytes = size_t{80} << 30, kSuccess; }
Result cuDevicePrimaryCtxRetain(Context* context, DeviceId id) {
  CALLED(cuDevicePrimaryCtxRetain);
  return *context = handle<Context>(100 + id), kSuccess;
}
Result cuCtxPushCurrent_v2(Context) {
  const std::lock_guard lock(the_lock);
  return ++the_state.context_depth, kSuccess;
}
Result cuCtxPopCurrent_v2(Context*) {
  const std::lock_guard lock(the_lock);
  return --the_state.context_depth, kSuccess;
}
Result cuMemAlloc_v2(Pointer* data, size_t bytes) {
  CALLED(cuMemAlloc);
  *data = reinterpret_cast<Pointer>(take(bytes, true));
  return *data != 0 ? kSuccess : kOutOfMemory;
}
Result cuMemFree_v2(Pointer data) {
  CALLED(cuMemFree);
  return give_back(reinterpret_cast<void*>(data));
}
Result cuMemGetInfo_v2(size_t* free, size_t* total) {
  CALLED(cuMemGetInfo);
  *total = size_t{80} << 30;
  return *free = the_state.free_bytes, kSuccess;
}
Result cuMemHostAlloc(void** data, size_t bytes, unsigned) {
  CALLED(cuMemHostAlloc);
  return (*data = take(bytes, false)) != nullptr ? kSuccess : kOutOfMemory;
}
Result cuMemFreeHost(void* data) {
  CALLED(cuMemFreeHost);
  return give_back(data);
}
Result cuMemcpyHtoDAsync_v2(Pointer to, const void* from, size_t bytes, Stream) {
  CALLED(cuMemcpyHtoDAsync);
  return enqueue_copy([=] { std::memcpy(reinterpret_cast<void*>(to), from, bytes); }), kSuccess;
}
Result cuMemcpyDtoHAsync_v2(void* to, Pointer from, size_t bytes, Stream) {
  CALLED(cuMemcpyDtoHAsync);
  return enqueue_copy([=] { std::memcpy(to, reinterpret_cast<void*>(from), bytes); }), kSuccess;
}
Result cuMemcpyDtoDAsync_v2(Pointer to, Pointer from, size_t bytes, Stream) {
  CALLED(cuMemcpyDtoDAsync);
  return enqueue_copy([=] { std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<void*>(from), bytes); }),
         kSuccess;
}
Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, Stream) {
  CALLED(cuMemsetD8Async);
  return enqueue_copy([=] { std::memset(reinterpret_cast<void*>(to), value, bytes); }), kSuccess;
}
Result cuStreamCreate(Stream* stream, unsigned) {
  CALLED(cuStreamCreate);
  return *stream = handle<Stream>(200), kSuccess;
}
Result cuStreamDestroy_v2(Stream) { return called("cuStreamDestroy"); }
Result cuStreamSynchronize(Stream) { return called("cuStreamSynchronize"); }
Result cuStreamWaitEvent(Stream, Event, unsigned) { return called("cuStreamWaitEvent"); }
Result cuStreamBeginCapture_v2(Stream, CaptureMode) {
  CALLED(cuStreamBeginCapture);
  the_state.captured.clear();
  return the_state.is_capturing = true, kSuccess;
}
Result cuStreamEndCapture(Stream, Graph* graph) {
  the_state.is_capturing = false;
  CALLED(cuStreamEndCapture);
  the_graphs.push_back(the_state.captured);
  return *graph = handle<Graph>(300 + static_cast<int>(the_graphs.size())), kSuccess;
}
Result cuStreamIsCapturing(Stream, int* status) { return *status = the_state.is_capturing ? 1 : 0, kSuccess; }
Result cuEventCreate(Event* event, unsigned) {
  CALLED(cuEventCreate);
  return *event = handle<Event>(400), kSuccess;
}
Result cuEventDestroy_v2(Event) { return called("cuEventDestroy"); }
Result cuEventRecord(Event, Stream) { return called("cuEventRecord"); }
Result cuEventQuery(Event) { return called("cuEventQuery"); }
Result cuEventSynchronize(Event) { return called("cuEventSynchronize"); }
Result cuEventElapsedTime(float* ms, Event, Event) { return *ms = 1.5f, kSuccess; }
Result cuGraphInstantiateWithFlags(GraphExec* exec, Graph graph, unsigned long long) {
  CALLED(cuGraphInstantiate);
  return *exec = reinterpret_cast<GraphExec>(graph), kSuccess;
}
Result cuGraphDestroy(Graph) { return called("cuGraphDestroy"); }
Result cuGraphExecDestroy(GraphExec) { return called("cuGraphExecDestroy"); }
Result cuGraphUpload(GraphExec, Stream) { return called("cuGraphUpload"); }
Result cuGraphLaunch(GraphExec exec, Stream) {
  CALLED(cuGraphLaunch);
  for (const auto& work : the_graphs[reinterpret_cast<uintptr_t>(exec) - 301]) work();
  return kSuccess;
}
Result cuModuleLoadData(Module* module, const void* image) {
  CALLED(cuModuleLoadData);
  the_state.image = static_cast<const char*>(image);
  return *module = handle<Module>(600), kSuccess;
}
Result cuModuleUnload(Module) { return called("cuModuleUnload"); }
Result cuModuleGetFunction(Function* function, Module, const char* symbol) {
  CALLED(cuModuleGetFunction);
  return *function = reinterpret_cast<Function>(const_cast<char*>(the_symbols.emplace(symbol).first->c_str())),
         kSuccess;
}
Result cuFuncGetAttribute(int* value, FunctionAttribute which, Function) {
  return *value = which == kNumRegs ? 104 : which == kLocalSizeBytes ? 16 : 1024, kSuccess;
}
Result cuFuncSetAttribute(Function, FunctionAttribute, int) { return called("cuFuncSetAttribute"); }
Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int* ctas, Function, int threads, size_t) {
  return *ctas = threads > 512 ? 1 : 512 / threads, kSuccess;
}
Result cuTensorMapEncodeTiled(TensorMap* map, TensorDataType type, unsigned rank, void* data,
                              const unsigned long long* sizes, const unsigned long long* strides, const unsigned* box,
                              const unsigned* steps, int, int swizzle, int, int) {
  CALLED(cuTensorMapEncodeTiled);
  the_state.tensor_map = {rank, static_cast<unsigned>(type), static_cast<unsigned>(swizzle)};
  for (unsigned i = 0; i < rank; ++i) {
    the_state.tensor_map.insert(the_state.tensor_map.end(), {sizes[i], i + 1 < rank ? strides[i] : 0, box[i]});
    if (steps[i] != 1) return kInvalidValue;
  }
  std::memcpy(static_cast<void*>(map), &data, sizeof data);
  return kSuccess;
}
#ifndef FAKE_WITHOUT_LAUNCH
Result cuLaunchKernelEx(const LaunchConfig* config, Function, void**, void**) {
  the_state.config = *config;
  the_state.attributes.assign(config->attributes, config->attributes + config->num_attributes);
  CALLED(cuLaunchKernelEx);
  return kSuccess;
}
#endif
}
