// What the fused step on a card refuses, each by name: what is required, what is supported, what is missing.
//
//   const Partition partition = check_fused(config, sources, options);      // before any weight is read
//   check_pages(sequences.layer(0));            // before the first launch
#pragma once

#include "decode/fused/partition.h"
#include "decode/weights.h"
#include "weft/attention.h"
#include "weft/model.h"

namespace weft::decode::fused {

// The partition that steps run in. Throws Error(unsupported) for a device, a precision, a cache, plans, a model's shape
// or weights that the kernel does not have, Error(invalid_argument) for more CTAs than the device has multiprocessors,
// and what runtimes throw for a device that is not there.
Partition check_fused(const ModelConfig& config, const ModelSources& sources, const ForwardOptions& options);

// Parts of it that need no device: of a model's shape, and of the types of its weights.
void check_shape(const ModelConfig& config, const Program& program);
void check_weights(const Partition& partition);

// Throws Error(unsupported) for pages in which a token's head is not one copy of whole 16 bytes.
void check_pages(const KvCache& layer);

}  // namespace weft::decode::fused
