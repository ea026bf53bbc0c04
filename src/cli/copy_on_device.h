// The tensors of a call on another device, and its outputs back.
//
//   CopyOnDevice copy(Device::cuda(0), tensors);
//   kernel.run(plan, copy.tensors(), workspace);
//   copy.fetch_outputs();                                   // into those that were given
#pragma once

#include <vector>

#include "weft/attention.h"
#include "weft/device.h"

namespace weft::cli {

class CopyOnDevice {
 public:
  // `given` lie on the CPU, row-major.
  CopyOnDevice(Device device, const AttentionTensors& given);
  const AttentionTensors& tensors() const { return tensors_; }
  void fetch_outputs();

 private:
  TensorView place(const TensorView& given);
  void fetch(const TensorView& from, const TensorView& to) const;

  Device device_;
  AttentionTensors given_, tensors_;
  std::vector<Workspace> memory_;
};

}  // namespace weft::cli
