// Tensor maps of keys and values, which come in boxes where a spec names them (kernels/producer/loaders.h).
#pragma once

#include "attention/cuda/architecture.h"
#include "attention/cuda/kernels/args.h"
#include "weft/attention.h"

namespace weft::attention::cuda {

// Keys of a tile of a producer, and tiles of queries that there is room for.
struct ProducerTile {
  int keys, query_stages;
};
// Of a spec that the family computes.
ProducerTile producer_tile(const AttentionSpec& spec, const Architecture& architecture);

struct BoxLayouts {
  abi::TensorLayout k, v;
};
// Dimensions: columns of a panel, tokens, panels, KV heads, pages. A box has all panels of a tile's tokens, or, of
// pages, one panel of tokens that lie in one page whatever the tile.
BoxLayouts box_layouts(const AttentionSpec& spec, const RunArgs& args, const PlanHeader& plan,
                       const ProducerTile& tile);
// Why no boxes bring the call's keys and values; empty: they do. Says whose and what is required.
std::string why_no_boxes(const BoxLayouts& layouts);

}  // namespace weft::attention::cuda
