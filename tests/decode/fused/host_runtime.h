// The host machine as what runs kernels of fused decoding: launches run in tests/simt/machine, every access watched.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "jit/cuda/runtime.h"
#include "tests/simt/machine/machine.h"

namespace weft::testing {

// Of sm_90a, with as many multiprocessors as it is told. A launch runs in all orders of threads.
class HostRuntime : public cuda::Runtime {
 public:
  using Call = void (*)(const void* args);
  // Kernels by their symbols.
  HostRuntime(simt::Memory& memory, std::map<std::string, Call> kernels, int num_multiprocessors)
      : memory_(memory), num_multiprocessors_(num_multiprocessors) {
    for (const auto& [symbol, call] : kernels) kernels_[symbol].call = call;
  }
  std::string runs = "sm_90a";
  int absent = 0;  // CTAs that a launch leaves out, the last ones
  bool in_one_order = false;

  void require(Device, std::string_view) const override {}
  std::string architecture(Device) const override { return runs; }
  int num_multiprocessors(Device) const override { return num_multiprocessors_; }
  const cuda::LoadedKernel& load(Device, const cuda::KernelText& text) const override {
    return kernels_.at(text.symbol);
  }
  int ctas_per_multiprocessor(const cuda::LoadedKernel&, const cuda::Grid&) const override { return 1; }
  void launch(const cuda::LoadedKernel& kernel, const cuda::Grid& grid, const void* args, size_t,
              Stream) const override {
    simt::Launch launch{.ctas = grid.ctas - absent,
                        .threads = grid.threads,
                        .shared_bytes = static_cast<size_t>(grid.shared_bytes),
                        .cooperative = grid.cooperative,
                        .resident_ctas = num_multiprocessors_};
    const auto call = [&, run = static_cast<const OnHost&>(kernel).call] { run(args); };
    if (in_one_order) return simt::run(memory_, launch, call);
    simt::run_in_all_orders(memory_, launch, call);
  }
  std::optional<double> seconds_of(Device, const std::function<void()>& work, Stream) const override {
    work();
    return std::nullopt;
  }
  void write(Device, void* to, std::span<const Bytes> pieces, Stream) const override { copy(pieces, to); }
  void read(Device, const void* from, void* to, int64_t bytes, Stream) const override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  bool is_capturing(Device, Stream) const override { return false; }
  std::unique_ptr<Order> make_order(Device) const override { return nullptr; }
  unsigned* clamped_flag(Device) const override { return nullptr; }

 private:
  struct OnHost : cuda::LoadedKernel {
    Call call = nullptr;
  };
  simt::Memory& memory_;
  int num_multiprocessors_;
  std::map<std::string, OnHost> kernels_;
};

}  // namespace weft::testing
