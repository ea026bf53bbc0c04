// The forward pass as the engine's model.
#pragma once

#include <memory>

#include "serve/model_runner.h"
#include "weft/serve.h"

namespace weft::serve {

// Loads the model, with a pool of pages as the options say.
std::unique_ptr<ModelRunner> make_forward_runner(const ModelFile& file, const EngineOptions& options);

}  // namespace weft::serve
