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

// The sections that are placed, in the order in which they lie; a lane has one of them. All but partial_data, and the
// page ids, which come last, lie in the order of the header.
inline constexpr int kSections = 17, kPageIds = kSections - 1;
WEFT_INLINE Section& section_of_lane() {
  constexpr int kPlace = 12;  // of page_indices, in the header
  const int lane = ptx::lane();
  return (&shared().header.records)[lane < kPlace ? lane : lane == kPageIds ? kPlace : lane + 1];
}
WEFT_INLINE int element_bytes_of_lane() {
  switch (ptx::lane()) {
    case 0: return sizeof(ItemRecord);
    case 2: return sizeof(WorkItem);
    case 3: return sizeof(Unit);
    case 4: return sizeof(PlanRow);
    case 5: return sizeof(PageList);
    case 6: return sizeof(Partial);
    case 7: return sizeof(MergeGroup);
    case 8: return sizeof(MergeSource);
    case 11: return sizeof(i64);
    case 14: return 1;
    default: return sizeof(int);
  }
}
WEFT_INLINE i64 count_of_lane(const EvenArgs& args, const Shares& shares) {
  const int workers = args.header.num_workers, requests = args.header.num_requests;
  switch (ptx::lane()) {
    case 0: return workers + shares.num_items() - shared().busy[workers];
    case 1: return workers + 1;
    case 2: return shares.num_items();
    case 3: return requests * args.header.num_kv_heads;
    case 4: return static_cast<i64>(requests) * args.batch.qo_len;
    case 6:
    case 8: return shares.num_cuts() + shares.num_cut_units();
    case 7:
    case 15: return shares.num_cut_units();
    case 5:
    case 9:
    case 10: return requests;
    case kPageIds: return shared().pages_before[requests];
    default: return 0;  // of masks and of blocks
  }
}

// In the header in shared memory, as plan/bounds.cpp does.
WEFT_INLINE void place_sections(const EvenArgs& args, const Shares& shares) {
  Shared& s = shared();
  const auto* const from = reinterpret_cast<const u32*>(&args.header);
  auto* const copy = reinterpret_cast<u32*>(&s.header);
  WEFT_NO_UNROLL
  for (int i = ptx::thread_index(); i < static_cast<int>(sizeof(PlanHeader) / 4); i += kEvenThreads) copy[i] = from[i];
  ptx::cta_sync();
  if (ptx::warp() == 0) {
    const i64 count = ptx::lane() < kSections ? count_of_lane(args, shares) : 0;
    const i64 room = (count * element_bytes_of_lane() + 63) / 64 * 64;
    const i64 end = kRecordsOffset + sum_of_lanes(room);
    if (ptx::lane() < kSections) section_of_lane() = {end - room, count};
    if (ptx::lane() == 0)
      s.header.partial_data.count = (shares.num_cuts() + shares.num_cut_units()) * partial_floats_of(args);
  }
  ptx::cta_sync();
}

// The header from shared memory to the workspace, and the gaps between sections, which are zero.
WEFT_INLINE void write_header(char* workspace) {
  const auto* const from = reinterpret_cast<const u32*>(&shared().header);
  auto* const header = reinterpret_cast<u32*>(workspace);
  WEFT_NO_UNROLL
  for (int i = ptx::thread_index(); i < static_cast<int>(kRecordsOffset / 4); i += kEvenThreads)
    header[i] = i < static_cast<int>(sizeof(PlanHeader) / 4) ? from[i] : 0;
  if (ptx::warp() > 0 || ptx::lane() >= kPageIds) return;
  const Section& own = section_of_lane();
  const i64 end = own.offset + own.count * element_bytes_of_lane();
  WEFT_NO_UNROLL
  for (i64 i = end; i < (end + 63) / 64 * 64; i += 4) *reinterpret_cast<u32*>(workspace + i) = 0;
}

}  // namespace weft::attention::cuda::even
