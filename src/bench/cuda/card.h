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

inline constexpr int kMostPieces = 256;

class CardBench {
 public:
  explicit CardBench(Device device);

  Device device() const { return device_; }
  Stream stream() const { return Stream::cuda(stream_.get(), device_.index); }
  cuda::Card& card() const { return card_; }
  // Random halves, larger than the card's cache by far; 256-byte aligned.
  char* pool() const { return static_cast<char*>(pool_.data()); }
  size_t pool_bytes() const { return pool_.bytes(); }

  // Runs as nodes of a graph, in this order.
  struct Runs {
    int count;
    std::function<void(int run)> run;
  };
  // Median seconds of one run.
  double time(int count, const std::function<void(int run)>& run);
  // Of two graphs that take turns: whatever slows the card down slows both.
  struct Turns {
    double first, second;
  };
  Turns time_in_turns(const Runs& first, const Runs& second);
  // Median seconds of one run, and beside it, in turns, what a plain read of so many bytes has a second, or products
  // have.
  struct Beside {
    double seconds, ceiling;
  };
  Beside time_beside_read(const Runs& runs, size_t bytes);
  Beside time_beside_products(const Runs& runs);
  // Plain loads of rows of 16-byte pieces, one for each index, in their order.
  struct Gather {
    const int* indices;
    const void* rows;
    int64_t count;
    int row_bytes;
  };
  Runs gathers(const Gather& gather, int count);
  // How many pieces of the pool, of so many bytes, runs go through one after another: all of it, at least eight times
  // the card's cache where the pool is so large, so that what a piece left in the cache is gone when its turn comes
  // again.
  int pieces(size_t bytes) const;
  // Median seconds that the host is in `work`, whose launches end before it is asked again.
  double host_seconds(const std::function<void()>& work);
  // The same of a launch of a kernel that does nothing.
  double host_launch_seconds();
  cuda::Graph capture(const std::function<void()>& work) { return cuda::capture(card_, stream_.get(), work); }
  // Bytes a second of plain reads of so many, which go through the pool; operations a second of products.
  double read_rate(size_t bytes);
  double product_rate();
  // Bytes a second, read and written, of a copy of half the pool to the other.
  double copy_rate();
  // Seconds of a node of a graph that does nothing; with programmatic dependent launch, or after the one before it.
  double node_seconds(bool dependent_launch);

 private:
  size_t piece_bytes(size_t bytes) const;
  Runs reads(size_t bytes);  // of as many bytes, or of the pool's
  Runs products();
  double operations_of_products() const;
  cuda::Graph graph_of(const Runs& runs);  // each ran once before: kernels are made with the first run
  double seconds_of(const cuda::Graph& graph);

  Device device_;
  cuda::Card& card_;
  cuda::OwnedStream stream_;
  Workspace pool_, word_;
  jit::CudaModule kernels_;
  cuda::Kernel read_, multiply_, gather_;
  cuda::Event begin_, end_;
};

}  // namespace weft::bench
