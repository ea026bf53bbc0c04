// The layers of a model on a card: its weights once, and the forms in which steps run over them.
#pragma once

#include "decode/layers.h"

namespace weft::decode {

// As make_layers, for a card.
MadeLayers make_card_layers(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options,
                            const Sequences& sequences);

}  // namespace weft::decode
