// What weights mean, in double: written from the formats' description, apart from the product.
#pragma once

#include <cstdint>

namespace weft::testing {

// Bytes of `count` weights of a row; `type` is the number in the file. Throws std::runtime_error for another type.
int64_t file_bytes(uint32_t type, int64_t count);
// `count` weights that begin at `from`, exactly; a multiple of the type's block.
void dequantise(uint32_t type, const unsigned char* from, int64_t count, double* to);
// The same of q4_g128, which no file has.
void dequantise_q4_g128(const unsigned char* from, int64_t count, double* to);

}  // namespace weft::testing
