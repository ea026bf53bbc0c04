// What a test of kernels runs on: an instruction set of this machine, or any other backend's device.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "weft/attention.h"

namespace weft::testing {

class Target {
 public:
  virtual ~Target() = default;
  virtual std::string name() const = 0;
  virtual Device device() const = 0;
  virtual BuildOptions options() const { return {}; }
  virtual Stream stream(WorkerTeam& team) const = 0;
  // The types that its kernels can multiply such tensors in, fp32 first.
  virtual std::vector<DType> compute_types(const AttentionSpec& spec) const = 0;

  // Memory of the device with a copy of these bytes, and its way back; where the device reads the host's, they are it.
  virtual void* place(void* host, size_t /*bytes*/) const { return host; }
  virtual void fetch(void* /*host*/, void* /*placed*/, size_t /*bytes*/) const {}
  virtual void release(void* /*placed*/, size_t /*bytes*/) const {}
  // Each byte becomes 0xff.
  virtual void poison(const Workspace& workspace) const = 0;
};

// What a program of tests runs on, one file a program: isa_targets.cpp has the instruction sets of this machine, lowest
// first.
std::span<const Target* const> targets();
// What the index-th of many cases runs on: every target; one of them in turn with sanitizers, under which a run takes
// tens of times longer.
std::span<const Target* const> targets_of_case(unsigned index);

AttentionKernel build_on(const Target& target, const AttentionSpec& spec);
// Uploads into poisoned memory and runs with two workers. Tensors lie in host memory, before and after.
void run_on(const Target& target, const AttentionKernel& kernel, const Plan& plan, const AttentionTensors& tensors);

// Tensors of the host on a target's device.
class Placed {
 public:
  Placed(const Target& target, const AttentionTensors& host);
  ~Placed();
  Placed(const Placed&) = delete;
  Placed& operator=(const Placed&) = delete;
  const AttentionTensors& tensors() const { return tensors_; }
  void fetch() const;  // o and lse

 private:
  struct Copy {
    void *host, *placed;
    size_t bytes;
  };
  Copy place(TensorView& view);

  const Target& target_;
  AttentionTensors tensors_;
  std::vector<Copy> copies_, outputs_;
};

}  // namespace weft::testing
