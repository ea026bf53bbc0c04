#include "cli/device.h"

#include <charconv>
#include <string_view>

#include "base/check.h"
#include "device/cuda/card.h"

namespace weft::cli {

Device device_of(const std::string& value, const std::string& option) {
  if (value == "cpu") return Device::cpu();
  std::string_view rest = value;
  int index = 0;
  bool valid = rest.starts_with("cuda");
  if (valid && !(rest = rest.substr(4)).empty()) {
    const char* end = rest.data() + rest.size();
    const auto [last, error] = std::from_chars(rest.data() + 1, end, index);
    valid = rest[0] == ':' && error == std::errc() && last == end && index >= 0;
  }
  check(valid, ErrorCode::invalid_argument, "{} = {}; allowed are cpu and cuda:N", option, value);
  return Device::cuda(index);
}

Device require_device(const std::string& value, const std::string& option) {
  const Device device = device_of(value, option);
  if (device.kind == DeviceKind::cuda) cuda::require_card(device, option, "use " + option + " cpu");
  return device;
}

}  // namespace weft::cli
