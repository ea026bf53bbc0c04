// The attention states of a unit's rows while an item is worked on.
#pragma once

#include "attention/cpu/kernels/dense.h"
#include "attention/cpu/kernels/seen.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// One for each fused row, in the order of UnitView::states.
struct States {
  States(const UnitView& unit, const Seen* seen, long long ld_o, Arena& arena);

  void clear();
  float* o_of(int head) const { return o + static_cast<long long>(head) * unit.group_rows * ld_o; }
  // Whether some element of o is NaN or Inf.
  bool has_non_finite() const;
  // Scales o, of scales a head, divides it by its sums, makes lse of them, and writes both: to the output, or to the
  // item's partial.
  void write(const WorkItem& item);

  const UnitView& unit;
  const Seen* seen;  // [query tokens]
  const long long ld_o;
  abi::ScoreRow* rows;      // [states]
  abi::VectorRow* vectors;  // [states] what the query hook is told
  float *m, *l, *alpha;     // [states] running maximum and sum, and the last change of scale, as of SoftmaxTile
  float* o;                 // [states][ld_o]
  float* vector_scratch;    // [larger head dim] for whoever works on one row

 private:
  void write_partial(const Partial& partial, const float* lse, const float* rest) const;
};

// The query rows of one KV head in fp32, changed by their hook: [group_rows][head_dim_qk]. With scales a head of keys,
// they are scaled; for products in bf16 they are rounded in place, so that rows are half as long.
void load_queries(const States& states, int head, float* queries);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
