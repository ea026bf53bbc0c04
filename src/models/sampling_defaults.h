// How `sampling_defaults` of weft/model.h, and whatever is sampled with, reads in JSON and in a line of text.
#pragma once

#include <string>

#include "weft/model.h"
#include "weft/ops.h"

namespace weft {

// A JSON object under the names that requests have: {"temperature":0.2,"top_k":0,...}.
std::string to_json(const SamplingParams& params, const Penalties& penalties);
// "temperature 0.2, top-p 0.9"; what is off is left out.
std::string to_string(const SamplingParams& params, const Penalties& penalties);

}  // namespace weft
