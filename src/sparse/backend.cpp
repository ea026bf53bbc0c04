#include "sparse/backend.h"

#include "base/device_checks.h"

namespace weft::sparse {

const Backend& backend_of(Device device, std::string_view name) {
  if (device.kind == DeviceKind::cuda_host) refuse_device(name, device);
  const Backend& backend = device.kind == DeviceKind::cuda ? cuda_backend() : cpu_backend();
  backend.require(device, name);
  return backend;
}

const Machine& machine(Device device) { return backend_of(device, "machine").machine(device); }

}  // namespace weft::sparse
