#include "cli/sparse_device.h"

#include "device/cuda/memory.h"
#include "device/cuda/stream.h"

namespace weft::cli {
namespace {

size_t bytes_of(const TensorView& tensor) {
  return static_cast<size_t>(tensor.size()) * static_cast<size_t>(bits_of(tensor.dtype())) / 8;
}

}  // namespace

RunOnDevice::RunOnDevice(Device device, const sparse::RunArguments& host)
    : device_(device),
      stream_(device == Device::cpu() ? Stream() : Stream::cuda(nullptr, device.index)),
      host_(host),
      there_(host) {
  if (device == Device::cpu()) return;
  for (auto& [name, tensor] : there_.buffers) {
    const Workspace& memory = memory_.emplace(name, Workspace(device, bytes_of(tensor))).first->second;
    tensor = TensorView(memory.data(), tensor.dtype(), tensor.shape(), device);
    send(name);
  }
}

void RunOnDevice::send(const std::string& buffer) const {
  const auto memory = memory_.find(buffer);
  if (memory == memory_.end()) return;
  const TensorView& from = host_.buffers.at(buffer);
  weft::cuda::Card& card = weft::cuda::Card::at(device_.index);
  weft::cuda::copy_to_card(card, memory->second.data(), from.data(), bytes_of(from), nullptr);
  weft::cuda::synchronize(card, nullptr);
}

void RunOnDevice::fetch(const std::string& buffer) const {
  const auto memory = memory_.find(buffer);
  if (memory == memory_.end()) return;
  const TensorView& to = host_.buffers.at(buffer);
  weft::cuda::Card& card = weft::cuda::Card::at(device_.index);
  weft::cuda::copy_to_host(card, to.data(), memory->second.data(), bytes_of(to), nullptr);
  weft::cuda::synchronize(card, nullptr);
}

}  // namespace weft::cli
