// Edges between phases of CTAs that stay on a card: what all of them leave is what each of them reads next. A kernel
// takes one of two forms as a template argument.
//
//   CounterEdge: values are floats, and all CTAs count at one word when theirs are written. Readers wait for the count.
//   TaggedEdge: a value lies in 8 bytes beside the number of its phase. Readers look at the values themselves until all
//   have the number: there is no counter, and nobody waits for more than he reads.
//
//   const Edge edge{...};
//   edge.write(cells + i, x, phase);                        // each thread its own
//   if (Edge::kCounts) { sync();  if (thread == 0) edge.arrive(); }
//   ...
//   if (Edge::kCounts) { if (thread == 0) edge.wait(phase);  sync(); }
//   edge.read(cells, at, phase, x);
//
// Phases are numbered from 1 on, over all launches. Cells are there twice and take turns: who writes phase p has read
// all of phase p - 1, so everybody has written that, and has read p - 2. Before the first phase the counter and the
// cells with numbers are zeros.
#pragma once

#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/wait.h"

namespace weft::tile {

struct alignas(8) Floats2 {
  float x[2];
};
struct alignas(8) Bytes8 {
  u32 word[2];
};

// Floats that nobody writes meanwhile. Pairs of neighbours, `at` even; -1: none, which is 0. All loads are on their way
// before the first is used.
struct PlainCells {
  template <int count>
  WEFT_INLINE static void read(const float* cells, const int (&at)[count], float (&x)[count][2]) {
    Floats2 loaded[count];
    WEFT_UNROLL
    for (int i = 0; i < count; ++i)
      loaded[i] = at[i] >= 0 ? *reinterpret_cast<const Floats2*>(cells + at[i]) : Floats2{};
    WEFT_UNROLL
    for (int i = 0; i < count; ++i) x[i][0] = loaded[i].x[0], x[i][1] = loaded[i].x[1];
  }
};

struct CounterEdge {
  using Cell = float;
  static constexpr bool kCounts = true;
  u32* arrived;  // in global memory
  u32 workers;   // CTAs
  u64 limit_ns;  // that a wait may take; 0: forever

  WEFT_INLINE static void write(Cell* cell, float x, u32) { *cell = x; }
  // One thread of the CTA, behind a barrier of those that wrote.
  WEFT_INLINE void arrive() const { ptx::atomic_add_release(arrived, 1); }
  // One thread; the others read behind a barrier. False once limit_ns have gone by.
  WEFT_INLINE bool wait(u32 phase) const {
    for (Patience patience(limit_ns); static_cast<int>(ptx::load_acquire(arrived) - phase * workers) < 0;)
      if (patience.is_over()) return false;
    return true;
  }
  template <int count>
  WEFT_INLINE bool read(const Cell* cells, const int (&at)[count], u32, float (&x)[count][2]) const {
    PlainCells::read(cells, at, x);
    return true;
  }
};

struct TaggedEdge {
  using Cell = u64;
  static constexpr bool kCounts = false;
  u32* arrived;
  u32 workers;
  u64 limit_ns;

  WEFT_INLINE static void write(Cell* cell, float x, u32 phase) {
    ptx::store_relaxed(cell, static_cast<u64>(phase) << 32 | ptx::to_bits(x));
  }
  // Neighbours, the first cell 16-byte aligned.
  WEFT_INLINE static void write(Cell* cells, const float (&x)[2], u32 phase) {
    const u64 tag = static_cast<u64>(phase) << 32, values[2] = {tag | ptx::to_bits(x[0]), tag | ptx::to_bits(x[1])};
    ptx::store_relaxed(cells, values);
  }
  WEFT_INLINE void arrive() const {}
  WEFT_INLINE bool wait(u32) const { return true; }
  // As PlainCells, again and again until all are of this phase. False once limit_ns have gone by.
  template <int count>
  WEFT_INLINE bool read(const Cell* cells, const int (&at)[count], u32 phase, float (&x)[count][2]) const {
    return read_where<count>(
        cells, [&](int i) { return at[i]; }, [&](int) { return phase; }, x);
  }
  // The same, of at(i) and phase_of(i): asked at every look, so that they need not take registers in between.
  template <int count, class At, class PhaseOf>
  WEFT_INLINE bool read_where(const Cell* cells, const At& at, const PhaseOf& phase_of, float (&x)[count][2]) const {
    u32 bits[count][2];
    const bool are_there = read_bits<count>(cells, at, phase_of, bits);
    WEFT_UNROLL
    for (int i = 0; i < count; ++i) WEFT_UNROLL
    for (int j = 0; j < 2; ++j) x[i][j] = ptx::from_bits(bits[i][j]);
    return are_there;
  }
  // The same of cells that hold 32 bits of anything.
  WEFT_INLINE static void write_bits(Cell* cell, u32 bits, u32 phase) {
    ptx::store_relaxed(cell, static_cast<u64>(phase) << 32 | bits);
  }
  template <int count, class At, class PhaseOf>
  WEFT_INLINE bool read_bits(const Cell* cells, const At& at, const PhaseOf& phase_of, u32 (&bits)[count][2]) const {
    u64 loaded[count][2];
    for (Patience patience(limit_ns);;) {
      WEFT_UNROLL
      for (int i = 0; i < count; ++i) {
        const int own = at(i);
        loaded[i][0] = loaded[i][1] = static_cast<u64>(phase_of(i)) << 32;
        if (own >= 0) ptx::load_relaxed(cells + own, loaded[i]);
      }
      bool are_there = true;
      WEFT_UNROLL
      for (int i = 0; i < count; ++i)
        are_there = are_there && static_cast<u32>(loaded[i][0] >> 32) == phase_of(i) &&
                    static_cast<u32>(loaded[i][1] >> 32) == phase_of(i);
      if (are_there) break;
      if (patience.is_over()) return false;
    }
    WEFT_UNROLL
    for (int i = 0; i < count; ++i) WEFT_UNROLL
    for (int j = 0; j < 2; ++j) bits[i][j] = static_cast<u32>(loaded[i][j]);
    return true;
  }
};

}  // namespace weft::tile
