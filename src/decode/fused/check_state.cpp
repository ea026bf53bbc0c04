#include "decode/fused/check_state.h"

namespace weft::decode::fused {
CheckState::CheckState(const Partition& p, const Schedule& s, size_t most)
    : partition(p),
      program(p.program),
      schedule(s),
      group(p.program.num_qo_heads / p.program.num_kv_heads),
      num_rows(s.num_rows()),
      found(p, s, most),
      memory(p, s),
      needs(p, s, memory),
      workers(s.workers.size()) {
  uses.resize(static_cast<size_t>(schedule.num_phases));
  for (int i = 0; i < schedule.num_phases; ++i) {
    Uses& of = uses[static_cast<size_t>(i)];
    const Phase& phase = phase_at(i);
    of.used.assign(static_cast<size_t>(phase.attends()   ? program.num_kv_heads * num_rows
                                       : phase.merges()  ? 0
                                       : phase.reduces() ? memory.num_cells(phase.writes)
                                                         : partition.matrix_of(phase).tiles.num_tiles()),
                   0);
    of.loaded = of.used;
  }
  for (size_t w = 0; w < workers.size(); ++w) {
    workers[w].residual.assign(static_cast<size_t>(p.num_cells(Shared::normed, 0)), kNothing);
    workers[w].kept_sums = workers[w].residual;
    workers[w].awaited.assign(schedule.workers[w].loads.size(), 0);
    for (size_t i = 0; i < kNumShared; ++i)
      workers[w].inbox[i].assign(static_cast<size_t>(memory.num_cells(static_cast<Shared>(i))), kNothing);
  }
}

const AttentionItem* CheckState::item_at(int item) const {
  if (!phase_at(found.phase).attends()) return nullptr;
  const AttentionItems& items = schedule.items_of(phase_at(found.phase), program);
  return item >= 0 && item < static_cast<int>(items.items.size()) ? &items.items[static_cast<size_t>(item)] : nullptr;
}

int CheckState::cached_of(const AttentionItem& item) const {
  return schedule.items_of(phase_at(found.phase), program).requests[static_cast<size_t>(item.request)].cached();
}

}  // namespace weft::decode::fused
