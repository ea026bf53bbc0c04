#include "base/once_map.h"
#include "device/cuda/card.h"
#include "jit/cuda/runtime.h"
#include "sparse/cuda/load.h"

namespace weft::sparse {
namespace {

class CudaBackend : public Backend {
 public:
  void require(Device device, std::string_view name) const override { cuda::runtime().require(device, name); }
  const Machine& machine(Device device) const override {
    static auto& machines = *new OnceMap<int, Machine>;  // outlives every static operator
    return machines.get(static_cast<size_t>(device.index), device.index, [&] {
      const cuda::Card& card = cuda::Card::at(device.index);
      return Machine{.model = card.name(),
                     .l2_bytes = static_cast<int64_t>(card.l2_bytes()),
                     .has_mma = cuda::runtime().architecture(device) != "sm_75"};
    });
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
