// What runs kernels whose texts it is given: cards, or the host machine of the tests.
//
//   const Runtime& on = runtime();
//   const LoadedKernel& kernel = on.load(device, text);
//   on.launch(kernel, text.grid(ctas), args, stream);
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/bytes.h"
#include "jit/cuda/kernel_text.h"
#include "weft/device.h"

namespace weft::abi {
struct TensorMap;
}

namespace weft::cuda {

// A kernel that can be launched on the device it was loaded for. Its runtime's own.
struct LoadedKernel {
  virtual ~LoadedKernel() = default;
};

// Thread-safe.
class Runtime {
 public:
  virtual ~Runtime() = default;
  // Throws where there is no such device; `name` is what asks for it.
  virtual void require(Device device, std::string_view name) const = 0;
  virtual std::string architecture(Device device) const = 0;  // whose code it runs: "sm_90a"
  virtual int num_multiprocessors(Device device) const = 0;

  // Compiled and loaded once for each device and text, and kept as long as the process, as graphs hold kernels. Throws
  // what jit::build throws, and Error(unsupported) where the device has less shared memory.
  virtual const LoadedKernel& load(Device device, const KernelText& text) const = 0;
  // CTAs of the grid's threads and shared memory that a multiprocessor holds at once.
  virtual int ctas_per_multiprocessor(const LoadedKernel& kernel, const Grid& grid) const = 0;
  // `args`: the kernel's one argument, of which at most `bytes` are read, or all of its 8 bytes each.
  virtual void launch(const LoadedKernel& kernel, const Grid& grid, const void* args, size_t bytes,
                      Stream stream) const = 0;
  template <class Args>
  void launch(const LoadedKernel& kernel, const Grid& grid, const Args& args, Stream stream) const {
    static_assert(std::is_trivially_copyable_v<Args> && !std::is_pointer_v<Args>);
    launch(kernel, grid, &args, sizeof args, stream);
  }
  // Does the work, which launches in the stream, waits for it and gives its seconds by the device's clock. In a stream
  // that is being captured nothing is waited for, and nothing is given.
  virtual std::optional<double> seconds_of(Device device, const std::function<void()>& work, Stream stream) const = 0;

  // In the order of the stream; host memory may change when they return.
  virtual void write(Device device, void* to, std::span<const Bytes> pieces, Stream stream) const = 0;
  virtual void read(Device device, const void* from, void* to, int64_t bytes, Stream stream) const = 0;

  // Whether what is enqueued goes into a graph.
  virtual bool is_capturing(Device device, Stream stream) const = 0;
  // The order of works of several streams on one memory: each is enqueued behind what other streams did.
  struct Order {
    virtual ~Order() = default;
    virtual void enqueue(Stream stream, const std::function<void()>& work) = 0;
    virtual void write(void* to, std::span<const Bytes> pieces, Stream stream) = 0;
  };
  virtual std::unique_ptr<Order> make_order(Device device) const = 0;
  // What the device itself reads of a map (jit/cuda/tensor_map.h); the host machine reads its layout.
  virtual void encode(Device, abi::TensorMap&) const {}
  // A word that kernels raise where they clamp; whoever synchronises reads it.
  virtual unsigned* clamped_flag(Device device) const = 0;
};

const Runtime& cards();

// What runs the kernels of Device::cuda(): cards(), or what a test has put in their place, for good and before anything
// was loaded.
const Runtime& runtime();
void set_runtime(const Runtime& runtime);

// Compiles and loads them now, each once, several at a time.
void load_all(const Runtime& runtime, Device device, std::span<const KernelText> texts, WorkerTeam& team);

}  // namespace weft::cuda
