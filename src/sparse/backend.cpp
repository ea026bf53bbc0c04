#include "sparse/backend.h"

#include "base/check.h"

namespace weft::sparse {

const Backend& backend_of(Device device, std::string_view name) {
  check(device == Device::cpu(), ErrorCode::unsupported,
        "{}: device {}: required: a backend that loads kernels there; supported: cpu; `text(\"cuda\")` shows the "
        "kernels",
        name, weft::to_string(device));
  return cpu_backend();
}

const Machine& machine(Device device) { return backend_of(device, "machine").machine(device); }

}  // namespace weft::sparse
