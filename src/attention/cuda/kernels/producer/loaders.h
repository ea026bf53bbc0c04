// How keys and values of a job come to their stages: in boxes, by tensor copies, or row by row from wherever these are.
// What follows the load is one text (load.h, multiply.h).
#pragma once

#include "attention/cuda/kernels/mma/row_copy.h"
#include "attention/cuda/kernels/producer/shape.h"
#include "tile/cuda/ptx/tensor_copy.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
// Lists of blocks: listed_key() looks up a key of a step's tile, early, as that takes a trip to memory; list() writes
// it to the step's table with who sees it. Lanes of a warp have 32 neighbouring keys.
template <class Shape>
WEFT_INLINE ListedKey listed_key(const Rows<Shape>& rows, int step, int key) {
  const auto& job = rows.job;
  const int t = job.walk.at(rows.tile(step)) + key;
  if (key >= Shape::kKeys || step >= job.walk.num_tiles || t >= job.walk.end) return {-1, -1};
  return {bits_of_token(rows.call, job.item, t), position_of(rows.call, job.item, t)};
}
template <class Shape>
WEFT_INLINE void list(const Rows<Shape>& rows, int step, int key, const ListedKey& found) {
  const auto& job = rows.job;
  if (step >= job.walk.num_tiles) return;
  auto& tile = rows.listed(rows.tile(step));
  const bool is_key = key < Shape::kKeys, is_there = job.walk.at(rows.tile(step)) + key < job.walk.end;
  const bool by_some = is_there && job.visible.holds(found.pos);
  const bool by_all = by_some && found.bits < 0 && job.visible.is_seen_by_all(found.pos, found.pos + 1);
  const u32 not_by_all = ptx::ballot(is_key && !by_all), by_none = ptx::ballot(is_key && !by_some);
  if (is_key) tile.keys[key] = found;
  if (key % 32 != 0) return;
  tile.not_by_all[key / 32] = not_by_all;
  tile.by_none[key / 32] = by_none;
}

// Boxes of contiguous tokens of a head, by the first warp. A box is a tile, or tokens of one page.
template <class Shape>
class Boxes {
  using Job = typename Shape::Job;

 public:
  static constexpr int kFillers = 1;  // threads that say of a stage that it is filled
  WEFT_INLINE Boxes(const abi::TensorMap& k, const abi::TensorMap& v) : k_(k), v_(v) {}

  WEFT_INLINE void begin(const Rows<Shape>&, int) const {}
  WEFT_INLINE void fetch_keys(const Rows<Shape>& rows, int step, tile::StageWalk<Shape::kStages>& to,
                              int thread) const {
    if (thread >= 32) return;
    const Fetch<abi::in_wide_panels(Shape::kKeys, Shape::kPadQk)> fetch(k_, rows, step);
    if constexpr (Shape::S::kBlockSparse) WEFT_NO_UNROLL
    for (int key = thread; key < 128; key += 32) list(rows, step, key, listed_key(rows, step, key));
    u64* const full = thread == 0 ? to.fill(Shape::KeyTile::kBytes) : nullptr;
    fetch.run(Shape::keys_of(to.stage()).data, full);
  }
  // `looks`: at them, before they are multiplied: then the loaders say themselves that the stage is filled.
  WEFT_INLINE void fetch_values(const Rows<Shape>& rows, int step, tile::StageWalk<Shape::kStages>& to, bool looks,
                                int thread) const {
    if (thread >= 32) return;
    const Fetch<abi::in_wide_panels(Shape::kKeys, Shape::kPadVo)> fetch(v_, rows, step);
    u64* full = nullptr;
    if (thread == 0 && looks) {
      to.wait_for_room();
      full = &Shape::shared().landed;
      ptx::mbarrier_arrive_expect(full, Shape::ValueTile::kBytes);
    } else if (thread == 0) {
      full = to.fill(Shape::ValueTile::kBytes);
    }
    fetch.run(Shape::values_of(to.stage()).data, full);
  }

