// A worker of a kernel that runs a whole step: a CTA of warps that multiply and one that copies, and what they share.
#pragma once

#include "decode/fused/cuda/kernels/model_args.h"
#include "decode/fused/shares.h"
#include "tile/cuda/edge.h"
#include "tile/cuda/element.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/clock.h"
#include "tile/cuda/ring.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
inline constexpr int kConsumers = 32 * kConsumerWarps;  // threads that multiply

// Small enough to be copied by whatever needs it, 16 bytes at once: a reference would keep it in memory.
template <class Shape>
struct alignas(16) Worker {
  const ModelArgs& args;  // of the launch
  const int worker, thread;

  static constexpr SharedLayout kLayout{Shape::kSizes};

  WEFT_INLINE explicit Worker(const ModelArgs& a) : args(a), worker(ptx::cta_index()), thread(ptx::thread_index()) {}

  // Of all threads, first.
  WEFT_INLINE void init() const {
    if (thread == 0) {
      ring().init();
      ptx::store_relaxed_shared(stopped(0), 0);
      ptx::store_relaxed_shared(stopped(1), 0);
    }
    for (int i = thread; i < Shape::kSizes.slots; i += ptx::num_threads())
      at<u16>(kLayout.slots)[i] = static_cast<u16>(args.matrices[0].first_slot[i]);
    ptx::cta_sync();
  }
  WEFT_INLINE bool copies() const { return thread >= kConsumers; }
  // Where a worker's share begins of so many things (shares.h); `behind`: of one behind this one.
  WEFT_INLINE int share_of(int count, int behind = 0) const {
    return static_cast<int>(share_begin(count, worker + behind, Shape::kWorkers));
  }
  WEFT_INLINE static tile::Ring ring() {
    return {ptx::shared_memory(), Shape::kSizes.ring_bytes, Shape::kSizes.ring_entries};
  }
  WEFT_INLINE static float* parts() { return at<float>(kLayout.parts); }
  // What is multiplied: [kRows, kLayout.ldx].
  WEFT_INLINE static bf16* x(int row) { return at<bf16>(kLayout.x) + row * kLayout.ldx; }
  // Of a round of attention: rows of entry_row_bytes().
  WEFT_INLINE static u8* heads() { return at<u8>(kLayout.heads); }
  WEFT_INLINE static NearTables* near(int kind) {
    return at<NearTables>(kLayout.near + kind * near_bytes(Shape::kSizes));
  }
  // Of what is normed, by 32 columns; and what the norm multiplies by.
  WEFT_INLINE static float* squares(int row) { return at<float>(kLayout.squares) + row * Shape::kSizes.squares; }
  WEFT_INLINE static float& factor(int row) { return at<float>(kLayout.factors)[row]; }
  // Of the worker's own columns: the residual, and sums that are kept for a norm of them.
  WEFT_INLINE static float* residual(int row) { return at<float>(kLayout.residual) + row * Shape::kSizes.owned; }
  WEFT_INLINE static float* sums(int row) { return at<float>(kLayout.sums) + row * Shape::kSizes.kept_sums; }
  // Of a matrix: MatrixTables::first_slot.
  template <class M>
  WEFT_INLINE static const u16* first_slots() {
    return at<u16>(kLayout.slots) + M::kFirstSlots;
  }
  WEFT_INLINE static u32* stopped(u32 turn) { return at<u32>(kLayout.stopped) + turn; }

  // Cells of this launch's phases, which are numbered from 0, bear numbers that no launch before had.
  WEFT_INLINE u32 tag_of(int phase) const { return args.first_phase + static_cast<u32>(phase) + 1; }
  WEFT_INLINE tile::TaggedEdge edge() const { return {nullptr, 0, args.limit_ns}; }

  // One thread.
  WEFT_INLINE void stamp(int phase, Stamp what) const {
    if constexpr (Shape::kLeavesTimes)
      args.trace[(static_cast<i64>(worker) * Shape::kPhases + phase) * kNumStamps + what] = ptx::global_ns();
  }
  WEFT_INLINE void report(StuckAt at, int phase) const {
    ptx::store_relaxed(args.stuck + worker, static_cast<u64>(at) << 32 | static_cast<u32>(phase));
  }

 private:
  template <class T>
  WEFT_INLINE static T* at(int bytes) {
    return reinterpret_cast<T*>(ptx::shared_memory() + bytes);
  }
};

// Barriers of the threads that multiply. A wait that gave up is told before a barrier and asked behind it, so that all
// end at the same one. Two words take turns: nobody tells of the next barrier while others still ask.
template <class Shape>
class Consumers {
 public:
  WEFT_INLINE explicit Consumers(const Worker<Shape>& worker) : worker_(worker) {}

  // False: some wait gave up before it, and all of them return.
  WEFT_INLINE bool sync() {
    ptx::named_sync(1, kConsumers);
    const bool goes_on = ptx::load_relaxed_shared(Worker<Shape>::stopped(turn_)) == 0;
    turn_ ^= 1;
    return goes_on;
  }
  WEFT_INLINE void give_up(StuckAt at, int phase) const {
    worker_.report(at, phase);
    ptx::store_relaxed_shared(Worker<Shape>::stopped(turn_), 1);
  }

 private:
  const Worker<Shape> worker_;
  u32 turn_ = 0;
};
#endif

}  // namespace weft::decode::fused
