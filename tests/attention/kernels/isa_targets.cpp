// The instruction sets of this machine as targets.
#include <cstring>

#include "device/cpu/cpuid.h"
#include "tests/attention/kernels/target.h"

namespace weft::testing {
namespace {

class IsaTarget : public Target {
 public:
  explicit IsaTarget(Isa isa) : isa_(isa) {}
  std::string name() const override { return std::string(to_string(isa_)); }
  Device device() const override { return Device::cpu(); }
  BuildOptions options() const override { return {.isa = isa_}; }
  Stream stream(WorkerTeam& team) const override { return Stream::cpu(team); }
  std::vector<DType> compute_types(const AttentionSpec& spec) const override {
    if ((spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4) && isa_ >= Isa::avx512)
      return {DType::fp32, DType::int8};
    if (isa_ != Isa::avx512_bf16 || spec.q_dtype != DType::bf16 || spec.kv_dtype != DType::bf16) return {DType::fp32};
    return {DType::fp32, DType::bf16};
  }
  void poison(const Workspace& workspace) const override { std::memset(workspace.data(), 0xff, workspace.bytes()); }

 private:
  Isa isa_;
};

}  // namespace

std::span<const Target* const> targets() {
  static const std::vector<IsaTarget> of_isas(supported_isas().begin(), supported_isas().end());
  static const std::vector<const Target*> all = [] {
    std::vector<const Target*> list;
    for (const IsaTarget& target : of_isas) list.push_back(&target);
    return list;
  }();
  return all;
}

}  // namespace weft::testing
