#include "cli/copy_on_device.h"

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"

namespace weft::cli {

CopyOnDevice::CopyOnDevice(Device device, const AttentionTensors& given)
    : device_(device), given_(given), tensors_(given) {
  const auto replace = [&](TensorView& tensor) {
    if (tensor) tensor = place(tensor);
  };
  for (TensorView* tensor : {&tensors_.q, &tensors_.kv.k, &tensors_.kv.v, &tensors_.kv.k_scale, &tensors_.kv.v_scale,
                             &tensors_.o, &tensors_.lse})
    replace(*tensor);
  for (TensorArg& arg : tensors_.tensors) replace(arg.value);
}

TensorView CopyOnDevice::place(const TensorView& given) {
  const size_t bytes = static_cast<size_t>(given.size() * bits_of(given.dtype()) / 8);
  const Workspace& memory = memory_.emplace_back(device_, bytes);
  cuda::copy_to_card(cuda::Card::at(device_.index), memory.data(), given.data(), bytes, nullptr);
  return TensorView(memory.data(), given.dtype(), given.shape(), device_);
}

void CopyOnDevice::fetch(const TensorView& from, const TensorView& to) const {
  if (!from) return;
  cuda::Card& card = cuda::Card::at(device_.index);
  cuda::copy_to_host(card, to.data(), from.data(), static_cast<size_t>(to.size() * bits_of(to.dtype()) / 8), nullptr);
  cuda::synchronize(card, nullptr);
}

void CopyOnDevice::fetch_outputs() {
  fetch(tensors_.o, given_.o);
  fetch(tensors_.lse, given_.lse);
}

}  // namespace weft::cli
