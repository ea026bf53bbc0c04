// Element types of weights, and how each lies in a GGUF file.
//
//   const WeightBlock block = weight_block(WeightType::q4_k);
//   int64_t row_bytes = cols / block.inputs * block.bytes;
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// Blocks along the innermost axis, of 256 inputs for q4_k and q6_k, of 32 for the other quantised types.
enum class WeightType : uint8_t { f32, f16, bf16, q8_0, q5_0, q4_0, q4_1, q4_k, q6_k };
inline constexpr int kNumWeightTypes = 9;
std::string_view to_string(WeightType type);  // as in files: "F32", "Q4_K", ...

// Inputs that are stored together: those of a quantised type share scales, those of the others stand alone.
struct WeightBlock {
  int64_t inputs = 1, bytes = 0;
  int num_scales = 0;  // in fp16, each at its byte of the block
  int scale_at[2] = {};

  bool is_quantised() const { return num_scales > 0; }
};
const WeightBlock& weight_block(WeightType type);

}  // namespace weft
