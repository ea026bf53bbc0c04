#include "device/cuda/stream.h"

#include "base/device_checks.h"
#include "device/cuda/clamped.h"
#include "device/cuda/report.h"
#include "weft/device.h"

namespace weft {

WorkerTeam& Stream::team() const {
  check_on_cpu("", "stream", device_);
  return team_ != nullptr ? *team_ : WorkerTeam::shared();
}

void Stream::synchronize() const {
  if (device_.kind == DeviceKind::cpu) return;
  cuda::require_card(device_, "stream");
  cuda::Card& card = cuda::Card::at(device_.index);
  auto* const stream = static_cast<cuda::api::Stream>(handle_);
  cuda::synchronize(card, stream);
  cuda::refuse_clamped(card, stream);
  cuda::refuse_reported(card, stream);
}

}  // namespace weft
