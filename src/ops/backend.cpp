#include "ops/backend.h"

#include "base/check.h"
#include "base/device_checks.h"
#include "device/cuda/card.h"

namespace weft::ops {

Device device_of(const TensorView& tensor) {
  return tensor.device().kind == DeviceKind::cuda ? tensor.device() : Device::cpu();
}

const Backend& backend_of(std::string_view op, Device device) {
  if (device == Device::cpu()) return cpu_backend();
  cuda::require_card(device, op);
  return cuda_backend();
}

void check_stream(std::string_view op, Stream stream, Device device) {
  if (!stream.is_default()) check_on(op, "stream", stream.device(), device);
}

}  // namespace weft::ops
