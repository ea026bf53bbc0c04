#include "host_target.h"

#include <cstring>

#include "types.h"

namespace weft::testing {
namespace {

// Whose forms of the text kernels have.
#ifdef WEFT_SIMT_ARCHITECTURE
const std::string kArchitecture = WEFT_SIMT_ARCHITECTURE;
#else
const std::string kArchitecture = "sm_90a";
#endif

class HostTarget : public Target {
 public:
  HostTarget() { use_host_machine(kArchitecture); }
  std::string name() const override { return "host_machine"; }
  Device device() const override { return Device::cuda(); }
  Stream stream(WorkerTeam&) const override { return {}; }
  std::vector<DType> compute_types(const AttentionSpec& spec) const override { return types_on(spec, kArchitecture); }
  void* place(void* host, size_t bytes) const override {
    void* placed = take_host_memory(bytes);
    std::memcpy(placed, host, bytes);
    return placed;
  }
  void fetch(void* host, void* placed, size_t bytes) const override { std::memcpy(host, placed, bytes); }
  void release(void* placed, size_t) const override { host_memory().release(placed); }
  void poison(const Workspace& workspace) const override { std::memset(workspace.data(), 0xff, workspace.bytes()); }
};

}  // namespace

const Target& host_machine() {
  static const HostTarget target;
  return target;
}

std::span<const Target* const> targets() {
  static const Target* const all[] = {&host_machine()};
  return all;
}

}  // namespace weft::testing
