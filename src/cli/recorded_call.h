// A call that WEFT_RECORD wrote (src/attention/record.h), read back.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/attention.h"

namespace weft::cli {

struct RecordedTensor {
  std::string name;
  DType dtype = DType::fp32;
  std::vector<int64_t> shape;
  std::vector<char> bytes;  // row-major
  TensorView view() const { return TensorView(bytes.data(), dtype, shape); }
};

struct RecordedCall {
  AttentionSpec spec;
  std::string target;  // what ran it: an instruction set ("avx2"), or a card's architecture ("sm_90a")
  float sm_scale = 1;
  std::vector<ScalarArg> scalars;
  std::vector<RecordedTensor> inputs, outputs;  // outputs without bytes where the run did not end
  std::vector<char> plan;

  bool is_of_a_card() const;
  Isa isa() const;  // of one that the CPU ran
  // Throws Error(invalid_file) when there is none of this name.
  const RecordedTensor& input(std::string_view name) const;
  const RecordedTensor* output(std::string_view name) const;  // null when there is none
  // Whether run takes an input of this name.
  bool needs(std::string_view name) const;
  // The arguments of run, o and lse missing.
  AttentionTensors tensors() const;
};

// Throws Error(io_error) for what cannot be read and Error(invalid_file) for what is not such a call.
RecordedCall read_recorded_call(const std::string& folder);

}  // namespace weft::cli
