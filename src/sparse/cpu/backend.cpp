#include "base/clock.h"
#include "base/device_checks.h"
#include "device/cpu/cpuid.h"
#include "sparse/cpu/load.h"

namespace weft::sparse {
namespace {

class TeamStopwatch : public Stopwatch {
 public:
  explicit TeamStopwatch(Stream stream) : stream_(stream) {}
  Stream stream() const override { return stream_; }
  std::function<double()> timed(const std::function<void()>& run) const override {
    return [run] { return seconds_of(run); };
  }

 private:
  const Stream stream_;
};

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
  std::string architecture(Device) const override { return std::string(to_string(current_isa())); }
  std::unique_ptr<const Stopwatch> stopwatch(Device, Stream stream) const override {
    return std::make_unique<TeamStopwatch>(stream);
  }
  std::unique_ptr<const Loaded> load(const Compilation& made, Device) const override { return load_on_cpu(made); }
};

}  // namespace

const Backend& cpu_backend() {
  static const CpuBackend backend;
  return backend;
}

}  // namespace weft::sparse
