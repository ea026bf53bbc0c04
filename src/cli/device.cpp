#include "cli/device.h"

#include <charconv>
#include <string_view>

#include "base/check.h"
#include "device/cuda/card.h"

namespace weft::cli {

Device device_of(const std::string& option) {
  if (option == "cpu") return Device::cpu();
  std::string_view rest = option;
  int index = 0;
  bool valid = rest.starts_with("cuda");
  if (valid && !(rest = rest.substr(4)).empty()) {
    const char* end = rest.data() + rest.size();
    const auto [last, error] = std::from_chars(rest.data() + 1, end, index);
    valid = rest[0] == ':' && error == std::errc() && last == end && index >= 0;
  }
  check(valid, ErrorCode::invalid_argument, "--device = {}; allowed are cpu and cuda:N", option);
  return Device::cuda(index);
}

Device require_device(const std::string& option) {
  const Device device = device_of(option);
  if (device.kind == DeviceKind::cuda) cuda::require_card(device, "--device", "use --device cpu");
  return device;
}

}  // namespace weft::cli