 private:
  // A tile's boxes by a warp. Where they lie is found before there is room for them.
  template <abi::MatrixTile kTile>
  class Fetch {
   public:
    WEFT_INLINE Fetch(const abi::TensorMap& map, const Rows<Shape>& rows, int step)
        : map_(map),
          job_(rows.job),
          rows_(map.layout.box[1]),
          panels_(map.layout.box[2]),
          boxes_(Shape::kKeys / rows_),
          begin_(job_.walk.at(rows.tile(step))),
          first_(place(ptx::lane())) {}
    WEFT_INLINE void run(u8* to, u64* full) const {
      ptx::warp_sync();
      full = ptx::shuffle(full, 0);
      // Many tiles of rows read the same keys; small ones are alone with theirs.
      const ptx::CachePolicy policy = job_.item.tile_kind == TileKind::direct ? ptx::evict_first() : ptx::evict_last();
      Place of_box = first_;
      WEFT_NO_UNROLL
      for (int i = ptx::lane(); i < boxes_ * (kTile.panels() / panels_); i += 32) {
        if (i >= 32) of_box = place(i);
        const int panel = i / boxes_ * panels_;
        ptx::tensor_load(to + panel * kTile.panel_bytes() + row(i) * kTile.span(), map_,
                         {0, static_cast<int>(of_box.slot), panel, job_.kv_head, static_cast<int>(of_box.page)}, full,
                         policy);
      }
    }

   private:
    WEFT_INLINE int row(int i) const { return i % boxes_ * rows_; }
    WEFT_INLINE Place place(int i) const { return job_.tokens.place(begin_ + row(i), job_.walk.end - 1); }

    const abi::TensorMap& map_;
    const Job& job_;
    const int rows_, panels_, boxes_, begin_;
    const Place first_;
  };

  const abi::TensorMap &k_, &v_;
};

// Rows of 8 bits become a tile's rows of 16 where they lie: in the second half of each. Neighbouring lanes have a row,
// read what they copied of it, and write twice as much.
template <class Tile, int kColumns>
struct StoredTile {
  static constexpr int kRowBytes = Tile::kRowBytes, kChunks = kColumns / 16;
  static_assert(32 % kChunks == 0, "a row is a warp's");
  const Tile tile;
  WEFT_INLINE u8* chunk(int row, int c) const { return tile.chunk(row, kChunks + c); }
};
template <class Shape, int kColumns, class Tile>
WEFT_INLINE void convert(const Tile& tile, int thread) {
  using Stored = StoredTile<Tile, kColumns>;
  using Copy = mma::RowCopy<Shape::kLoaders, kColumns / 2, Stored>;
  constexpr int kCopies = Copy::template kCopies<Shape::kKeys>, kAtATime = 2;
  const Stored stored{tile};
  const Copy own(stored, thread);
  const auto has = [&](int i) { return (kCopies % kAtATime == 0 || i < kCopies) && own.template has<Shape::kKeys>(i); };
  // Eight lanes write to all banks: to two panels of a row in turns.
  const int swapped = own.chunk / 4 % 2;
  WEFT_NO_UNROLL
  for (int first = 0; first < kCopies; first += kAtATime) {
    Bytes16 numbers[kAtATime];
    WEFT_UNROLL
    for (int i = 0; i < kAtATime; ++i)
      if (has(first + i)) numbers[i] = *reinterpret_cast<const Bytes16*>(stored.chunk(own.row(first + i), own.chunk));
    ptx::warp_sync();  // rows were read
    WEFT_UNROLL
    for (int i = 0; i < kAtATime; ++i) {
      if (!has(first + i)) continue;
      WEFT_UNROLL
      for (int half = 0; half < 2; ++half) {
        const bool second = half != swapped;
        Bytes16 wide;
        WEFT_UNROLL
        for (int w = 0; w < 2; ++w) {
          u32 pairs[2];
          tile::to_bf16<typename Shape::S::Cache>(second ? numbers[i].word[2 + w] : numbers[i].word[w], pairs);
          wide.word[2 * w] = pairs[0];
          wide.word[2 * w + 1] = pairs[1];
        }
        *reinterpret_cast<Bytes16*>(tile.chunk(own.row(first + i), 2 * own.chunk + (second ? 1 : 0))) = wide;
      }
    }
  }
}

// Rows by all loaders, which find a tile's rows while the one before it is fetched.
template <class Shape>
class Gathers {
  using Job = typename Shape::Job;
  static constexpr int kThreads = Shape::kLoaders;

 public:
  static constexpr int kFillers = kThreads;

