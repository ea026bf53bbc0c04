// `weft bench sparse --device cuda:0 --only ablation`: what formats and fused relations are worth on a card.
#pragma once

#include <span>

#include "bench/bench.h"
#include "bench/cuda/card.h"
#include "bench/sparse/cases.h"

namespace weft::bench {

// SpMM of the graphs in CSR and in hyb(c, k) over column partitions; blocks of BSR and DBSR over empty block rows; RGMS
// relation by relation, in tiles with FMA, and by tensor cores, with what each holds beside its tensors. Only where
// rows of "ablation" are asked for.
void measure_ablations_on_card(CardBench& bench, std::span<const SparseCase> graphs, const BenchOptions& options,
                               BenchReport& report);

}  // namespace weft::bench
