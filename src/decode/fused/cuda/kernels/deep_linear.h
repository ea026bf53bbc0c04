// A deep linear network in one kernel: x becomes W (x * scale), layer after layer, x in bf16, sums in fp32. It is what
// products of a whole model cost when nothing else is there: a ring that is filled over all layers, products from it,
// and edges between them.
//
// A CTA is a worker: kWarps warps multiply, and a thread of the last warp copies. A launch is cooperative. Generated
// text instantiates it: WEFT_DEEP_LINEAR(symbol, edge, weights, most rows, warps, pairs of columns of the input that a
// thread loads at once, pieces of each).
#pragma once

#include "decode/fused/cuda/kernels/deep_linear_args.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/edge.h"
#include "tile/cuda/matvec.h"
#include "tile/cuda/ptx/bulk_copy.h"
#include "tile/cuda/quantised_tiles.h"
#include "tile/cuda/ring.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
template <class Edge, class Weights, int kRows, int kWarps, int kPairs, int kPieces>
struct DeepLinear {
  static constexpr int kThreads = 32 * kWarps;  // that multiply
  static constexpr int kBarrier = 1;            // of them

  const DeepLinearArgs& args;
  tile::Ring ring;
  Edge edge;

  WEFT_INLINE static void run(const DeepLinearArgs& args) {
    const DeepLinear self{args,
                          {ptx::shared_memory(), args.entries * args.entry_bytes, args.entries},
                          {args.arrived, static_cast<u32>(args.workers), args.limit_ns}};
    if (ptx::thread_index() == 0) {
      self.ring.init();
      for (int i = 0; i < 3; ++i) ptx::store_relaxed_shared(self.stopped() + i, 0);
    }
    for (int i = ptx::thread_index(); i <= args.n / 16; i += ptx::num_threads())
      self.first_slot()[i] = args.first_slot[i];
    ptx::cta_sync();
    if (ptx::thread_index() < kThreads) return self.consume();
    if (ptx::thread_index() == kThreads) self.produce();
  }

  WEFT_INLINE static int worker() { return ptx::opaque(ptx::cta_index()); }
  WEFT_INLINE static int thread() { return ptx::opaque(ptx::thread_index()); }

  // Places in shared memory, each computed where it is used: while a thread loads what a layer multiplies, it needs its
  // registers.
  template <class T>
  WEFT_INLINE static T* at(int offset) {
    return reinterpret_cast<T*>(ptx::shared_memory() + ptx::opaque(offset));
  }
  WEFT_INLINE float* parts() const { return at<float>(layout_of(args).parts); }
  WEFT_INLINE int* first_slot() const { return at<int>(layout_of(args).first_slot); }  // [bands + 1]
  WEFT_INLINE bf16* x_row(int row) const {
    const DeepLinearLayout layout = layout_of(args);
    return at<bf16>(layout.x) + row * layout.ldx;
  }
  // Waits that gave up before the input was there, and in rounds by turns.
  WEFT_INLINE u32* stopped() const { return at<u32>(layout_of(args).stopped); }
  // Read anew in each layer, and so that nothing that follows from it waits in registers: a thread needs them while it
  // loads what the layer multiplies.
  WEFT_INLINE tile::MatvecShare share() const {
    const int* const borders = args.borders + worker();
    return share_of(args, borders[0], borders[1]);
  }

  // Weights of all layers, as entries become free.
  WEFT_INLINE void produce() const {
    tile::RingProducer producer(ring, {static_cast<u32>(args.ahead_bytes), static_cast<u32>(args.beside_bytes)},
                                args.limit_ns);
    const tile::MatvecShare share = this->share();
    const ptx::CachePolicy policy = ptx::evict_first();
    const i64 of_layer = static_cast<i64>(args.n / 16) * args.band_tiles;  // tiles
    for (int layer = 0; layer < args.layers; ++layer) {
      if (!args.overlaps && layer > 0 && !edge.wait(args.first_phase + static_cast<u32>(layer)))
        return report(StuckAt::edge, layer);
      const u8* from = static_cast<const u8*>(args.weights) + (layer * of_layer + share.begin) * args.tile_bytes;
      for (int entry = 0; entry < share.num_entries(); ++entry) {
        const u32 bytes = static_cast<u32>(share.tiles_of(entry) * args.tile_bytes);
        if (!producer.acquire(bytes, static_cast<u32>(layer))) {
          report(StuckAt::free_entry, layer);
          return producer.drain();
        }
        ptx::bulk_copy(producer.data(), from, bytes, producer.full(), policy);
        producer.advance();
        from += bytes;
      }
    }
    if (args.limit_ns != 0) producer.drain();  // consumers that gave up do not wait for what is in flight
  }

  WEFT_INLINE void consume() const {
    tile::RingConsumer consumer(ring, thread() / 32, kWarps, args.limit_ns);
    for (int layer = 0; layer < args.layers; ++layer) {
      if (!take_input(layer)) return;
      const tile::MatvecShare share = this->share();
      const int before = layer * share.num_entries();  // entries of earlier layers
      for (int round = 0; round < share.num_rounds(); ++round) {
        const int word = 1 + round % 2;
        for (; consumer.number() < before + share.end_entry(round); consumer.release()) {
          // What it multiplies then is no number; behind the barrier all end.
          if (!consumer.wait()) give_up(word, StuckAt::copy, layer);
          tile::multiply_entry<Weights, kRows>(share, round, consumer.number() - before, consumer.data(), x_row(0),
                                               layout_of(args).ldx, parts());
        }
        sync();
        if (has_stopped(word)) return;
        leave_sums(share, layer, round);
      }
      if (share.num_rounds() == 0) sync();  // so that all have asked of the input's wait
      if (Edge::kCounts) {
        sync();
        if (thread() == 0) edge.arrive();
      }
    }
  }

