// Attention of fused decoding, as the host's compiler takes it.
#include "decode/fused/cuda/kernels/attention.h"
#include "decode/fused/cuda/kernels/merge.h"
#include "tests/decode/fused/attention_kernel.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ring.h"

namespace weft::decode::fused {
namespace {

// Warp 0 attends and merges, warp 1 copies into the one entry that there is.
template <class T, int kDim, int kKeys>
struct AttentionKernel {
  using Edge = tile::TaggedEdge;
  const AttentionKernelArgs& args;
  const Edge edge{nullptr, 0, args.limit_ns};
  u64* const full = reinterpret_cast<u64*>(ptx::shared_memory() + args.entry_bytes + args.round_bytes);
  u64* const empty = full + 1;

  void run() const {
    if (ptx::thread_index() == 0) {
      ptx::mbarrier_init(full, 1);
      ptx::mbarrier_init(empty, 1);
      ptx::fence_mbarrier_init();
    }
    ptx::cta_sync();
    const int worker = ptx::cta_index();
    if (worker == args.workers) return bring_sums();
    const int begin = args.worker_indptr[worker], end = args.worker_indptr[worker + 1];
    if (ptx::warp() == 1) {
      for (int i = begin; i < end; ++i) copy(args.items[i], static_cast<u32>(i - begin));
      return;
    }
    bool ok = true;
    u8* const heads = ptx::shared_memory() + args.entry_bytes;
    for (int r = args.round_indptr[worker]; r < args.round_indptr[worker + 1]; ++r) {
      const CardRound round = args.rounds[r], next = args.rounds[r + 1];
      const auto at = [&](int i) { return placed_head(args.attend.heads, args.heads + round.head + i, kDim); };
      ok = ok && make_round<T, kDim, 2>(args.attend, edge, PhaseCells<const u64>{args.sums, args.phase}, 0,
                                        next.head - round.head, HeadUnits<kDim>::kSide, at, heads);
      ptx::warp_sync();
      for (int i = round.item; i < next.item; ++i) {
        ptx::mbarrier_wait(full, static_cast<u32>(i - begin) % 2);
        const AttendItem<T, kDim, kKeys, Edge> of(args.attend, args.items[i], ptx::shared_memory(), heads);
        if (ok) of.attend(PhaseCells<u64>{args.states, args.phase + 1});
        ptx::warp_sync();
        if (ptx::lane() == 0) ptx::mbarrier_arrive(empty);
      }
    }
    const int cells = args.merge.num_qo_heads * kDim / 16;
    for (int unit = worker; ok && unit < cells * args.rows; unit += args.workers)
      ok = merge(unit / cells, unit % cells / (kDim / 16), unit % (kDim / 16));
    if (!ok && ptx::lane() == 0) args.gave_up[worker] = 1;
  }

  // By one warp, which takes the shares of several one after another.
  bool merge(int row, int head, int part) const {
    const PhaseCells<const u64> states{args.states, args.phase + 1};
    const auto write = [&](int r, int column, const float(&two)[2]) {
      Edge::write(args.attended + (static_cast<i64>(column / 16) * args.merge.rows + r) * 16 + column % 16, two,
                  args.phase + 2);
    };
    if (args.shares == 1) return merge_cell(args.merge, edge, states, row, head, part, write);
    MergedPair* const of_lanes = reinterpret_cast<MergedPair*>(ptx::shared_memory());
    for (int share = 0; share < args.shares; ++share) {
      MergedPair merged;
      const StateList list = states_of(args.merge, row, head);
      if (!merge_share<1>(args.merge, edge, states, list, head, part, {share, args.shares}, merged)) return false;
      if (ptx::lane() < 8) of_lanes[8 * share + ptx::lane()] = merged;
    }
    ptx::warp_sync();
    write_cell(args.merge, row, head, part, of_lanes, args.shares, write);
    ptx::warp_sync();
    return true;
  }

  void copy(const CardItem& item, u32 round) const {
    const CopyItem<kDim, kKeys> copy(args.attend, item);
    if (ptx::lane() == 0) ptx::mbarrier_wait(empty, round % 2 ^ 1);
    copy.start(ptx::shared_memory(), full);
    if (ptx::lane() == 0) ptx::mbarrier_arrive(full);
  }

  void bring_sums() const {
    for (int i = ptx::thread_index(); i < args.num_sums; i += ptx::num_threads())
      Edge::write(args.sums + i, args.plain_sums[i], args.phase);
  }
};

}  // namespace
}  // namespace weft::decode::fused

#define WEFT_ATTENTION(symbol, element, head_dim, keys)                                      \
  WEFT_KERNEL(64, 1) void symbol(WEFT_PARAM weft::decode::fused::AttentionKernelArgs args) { \
    weft::decode::fused::AttentionKernel<weft::element, head_dim, keys>{args}.run();         \
  }
WEFT_ATTENTIONS(WEFT_ATTENTION)
