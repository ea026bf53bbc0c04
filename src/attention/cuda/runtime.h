// What runs the kernels of this backend: cards, or the machine of the tests, which is given the same texts.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attention/cuda/text.h"
#include "base/bytes.h"
#include "weft/device.h"

namespace weft::attention::cuda {

// A kernel that is ready to be launched; whoever made it reads it.
struct Loaded {
  virtual ~Loaded() = default;
};

struct Grid {
  int ctas, threads;
  // Launched with programmatic dependent launch (sm_90 and up): the kernel itself calls wait_for_previous_kernel().
  bool programmatic_launch = false;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  // Throws where there is no such device.
  virtual void require(Device device, std::string_view name) const = 0;
  virtual std::string architecture(Device device) const = 0;  // whose code it runs: "sm_90a"
  virtual int num_multiprocessors(Device device) const = 0;
  virtual std::shared_ptr<const Loaded> load(Device device, const std::string& name, const KernelText& text) const = 0;
  // `args`: the kernel's one argument, of which at most `bytes` are read.
  virtual void launch(const Loaded& kernel, const Grid& grid, const void* args, size_t bytes, Stream stream) const = 0;
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
  // A word that kernels raise where they clamp; whoever synchronises reads it.
  virtual unsigned* clamped_flag(Device device) const = 0;
};

const Runtime& cards();

}  // namespace weft::attention::cuda