  // x of the layer, for all threads that multiply. False: some wait gave up, and all of them return.
  WEFT_INLINE bool take_input(int layer) const {
    const u32 phase = args.first_phase + static_cast<u32>(layer);
    const i64 at = static_cast<i64>(phase % 2) * args.slots * args.rows * 16;
    if (layer == 0 && args.x != nullptr) {
      gather(
          1, [&](int row, int column, int) { return row * args.n + column; },
          [&](const auto& cells, auto& values) { return tile::PlainCells::read(args.x, cells, values), true; });
    } else if (layer == 0) {  // an earlier launch's
      gather(args.most_pieces, SlotOf{*this}, [&](const auto& cells, auto& values) {
        return tile::PlainCells::read(args.sums + at, cells, values), true;
      });
    } else {
      if constexpr (Edge::kCounts) {
        if (thread() == 0 && !edge.wait(phase)) give_up(0, StuckAt::edge, layer);
        sync();
        if (has_stopped(0)) return false;
      }
      const typename Edge::Cell* const from = cells_of_edge() + at;
      const bool is_there = gather(args.most_pieces, SlotOf{*this}, [&](const auto& cells, auto& values) {
        return edge.read(from, cells, phase, values);
      });
      if (!is_there) give_up(0, StuckAt::edge, layer);
    }
    sync();
    if (!Edge::kCounts && has_stopped(0)) return false;
    if (thread() == 0) ring.begin(static_cast<u32>(layer));
    return true;
  }

  // Of the bands that a round ends.
  WEFT_INLINE void leave_sums(const tile::MatvecShare& share, int layer, int round) const {
    const u32 phase = args.first_phase + static_cast<u32>(layer) + 1;
    const i64 at = (static_cast<i64>(phase % 2) * args.slots + args.worker_slot[worker()]) * args.rows * 16;
    const bool is_last = layer + 1 == args.layers;
    typename Edge::Cell* const cells = cells_of_edge() + at;
    tile::finish_round(share, round, thread(), kThreads, parts(), [&](int band, int cell, float sum) {
      const int i = band * args.rows * 16 + cell;
      if (is_last) {
        args.sums[at + i] = sum;
      } else {
        Edge::write(cells + i, sum, phase);
      }
    });
  }

  // Where a pair of columns lies: piece `piece` of their band's sums, -1 if it has fewer.
  struct SlotOf {
    const DeepLinear& of;
    WEFT_INLINE int operator()(int row, int column, int piece) const {
      const int slot = of.first_slot()[column / 16] + piece;
      return slot < of.first_slot()[column / 16 + 1] ? (slot * of.args.rows + row) * 16 + column % 16 : -1;
    }
  };
  // Sums of the pieces of each pair of columns, times the scale, become x. False as soon as read() says so.
  template <class Place, class Read>
  WEFT_INLINE bool gather(int pieces, const Place& place, const Read& read) const {
    for (int row = 0; row < args.rows; ++row)
      for (int first = thread(); first < args.n / 2; first += kThreads * kPairs) {
        float sums[kPairs][2] = {};
        // Three pieces stand for any number of them, fewer for no more.
        for (int piece = 0; piece < (kPieces < 3 ? 1 : pieces); piece += kPieces) {
          int cells[kPairs * kPieces];
          float values[kPairs * kPieces][2];
          WEFT_UNROLL
          for (int i = 0; i < kPairs * kPieces; ++i) {
            const int pair = first + i / kPieces * kThreads, own = piece + i % kPieces;
            cells[i] = pair < args.n / 2 && own < pieces ? place(row, 2 * pair, own) : -1;
          }
          if (!read(cells, values)) return false;
          WEFT_UNROLL
          for (int i = 0; i < kPairs * kPieces; ++i) {
            sums[i / kPieces][0] += values[i][0];
            sums[i / kPieces][1] += values[i][1];
          }
        }
        WEFT_UNROLL
        for (int i = 0; i < kPairs; ++i)
          if (const int pair = first + i * kThreads; pair < args.n / 2)
            reinterpret_cast<u32*>(x_row(row))[pair] =
                tile::pack<bf16>(sums[i][0] * args.scale, sums[i][1] * args.scale);
      }
    return true;
  }

  WEFT_INLINE typename Edge::Cell* cells_of_edge() const {
    if constexpr (Edge::kCounts) {
      return args.sums;
    } else {
      return args.tagged;
    }
  }
  WEFT_INLINE static void sync() { ptx::named_sync(kBarrier, kThreads); }

  // All that multiply end at the same barrier: `when` a wait gave up is told before it, and asked behind it. Words take
  // turns, so that nobody tells of the next barrier while others still ask.
  WEFT_INLINE void give_up(int when, StuckAt at, int layer) const {
    report(at, layer);
    ptx::store_relaxed_shared(stopped() + when, 1);
  }
  WEFT_INLINE bool has_stopped(int when) const { return ptx::load_relaxed_shared(stopped() + when) != 0; }
  WEFT_INLINE void report(StuckAt at, int layer) const {
    ptx::store_relaxed(args.stuck + worker(),
                       static_cast<u64>(at) << 32 | (args.first_phase + static_cast<u32>(layer)));
  }
};
#endif

}  // namespace weft::decode::fused

#if WEFT_SM >= 90
#define WEFT_DEEP_LINEAR(symbol, edge, weights, rows, warps, pairs, pieces)                                        \
  WEFT_KERNEL(32 * warps + 32, 1) void symbol(WEFT_PARAM weft::decode::fused::DeepLinearArgs args) {               \
    weft::decode::fused::DeepLinear<weft::tile::edge, weft::tile::weights, rows, warps, pairs, pieces>::run(args); \
  }
#endif
