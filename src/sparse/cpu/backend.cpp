#include "base/device_checks.h"
#include "device/cpu/cpuid.h"
#include "sparse/cpu/load.h"

namespace weft::sparse {
namespace {

class CpuBackend : public Backend {
 public:
  void require(Device device, std::string_view name) const override { check_on_cpu("", name, device); }
  const Machine& machine(Device) const override {
    static const Machine machine{.model = cpu_info().model,
                                 .l1_bytes = static_cast<int64_t>(cpu_info().l1d_bytes),
                                 .l2_bytes = static_cast<int64_t>(cpu_info().l2_bytes),
                                 .l3_bytes = static_cast<int64_t>(cpu_info().l3_bytes),
                                 .prefers_bf16_dots = current_isa() == Isa::avx512_bf16 && is_bf16_dot_fast()};
    return machine;
  }
  std::unique_ptr<const Loaded> load(const Compilation& made, Device) const override { return load_on_cpu(made); }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace weft::sparse
