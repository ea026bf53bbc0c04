// The text of a variant compiled for the reference: one score or one vector a call. It exports weft_reference_leaf.
#pragma once

#include <string>

#include "weft/attention.h"

namespace weft::reference {

std::string text_in_double(const AttentionSpec& spec);
// In a kernel's float, with the text of its math (attention::Rounding::math): what differs is what the variant's own
// arithmetic rounds.
std::string text_in_float(const AttentionSpec& spec, const std::string& math);

}  // namespace weft::reference
