#include "base/device_checks.h"

#include <string>

#include "base/check.h"

namespace weft {
namespace {

std::string remedy(Device device, std::string otherwise) {
  const bool other_cpu = device.kind == DeviceKind::cpu && device.index != 0;
  return other_cpu ? "there is one CPU device, index 0: give Device::cpu()" : otherwise;
}

}  // namespace

void check_on(std::string_view op, std::string_view name, Device device, Device required) {
  if (device == required) return;
  if (required == Device::cpu() && device.kind == DeviceKind::cuda_host) return;  // the host reads it as its own
  fail(ErrorCode::invalid_device, "{}{}{}: lies on {}; {}", op, op.empty() ? "" : ": ", name, to_string(device),
       remedy(device, "supported is " + to_string(required) + ": copy it there"));
}

void refuse_device(std::string_view name, Device device) {
  const std::string given = to_string(device);
  fail(ErrorCode::unsupported, "{}: required {}, supported cpu, missing {}; {}", name, given, given,
       remedy(device, "give Device::cpu()"));
}

}  // namespace weft
