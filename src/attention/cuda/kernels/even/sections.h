// The sections of an even plan: how long they are follows from how many units are cut.
#pragma once

#include "attention/cuda/kernels/even/shares.h"

namespace weft::attention::cuda::even {

// Of a partial state.
WEFT_INLINE i64 partial_floats_of(const EvenArgs& args) {
  const PlanHeader& plan = args.header;
  return partial_floats(static_cast<i64>(args.batch.qo_len) * (plan.num_qo_heads / plan.num_kv_heads),
                        plan.head_dim_vo);
}

// In the header in shared memory, as plan/bounds.cpp does.
WEFT_INLINE void place_sections(const EvenArgs& args, const Shares& shares) {
  const PlanHeader& plan = args.header;
  const int workers = plan.num_workers, requests = plan.num_requests;
  Shared& s = shared();
  const auto* const from = reinterpret_cast<const u32*>(&plan);
  auto* const copy = reinterpret_cast<u32*>(&s.header);
  for (int i = ptx::thread_index(); i < static_cast<int>(sizeof(PlanHeader) / 4); i += kEvenThreads) copy[i] = from[i];
  ptx::cta_sync();
  if (ptx::thread_index() == 0) {
    PlanHeader& h = s.header;
    i64 offset = kRecordsOffset;
    const auto place = [&](Section& section, i64 count, int bytes) {
      section = {offset, count};
      offset = (offset + count * bytes + 63) / 64 * 64;
    };
    const int partials = shares.num_cuts() + shares.num_cut_units();
    place(h.records, workers + shares.num_items() - s.busy[workers], sizeof(ItemRecord));
    place(h.worker_indptr, workers + 1, sizeof(int));
    place(h.items, shares.num_items(), sizeof(WorkItem));
    place(h.units, requests * plan.num_kv_heads, sizeof(Unit));
    place(h.rows, static_cast<i64>(requests) * args.batch.qo_len, sizeof(PlanRow));
    place(h.page_lists, requests, sizeof(PageList));
    place(h.partials, partials, sizeof(Partial));
    place(h.merge_groups, shares.num_cut_units(), sizeof(MergeGroup));
    place(h.merge_sources, partials, sizeof(MergeSource));
    place(h.qo_len, requests, sizeof(int));
    place(h.kv_len, requests, sizeof(int));
    place(h.mask_indptr, 0, sizeof(i64));
    place(h.kv_positions, 0, sizeof(int));
    place(h.bits_index, 0, sizeof(int));
    place(h.bits, 0, 1);
    place(h.counters, shares.num_cut_units(), sizeof(int));
    place(h.page_indices, s.pages_before[requests], sizeof(int));
    h.partial_data.count = partials * partial_floats_of(args);
  }
  ptx::cta_sync();
}

// The header from shared memory to the workspace, and the gaps between sections, which are zero.
WEFT_INLINE void write_header(char* workspace) {
  const auto* const from = reinterpret_cast<const u32*>(&shared().header);
  auto* const header = reinterpret_cast<u32*>(workspace);
  const int words = sizeof(PlanHeader) / 4;
  for (int i = ptx::thread_index(); i < words; i += kEvenThreads) header[i] = from[i];
  const PlanHeader& h = shared().header;
  const auto zero_up = [&](i64 end) {
    for (i64 i = end + ptx::thread_index() * 4; i < (end + 63) / 64 * 64; i += kEvenThreads * 4)
      *reinterpret_cast<u32*>(workspace + i) = 0;
  };
  const auto behind = [](const Section& s, i64 bytes) { return s.offset + s.count * bytes; };
  zero_up(sizeof(PlanHeader));
  zero_up(behind(h.records, sizeof(ItemRecord)));
  zero_up(behind(h.worker_indptr, sizeof(int)));
  zero_up(behind(h.items, sizeof(WorkItem)));
  zero_up(behind(h.units, sizeof(Unit)));
  zero_up(behind(h.rows, sizeof(PlanRow)));
  zero_up(behind(h.page_lists, sizeof(PageList)));
  zero_up(behind(h.partials, sizeof(Partial)));
  zero_up(behind(h.merge_groups, sizeof(MergeGroup)));
  zero_up(behind(h.merge_sources, sizeof(MergeSource)));
  zero_up(behind(h.qo_len, sizeof(int)));
  zero_up(behind(h.kv_len, sizeof(int)));
  zero_up(behind(h.counters, sizeof(int)));
}

}  // namespace weft::attention::cuda::even
