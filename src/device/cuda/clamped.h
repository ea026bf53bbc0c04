// What kernels say of numbers that the host did not see: they clamp what is out of range, give -1 for a row of logits
// that nothing can be drawn from, and raise a flag that the next Stream::synchronize() reads.
#pragma once

#include "device/cuda/card.h"

namespace weft::cuda {

// Bits of the flag.
inline constexpr unsigned kClamped = 1, kNothingToDraw = 2;

// The card's flag, a word of its memory. Throws Error(out_of_memory).
unsigned* clamped_flag(Card& card);
// Lowers the flag where it is raised. Throws Error(invalid_page) where something was clamped, else
// Error(invalid_argument) then.
void refuse_clamped(Card& card, api::Stream stream);

}  // namespace weft::cuda