  WEFT_INLINE void begin(const Rows<Shape>& rows, int thread) const {
    for (int step = 0; step < 2; ++step) place(rows, step, thread, find(rows, step, thread));
    ptx::named_sync(Shape::kLoadersBarrier, kThreads);
  }
  WEFT_INLINE void fetch_keys(const Rows<Shape>& rows, int step, tile::StageWalk<Shape::kStages>& to,
                              int thread) const {
    // Its page's id comes while there is no room.
    const Found next = step > 0 ? find(rows, step + 1, thread) : Found{};
    to.wait_for_room();
    const auto* const sources = Shape::sources(step);
    copy<Shape::kDimQk, Shape::kPadQk>(Shape::keys_of(to.stage()), thread, [&](int key) { return sources[key].k; });
    if (step > 0) place(rows, step + 1, thread, next);
  }
  WEFT_INLINE void fetch_values(const Rows<Shape>&, int step, tile::StageWalk<Shape::kStages>& to, bool,
                                int thread) const {
    to.wait_for_room();
    const auto* const sources = Shape::sources(step);
    copy<Shape::kDimVo, Shape::kPadVo>(Shape::values_of(to.stage()), thread, [&](int key) { return sources[key].v; });
    ptx::named_sync(Shape::kLoadersBarrier, kThreads);  // sources of the next tile but one are written, this one's read
  }

 private:
  // A token that a tile is to have, and its page; of lists of blocks the key that stands there.
  struct Found {
    int t, page;
    ListedKey listed;
  };
  WEFT_INLINE static bool is_there(const Rows<Shape>& rows, int step, int key) {
    return key < Shape::kKeys && step < rows.job.walk.num_tiles;
  }
  WEFT_INLINE Found find(const Rows<Shape>& rows, int step, int key) const {
    if (!is_there(rows, step, key)) return {};
    const int t = mma::token_to_load(rows, rows.tile(step), key);
    Found found = {t, rows.job.tokens.page(t), {}};
    if constexpr (Shape::S::kBlockSparse) found.listed = listed_key(rows, step, key);
    return found;
  }
  WEFT_INLINE void place(const Rows<Shape>& rows, int step, int key, const Found& found) const {
    if constexpr (Shape::S::kBlockSparse) list(rows, step, key, found.listed);
    if (!is_there(rows, step, key)) return;
    const Job& job = rows.job;
    if constexpr (Shape::kTokenScales) {  // they land with the keys that are copied now
      auto& scales = scales_of_step<Shape>(job.first_step + static_cast<u32>(step));
      const auto slot = job.tokens.slot(found.page, found.t);
      const auto of = [&](const TokensView& view) {
        return job.tokens.template row<Shape::S::kScaleGroup>(view, slot, job.kv_head);
      };
      ptx::cp_async_4(&scales.of_key[key], of(rows.call.k_scale));
      ptx::cp_async_4(&scales.of_value[key], of(rows.call.v_scale));
    }
    Shape::sources(step)[key] = {job.tokens.row(rows.call.k, found.page, found.t, job.kv_head),
                                 job.tokens.row(rows.call.v, found.page, found.t, job.kv_head)};
  }
  template <int kDim, int kColumns, class Tile, class Source>
  WEFT_INLINE void copy(const Tile& to, int thread, const Source& source) const {
    if constexpr (Shape::kConverts)
      copy_rows<kDim, kColumns / 2>(StoredTile<Tile, kColumns>{to}, thread, source);
    else
      copy_rows<2 * kDim, kColumns>(to, thread, source);
  }
  // Looks up several rows, then copies them: the compiler moves no look-up before a copy.
  template <int kBytes, int kHalves, class Tile, class Source>
  WEFT_INLINE void copy_rows(const Tile& to, int thread, const Source& source) const {
    using Copy = mma::RowCopy<kThreads, kHalves, Tile>;
    constexpr int kAtATime = 4, kCopies = Copy::template kCopies<Shape::kKeys>;
    const Copy copy(to, thread);
    const auto has = [&](int i) {
      return (kCopies % kAtATime == 0 || i < kCopies) && copy.template has<Shape::kKeys>(i);
    };
    WEFT_NO_UNROLL
    for (int first = 0; first < kCopies; first += kAtATime) {
      const char* rows[kAtATime];
      WEFT_UNROLL
      for (int i = 0; i < kAtATime; ++i) rows[i] = has(first + i) ? source(copy.row(first + i)) : nullptr;
      WEFT_UNROLL
      for (int i = 0; i < kAtATime; ++i)
        if (has(first + i)) copy.template copy<kBytes>(to, first + i, rows[i]);
    }
  }
};
#endif

}  // namespace weft::attention::cuda::producer
