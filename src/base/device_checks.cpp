#include "base/device_checks.h"

#include <string>

#include "base/check.h"

namespace weft {
namespace {

constexpr std::string_view remedy(Device device, std::string_view otherwise) {
  return device.kind == DeviceKind::cpu ? "there is one CPU device, index 0: give Device::cpu()" : otherwise;
}

}  // namespace

void check_on_cpu(std::string_view op, std::string_view name, Device device) {
  if (device == Device::cpu()) return;
  fail(ErrorCode::invalid_device, "{}{}{}: lies on {}; {}", op, op.empty() ? "" : ": ", name, to_string(device),
       remedy(device, "supported is cpu: copy it there"));
}

void check_is_cpu(std::string_view name, Device device) {
  if (device == Device::cpu()) return;
  const std::string given = to_string(device);
  fail(ErrorCode::unsupported, "{}: required {}, supported cpu, missing {}; {}", name, given, given,
       remedy(device, "give Device::cpu()"));
}

}  // namespace weft
