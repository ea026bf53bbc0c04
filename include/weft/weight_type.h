// Element types of weights, and how each lies in a file.
//
//   const WeightBlock block = weight_block(WeightType::q4_k);
//   int64_t row_bytes = cols / block.inputs * block.bytes;
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// Blocks along the innermost axis, of 256 inputs for q4_k and q6_k, of 128 for q4_g128, of 32 for the other quantised
// types. q4_g128 is in no GGUF file: integers of 4 bits in symmetric groups of 128, as GPTQ makes them. A block is an
// fp16 scale, then 64 bytes; byte i holds the numbers of inputs i (low nibble) and i + 64, 8 above what they mean.
enum class WeightType : uint8_t { f32, f16, bf16, q8_0, q5_0, q4_0, q4_1, q4_k, q6_k, q4_g128 };
inline constexpr int kNumWeightTypes = 10;
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
