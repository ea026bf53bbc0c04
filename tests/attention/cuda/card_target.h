// The first card as a target of the tests of kernels.
#pragma once

#include <string>
#include <vector>

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"
#include "jit/nvrtc/toolchain.h"
#include "tests/attention/kernels/target.h"
#include "types.h"

namespace weft::testing {

class CardTarget : public Target {
 public:
  std::string name() const override { return "card"; }
  Device device() const override { return Device::cuda(); }
  Stream stream(WorkerTeam&) const override { return {}; }
  std::vector<DType> compute_types(const AttentionSpec& spec) const override { return types_on(spec, architecture()); }
  void* place(void* host, size_t bytes) const override {
    if (bytes == 0) return nullptr;
    void* placed = cuda::allocate(device(), bytes);
    cuda::copy_to_card(card(), placed, host, bytes, nullptr);
    return placed;
  }
  void fetch(void* host, void* placed, size_t bytes) const override {
    if (bytes > 0) cuda::copy_to_host(card(), host, placed, bytes, nullptr);
    cuda::synchronize(card(), nullptr);
  }
  void release(void* placed, size_t bytes) const override {
    if (bytes > 0) cuda::release(device(), placed, bytes);
  }
  void poison(const Workspace& workspace) const override {
    const std::vector<char> bytes(workspace.bytes(), '\xff');
    if (!bytes.empty()) cuda::copy_to_card(card(), workspace.data(), bytes.data(), bytes.size(), nullptr);
    cuda::synchronize(card(), nullptr);  // other streams do not wait for that one
  }

 protected:
  static cuda::Card& card() { return cuda::Card::at(0); }
  // Whose forms of the text its kernels have.
  virtual std::string architecture() const {
    return std::string(jit::architecture_of(card().capability_major(), card().capability_minor()));
  }
};

}  // namespace weft::testing
