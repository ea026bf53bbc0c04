// Shape and constants of a model, from a file's metadata.
#pragma once

#include "weft/model.h"

namespace weft {

// Throws Error(unsupported) for an architecture or a feature that is not there, Error(invalid_file) for keys that are
// missing, of a wrong type, out of bounds, or at odds with each other or with the embedding.
ModelConfig read_config(const ModelFile& file);

// Throws Error(unsupported) for a file of the same form that holds no model: an adapter, a projector of images, an
// importance matrix.
void refuse_other_contents(const ModelFile& file);

}  // namespace weft
