// What a request may ask for.
#pragma once

#include "serve/model_runner.h"
#include "weft/serve.h"

namespace weft::serve {

inline constexpr int kMostChoices = 64, kMostLogprobs = 20, kMostStops = 16, kMostBiases = 1024;
inline constexpr size_t kMostStopBytes = 1024;

// Throws Error(invalid_argument | invalid_token | context_full | unsupported), which names the field.
void check_request(const Request& request, const ModelRunner::Limits& limits, int max_running);

}  // namespace weft::serve
