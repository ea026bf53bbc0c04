// What the copying warp of a worker does: weights, keys and values of all phases and layers into the ring.
#pragma once

#include "decode/fused/cuda/kernels/attention.h"
#include "decode/fused/cuda/kernels/near.h"
#include "decode/fused/cuda/kernels/product.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Keys and values of a layer, and where a step's requests have theirs.
WEFT_INLINE AttendArgs cache_args(const ModelArgs& args, int layer) {
  AttendArgs of{.heads = {}, .k = args.keys, .v = args.values, .pages = args.pages, .page_size = args.page_size};
  of.k.data = static_cast<u8*>(of.k.data) + 2 * layer * args.keys_of_layer;
  of.v.data = static_cast<u8*>(of.v.data) + 2 * layer * args.values_of_layer;
  return of;
}

// All lanes call, and get the same answers: false as soon as a wait has given up.
template <class Shape>
class Copies {
 public:
  WEFT_INLINE explicit Copies(const Worker<Shape>& worker)
      : worker_(worker),
        producer_(worker.ring(),
                  {static_cast<u32>(worker.args.ahead_bytes), static_cast<u32>(worker.args.beside_bytes)},
                  worker.args.limit_ns) {}

  WEFT_INLINE bool wants_logits() const { return worker_.args.wants_logits; }

  // Of a matrix that lies at `offset` of the weights.
  WEFT_INLINE bool weights(const Product& of, i64 offset) {
    bool goes_on = true;
    if (ptx::lane() == 0) goes_on = may_begin() && copy_weights(worker_, producer_, of, offset, phase_);
    ++phase_;
    return ptx::ballot(!goes_on) == 0;
  }
  // Of a layer's matrix.
  WEFT_INLINE bool weights_of_layer(const Product& of, int layer) {
    return weights(of, worker_.args.offsets[4 * layer + of.offset]);
  }

  // Keys and values of the worker's items, an entry each. Nothing of others goes before them, as their items need both:
  // so they count as the product's before.
  WEFT_INLINE bool keys_and_values(int layer, int kind) {
    const KindTables& tables = worker_.args.kinds[kind];
    const AttendArgs args = cache_args(worker_.args, layer);
    const Near<Shape> near(worker_, kind);
    const int count = tables.worker_indptr[worker_.worker + 1] - tables.worker_indptr[worker_.worker];
    for (int i = 0; i < count; ++i) {
      const CardItem& item = near.item(i);
      const CopyItem<Shape::kHeadDim, Shape::kChunk> copy(args, item);
      bool has_begun = true, goes_on = true;
      if (ptx::lane() == 0) {
        has_begun = i > 0 || may_begin();
        const u32 bytes = static_cast<u32>(item_entry_bytes(item.tokens(), Shape::kHeadDim));
        goes_on = has_begun && producer_.acquire_for_lanes(bytes, item_copy_bytes(item, Shape::kHeadDim),
                                                           static_cast<u32>(phase_ - 1));
      }
      if (ptx::ballot(!goes_on) != 0) {
        if (ptx::lane() == 0 && has_begun) worker_.report(StuckAt::free_entry, phase_);
        return false;
      }
      // Lane 0 knows where the entry lies.
      copy.start(ptx::shuffle(producer_.data(), 0), ptx::shuffle(producer_.full(), 0));
      if (ptx::lane() == 0) {
        producer_.arrive();
        producer_.advance();
      }
    }
    phase_ += 2;  // the merge copies nothing
    return true;
  }

  // A phase that copies nothing.
  WEFT_INLINE void skip() { ++phase_; }

  // Behind the last phase, and where a wait gave up: shared memory must not end before copies have landed.
  WEFT_INLINE void end() {
    if (ptx::lane() == 0) producer_.drain();
  }

 private:
  // Where a study holds copies back: once the consumers have begun the phase. False: they never do, and say why.
  WEFT_INLINE bool may_begin() const {
    if (!worker_.args.holds_back) return true;
    const u32* const begun = worker_.ring().begun();
    return tile::wait_until([&] { return ptx::load_relaxed_shared(begun) > static_cast<u32>(phase_); },
                            worker_.args.limit_ns);
  }

  const Worker<Shape> worker_;
  tile::RingProducer producer_;
  int phase_ = 0;
};
#endif

}  // namespace weft::decode::fused
