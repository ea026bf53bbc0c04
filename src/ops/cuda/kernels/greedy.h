// Of each row of logits the first of the greatest: a row is cut among CTAs, and the last one of them that is done with
// its part has what the others found.
#pragma once

#include "ops/cuda/kernels/args.h"
#include "tile/cuda/greatest.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/dependent_launch.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::ops {

// Found by a CTA or a warp, as 8 bytes.
WEFT_INLINE u64 packed(const tile::Greatest& greatest) {
  return static_cast<u64>(ptx::to_bits(greatest.value)) << 32 | static_cast<u32>(greatest.index);
}
WEFT_INLINE tile::Greatest unpacked(u64 found) {
  tile::Greatest greatest;
  greatest.value = ptx::from_bits(static_cast<u32>(found >> 32));
  greatest.index = static_cast<int>(static_cast<u32>(found));
  return greatest;
}

// One warp: of a part whose warps have found these.
WEFT_INLINE void join_parts(const GreedyArgs& args, i64 row, int part, const u64* of_warps) {
  tile::Greatest greatest;
  for (int warp = 0; warp < kGreedyWarps; ++warp) greatest.take(unpacked(of_warps[warp]));
  u32 before = 0;  // parts of the row that are done
  if (ptx::lane() == 0) {
    ptx::store_relaxed(args.found + row * args.parts + part, packed(greatest));
    before = ptx::atomic_add_acq_rel(args.done + row, 1);
  }
  if (ptx::shuffle(before, 0) + 1 != static_cast<u32>(args.parts)) return;
  ptx::warp_sync();  // what lane 0 has acquired the others may read
  for (int i = ptx::lane(); i < args.parts; i += 32)
    greatest.take(unpacked(ptx::load_relaxed(args.found + row * args.parts + i)));
  greatest = tile::lane_greatest(greatest);
  if (ptx::lane() > 0) return;
  args.ids[row] = greatest.index;
  args.done[row] = 0;  // for the next launch
}

// All threads.
WEFT_INLINE void greedy_part(const GreedyArgs& args, i64 row, int part, u64* of_warps) {
  const float* const x = args.logits + row * args.columns;
  const int begin = static_cast<int>(static_cast<i64>(args.columns) * part / args.parts);
  const int end = static_cast<int>(static_cast<i64>(args.columns) * (part + 1) / args.parts);
  tile::Greatest greatest;
  for (int i = begin + ptx::thread_index(); i < end; i += 32 * kGreedyWarps) greatest.take(x[i], i);
  greatest = tile::lane_greatest(greatest);
  if (ptx::lane() == 0) of_warps[ptx::warp()] = packed(greatest);
  ptx::cta_sync();
  if (ptx::warp() == 0) join_parts(args, row, part, of_warps);
}

}  // namespace weft::ops

WEFT_KERNEL(256, 1) void weft_greedy(WEFT_PARAM weft::ops::GreedyArgs args) {
  using namespace weft;
  ptx::wait_for_previous_kernel();
  ptx::allow_next_kernel();
  // Turns of shared memory: what is written was read two barriers ago.
  u64* const found = reinterpret_cast<u64*>(ptx::shared_memory());
  int turn = 0;
  for (i64 at = ptx::cta_index(); at < args.rows * args.parts; at += ptx::num_ctas(), turn ^= 1)
    ops::greedy_part(args, at / args.parts, static_cast<int>(at % args.parts), found + turn * ops::kGreedyWarps);
}
