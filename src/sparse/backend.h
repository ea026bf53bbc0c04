// What a device brings to sparse programs: code that runs there, and facts that schedules are chosen by. Programs,
// passes, checks and bindings are the same for all.
//
//   const Backend& backend = backend_of(device, "compile");
//   const std::unique_ptr<const Loaded> loaded = backend.load(compilation, device);
//   loaded->compute(bound, stream);
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "sparse/bind.h"
#include "sparse/compile.h"
#include "sparse/machine.h"

namespace weft::sparse {

// A compilation's code, loaded on a device. Thread-safe.
class Loaded {
 public:
  virtual ~Loaded() = default;
  // Puts what the host has made for a binding where the code reads it: behind each change but of its tensors.
  virtual void place(Bound&) const {}
  // Fills the buffers of other formats; then what is computed always. On the CPU both return when done, on a card they
  // enqueue: the binding stays until that has ended.
  virtual void preprocess(const Bound& bound, Stream stream) const = 0;
  virtual void compute(const Bound& bound, Stream stream) const = 0;
  // Whether what is enqueued goes into a graph, which runs it later and again.
  virtual bool is_captured(Stream) const { return false; }
};

// Times what a search has to choose from.
class Stopwatch {
 public:
  virtual ~Stopwatch() = default;
  // Where all of it runs.
  virtual Stream stream() const = 0;
  // What tells the seconds of such a run each time it is asked. The run was made there before; it may be kept to be
  // made again, for as long as what tells them lives.
  virtual std::function<double()> timed(const std::function<void()>& run) const = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Throws Error(unsupported | invalid_device) where there is no such device; `name` is what asks for it.
  virtual void require(Device device, std::string_view name) const = 0;
  virtual const Machine& machine(Device device) const = 0;
  virtual std::string architecture(Device device) const = 0;  // whose code it runs: "avx512", "sm_90a"
  // On the CPU of runs in `stream`; a card has one of its own.
  virtual std::unique_ptr<const Stopwatch> stopwatch(Device device, Stream stream) const = 0;
  // An array of the structure where the device reads it, for as long as the structure lives.
  virtual const int32_t* array_of(const Structure::Data&, const std::vector<int32_t>& array, Device) const {
    return array.data();
  }
  // Compiles and loads; throws what jit/build.h throws.
  virtual std::unique_ptr<const Loaded> load(const Compilation& made, Device device) const = 0;
};

// Throws Error(unsupported | invalid_device) where there is no such device.
const Backend& backend_of(Device device, std::string_view name);

const Backend& cpu_backend();   // of sparse/cpu
const Backend& cuda_backend();  // of sparse/cuda

}  // namespace weft::sparse
