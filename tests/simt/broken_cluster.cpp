// Kernels with clusters, wrong in one way each. Lines are counted from the name of each on.
#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/bulk_copy.h"
#include "tile/cuda/ptx/cluster.h"
#include "tile/cuda/ptx/mbarrier.h"
#include "tile/cuda/ptx/proxy_fence.h"

using namespace weft;

#line 1 "tests/simt/broken/clusters"
// Two CTAs of 32 threads, each with a word of shared memory for each thread.
namespace {
WEFT_INLINE int me() { return ptx::thread_index(); }
WEFT_INLINE u32* own() { return reinterpret_cast<u32*>(ptx::shared_memory()); }
WEFT_INLINE u32* others() { return ptx::cluster_shared(own(), 1 - ptx::cluster_rank()); }
WEFT_INLINE void tell(const RingArgs& args, u32 word) { args.y[32 * ptx::cta_index() + me()] = word; }
}  // namespace

#line 1 "tests/simt/broken/cluster_not_begun"
WEFT_KERNEL(32, 1) void weft_cluster_not_begun(RingArgs args) {
  own()[me()] = args.x[me()];
  tell(args, others()[me()]);
  ptx::cluster_sync();
}

#line 1 "tests/simt/broken/cluster_without_barrier"
WEFT_KERNEL(32, 1) void weft_cluster_without_barrier(RingArgs args) {
  ptx::cluster_sync();
  own()[me()] = args.x[me()];
  ptx::cta_sync();
  tell(args, others()[me()]);
  ptx::cluster_sync();
}

#line 1 "tests/simt/broken/cluster_ends_early"
WEFT_KERNEL(32, 1) void weft_cluster_ends_early(RingArgs args) {
  own()[me()] = args.x[me()];
  ptx::cluster_sync();
  tell(args, others()[me()]);
}

#line 1 "tests/simt/broken/cluster_arrives_twice"
WEFT_KERNEL(32, 1) void weft_cluster_arrives_twice(RingArgs) {
  ptx::cluster_arrive();
  ptx::cluster_arrive();
  ptx::cluster_wait();
}

#line 1 "tests/simt/broken/cluster_waits_alone"
WEFT_KERNEL(32, 1) void weft_cluster_waits_alone(RingArgs) { ptx::cluster_wait(); }

#line 1 "tests/simt/broken/cluster_of_one"
WEFT_KERNEL(32, 1) void weft_cluster_of_one(RingArgs) {
  u64* const full = reinterpret_cast<u64*>(ptx::shared_memory() + 128);
  if (me() == 0) ptx::mbarrier_init(full, 1);
  ptx::cta_sync();
  if (ptx::cluster_rank() == 1) ptx::mbarrier_wait(full, 0);
  ptx::cluster_sync();
}

#line 1 "tests/simt/broken/cluster_rank_beyond"
WEFT_KERNEL(32, 1) void weft_cluster_rank_beyond(RingArgs args) {
  ptx::cluster_sync();
  tell(args, ptx::cluster_shared(own(), 2)[me()]);
}

#line 1 "tests/simt/broken/copy_to_another_cta"
WEFT_KERNEL(32, 1) void weft_copy_to_another_cta(RingArgs args) {
  u64* const full = reinterpret_cast<u64*>(ptx::shared_memory() + 128);
  if (me() == 0) ptx::mbarrier_init(full, 1);
  ptx::fence_mbarrier_init();
  ptx::cluster_sync();
  if (me() == 0) ptx::mbarrier_arrive_expect(full, 128);
  if (me() == 0) ptx::bulk_copy(others(), args.x, 128, full);
  ptx::mbarrier_wait(full, 0);
}
