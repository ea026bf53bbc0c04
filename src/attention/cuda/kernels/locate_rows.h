// Positions of a plan's query rows, and where the rows' own tokens lie.
#pragma once

#include "attention/abi.h"
#include "attention/cuda/kernels/locate_args.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::attention::cuda {

// The list of the last level that a row attends: those lists come last, and name the rows in order.
WEFT_INLINE const PageList& last_list_of(const PlanHeader& plan, int row) {
  const PageList* const lists = section<PageList>(&plan, plan.page_lists);
  int low = 0, high = static_cast<int>(plan.page_lists.count) - 1;
  while (low < high) {  // the last one of those that begin at or before the row, on the last level
    const int middle = (low + high + 1) / 2;
    if (lists[middle].level == plan.num_levels - 1 && lists[middle].row_begin > row)
      high = middle - 1;
    else
      low = middle;
  }
  return lists[low];
}

WEFT_INLINE void locate_rows(const LocateArgs& args) {
  ptx::wait_for_previous_kernel();
  const PlanHeader& plan = *args.plan;
  const int threads = ptx::num_ctas() * kLocateThreads;
  for (int i = ptx::cta_index() * kLocateThreads + ptx::thread_index(); i < args.rows; i += threads) {
    const PlanRow& row = section<PlanRow>(&plan, plan.rows)[i];
    const PageList& list = last_list_of(plan, i);
    const int token = row.pos - list.first_pos;  // before the list, where a request has more queries than keys
    const bool has = token >= 0;
    args.positions[row.q_row] = row.pos;
    int* const place = args.places + 2ll * row.q_row;
    place[0] = has ? section<int>(&plan, plan.page_indices)[list.first + token / plan.page_size] : 0;
    place[1] = has ? token % plan.page_size : 0;
  }
  ptx::allow_next_kernel();
}

}  // namespace weft::attention::cuda
