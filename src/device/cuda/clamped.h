// What kernels say of numbers that the host did not see: they clamp what is out of range, and raise a flag that the
// next Stream::synchronize() reads.
#pragma once

#include "device/cuda/card.h"

namespace weft::cuda {

// The card's flag, a word of its memory: not 0 where something was clamped. Throws Error(out_of_memory).
unsigned* clamped_flag(Card& card);
// Lowers the flag where it is raised. Throws Error(invalid_page) then.
void refuse_clamped(Card& card, api::Stream stream);

}  // namespace weft::cuda
