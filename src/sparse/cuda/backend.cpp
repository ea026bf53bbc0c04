#include "base/once_map.h"
#include "device/cuda/card.h"
#include "device/cuda/graph.h"
#include "device/cuda/stream.h"
#include "jit/cuda/runtime.h"
#include "sparse/cuda/load.h"

namespace weft::sparse {
namespace {

// Runs are nodes of a graph, as they are in a model, and the card tells how long they took: what the host does between
// them is not timed.
class GraphStopwatch : public Stopwatch {
 public:
  explicit GraphStopwatch(Device device)
      : device_(device), card_(cuda::Card::at(device.index)), stream_(cuda::make_stream(card_)) {}
  Stream stream() const override { return Stream::cuda(stream_.get(), device_.index); }
  std::function<double()> timed(const std::function<void()>& run) const override {
    constexpr int kRuns = 8;
    const auto graph = std::make_shared<const cuda::Graph>(cuda::capture(card_, stream_.get(), [&] {
      for (int i = 0; i < kRuns; ++i) run();
    }));
    return [this, graph] {
      return *cuda::runtime().seconds_of(
                 device_, [&] { cuda::launch(*graph, stream_.get()); }, stream()) /
             kRuns;
    };
  }

 private:
  const Device device_;
  cuda::Card& card_;
  const cuda::OwnedStream stream_;
};

class CudaBackend : public Backend {
 public:
  void require(Device device, std::string_view name) const override { cuda::runtime().require(device, name); }
  const Machine& machine(Device device) const override {
    static auto& machines = *new OnceMap<int, Machine>;  // outlives every static operator
    return machines.get(static_cast<size_t>(device.index), device.index, [&] {
      const cuda::Card& card = cuda::Card::at(device.index);
      return Machine{.model = card.name(),
                     .l2_bytes = static_cast<int64_t>(card.l2_bytes()),
                     .has_mma = cuda::runtime().architecture(device) != "sm_75",
                     .num_multiprocessors = cuda::runtime().num_multiprocessors(device)};
    });
  }
  std::string architecture(Device device) const override { return cuda::runtime().architecture(device); }
  std::unique_ptr<const Stopwatch> stopwatch(Device device, Stream) const override {
    return std::make_unique<GraphStopwatch>(device);
  }
  const int32_t* array_of(const Structure::Data& structure, const std::vector<int32_t>& array,
                          Device device) const override {
    return array_on_card(structure, array, device);
  }
  std::unique_ptr<const Loaded> load(const Compilation& made, Device device) const override {
    return load_on_card(made, device);
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace weft::sparse
