// What rows on a card share: memory for caches, timing by events of graphs, and the card's ceilings.
#pragma once

#include <functional>
#include <vector>

#include "device/cuda/graph.h"
#include "device/cuda/launch.h"
#include "device/cuda/stream.h"
#include "jit/nvrtc/module.h"
#include "weft/device.h"

namespace weft::bench {

class CardBench {
 public:
  explicit CardBench(Device device);

  Device device() const { return device_; }
  Stream stream() const { return Stream::cuda(stream_.get(), device_.index); }
  cuda::Card& card() const { return card_; }
  // Random halves, larger than the card's cache by far; 256-byte aligned.
  char* pool() const { return static_cast<char*>(pool_.data()); }
  size_t pool_bytes() const { return pool_.bytes(); }

  // Median seconds of one of `count` runs, which a graph holds in this order.
  double time(int count, const std::function<void(int run)>& run);
  // Median seconds that the host is in `work`, whose launches end before it is asked again.
  double host_seconds(const std::function<void()>& work);
  // The same of a launch of a kernel that does nothing.
  double host_launch_seconds();
  cuda::Graph capture(const std::function<void()>& work) { return cuda::capture(card_, stream_.get(), work); }
  // Bytes a second of a plain read of so many; operations a second of products.
  double read_rate(size_t bytes);
  double product_rate();
  // Bytes a second, read and written, of a copy of half the pool to the other.
  double copy_rate();
  // Seconds of a node of a graph that does nothing; with programmatic dependent launch, or after the one before it.
  double node_seconds(bool dependent_launch);

 private:
  Device device_;
  cuda::Card& card_;
  cuda::OwnedStream stream_;
  Workspace pool_, word_;
  jit::CudaModule kernels_;
  cuda::Kernel read_, multiply_;
};

}  // namespace weft::bench
