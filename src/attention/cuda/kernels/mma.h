// Attention by products: keys and values go to shared memory as they are stored, some tiles ahead, and stay there until
// they are multiplied; scores, probabilities and outputs are in registers. Tiles begin at multiples of kKeys from the
// item's first key. Who multiplies, warps (Mma: mma.sync) or a warpgroup (wgmma.h), is one class beside all the rest.
//
// Registers are what a warp multiplies and little else: what an item is lies in shared memory, and is read when it is
// asked for.
#pragma once

#include "attention/cuda/kernels/mma/few_bit_queries.h"
#include "attention/cuda/kernels/mma/join.h"
#include "attention/cuda/kernels/mma/kv_tiles.h"
#include "attention/cuda/kernels/mma/logits.h"
#include "attention/cuda/kernels/mma/non_finite.h"
#include "attention/cuda/kernels/mma/products.h"
#include "attention/cuda/kernels/mma/store.h"
#include "tile/cuda/ptx/dependent_launch.h"

namespace weft::attention::cuda {
namespace mma {

template <class Shape_, class Products>
class Attention {
  using Shape = Shape_;
  using S = typename Shape::S;
  using F = typename Shape::F;
  using P = typename F::P;
  static constexpr int kStages = Shape::kStages;

 public:
  static constexpr int kSharedBytes = sizeof(typename Shape::Shared), kRows = Shape::kRows;
  // A row's bits are those of tiles with other numbers of rows.
  static constexpr bool kIsAlike = Shape::kByWarpgroup;

  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item) {
    for_row_tiles<kRows>(call, item, [&](int kv_head, int first, int n) { attend(call, p, item, kv_head, first, n); });
  }
  // Rows that a tile holds.
  WEFT_INLINE static void attend(const Call& call, const P& p, const ItemRecord& item, int kv_head, int first, int n) {
    Attention({call, p, item, kv_head, first, n}).attend();
  }

 private:
  using KvTiles = mma::KvTiles<Shape>;
  using FirstPages = typename KvTiles::FirstPages;

  WEFT_INLINE explicit Attention(const Rows<Shape>& rows) : rows_(rows) {}

  // The rows of a tile against the item's keys.
  WEFT_INLINE void attend() {
    FirstPages pages;
    start(pages);
    ptx::wait_for_previous_kernel();  // which makes queries, keys and values, and no plan
    do {
      multiply(pages);
    } while (non_finite_.start(rows_, thread_, states_));
    if constexpr (Shape::kStoresOwn) {
      Store<Shape>(rows_, thread_, states_, Shape::staging(thread_)).store();
      non_finite_.add(rows_, thread_, Stored<Shape>(rows_));
    } else {
      const Join<Shape> joined(rows_, thread_);
      joined.join(states_);
      non_finite_.add(rows_, thread_, joined);
      joined.write();
    }
    ptx::cta_sync();
  }

  WEFT_INLINE KvTiles kv_tiles() const { return {rows_, thread_}; }

  // Rows, what they see, and the pages of the first tiles.
  WEFT_INLINE void start(FirstPages& pages) {
    rows_.load(thread_);
    const Tokens<S> tokens(rows_.call, rows_.item);
    kv_tiles().look_up(tokens, pages);
    const int end = end_of(rows_.call, rows_.item);
    ptx::cta_sync();
    if (thread_.warp == 0) {
      rows_.find_visible(end);
      if (thread_.lane == 0) {
        Shape::shared().tokens = tokens;
        Shape::shared().special_keys = 0;
      }
    }
    ptx::cta_sync();
    if constexpr (Shape::kIsAlone) kv_tiles().prefetch_first(pages);
  }

  // Tile after tile of keys.
  WEFT_INLINE void multiply(const FirstPages& pages) {
    if constexpr (Products::kOverlapsTiles)
      multiply_overlapped(pages);
    else
      multiply_each(pages);
  }

  // While the last values of a tile are multiplied, the first scores of the next one are, and the one after that is on
  // its way.
  WEFT_INLINE void multiply_overlapped(const FirstPages& pages) {
    static_assert(!Products::kOverlapsTiles || kStages == 2);
    states_.clear();
    kv_tiles().locate_first(pages);
    const int num_tiles = Shape::shared().walk.num_tiles;
    thread_.forget();
    ptx::cta_sync();
    kv_tiles().fetch(0, num_tiles);
    rows_.load_queries(thread_);
    ptx::cp_async_commit();
    share_copies();
    if (num_tiles == 0) return;
    products_.begin(0);
    fetch_behind(0, num_tiles);
    products_.wait_for_scores();
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      thread_.forget();
      non_finite_.look_at(thread_, tile);
      products_.multiply(rows_, thread_, tile, states_);
      share_copies();  // the next tile is there
      // Behind the last tile its own scores once more: what is under way may not depend on what is asked.
      products_.end(tile, tile + 1 < num_tiles ? tile + 1 : tile, states_);
      ptx::cta_sync();  // the tile was read
      fetch_behind(tile + 1, num_tiles);
      products_.wait_for_scores();
    }
    thread_.forget();
    share_copies();
  }
  WEFT_INLINE void share_copies() const {
    ptx::cp_async_wait<0>();
    Shape::publish();
    ptx::cta_sync();
  }
  // The tile behind this one is on its way, and the one behind that is found.
  WEFT_INLINE void fetch_behind(int tile, int num_tiles) const {
    kv_tiles().fetch(tile + 1, num_tiles);
    ptx::cp_async_commit();
    kv_tiles().locate(tile + 2, num_tiles, kv_tiles().look_up(tile + 2, num_tiles));
  }

  WEFT_INLINE void multiply_each(const FirstPages& pages) {
    states_.clear();
    kv_tiles().locate_first(pages);
    const int num_tiles = Shape::shared().walk.num_tiles;
    // Where registers have room, pages are asked for a tile before they are needed. Over 4 bits, where three CTAs share
    // them, they have not: ids come to shared memory.
    constexpr bool kLooksAhead = Shape::kRows == 16 && Shape::kKvBits > 4;
    constexpr bool kFetchesIds = Shape::kRows == 16 && Shape::kKvBits == 4 && S::kPaged && !S::kBlockSparse;
    typename KvTiles::Found next{};
    if constexpr (kLooksAhead) next = kv_tiles().look_up(kStages, num_tiles);
    ptx::cta_sync();
    WEFT_NO_UNROLL
    for (int tile = 0; tile < kStages - 1; ++tile) {
      thread_.forget();
      kv_tiles().fetch(tile, num_tiles);
      if constexpr (kFetchesIds) {
        if (tile > 0) ptx::cta_sync();  // the sources whose place they take were read
        kv_tiles().fetch_ids(tile + kStages, num_tiles);
      }
      if (tile == 0) {  // they come nearer than the first keys
        rows_.load_queries(thread_);
        HeadScales<Shape>::load(thread_, rows_.call, rows_.kv_head);
      }
      ptx::cp_async_commit();
    }
    if (num_tiles > 0) begin_queries();
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      thread_.forget();
      ptx::cp_async_wait<kStages - 2>();
      Shape::publish();
      ptx::cta_sync();  // the tile is there, and the one before it was read
      kv_tiles().fetch(tile + kStages - 1, num_tiles);
      if constexpr (kFetchesIds) {
        next = kv_tiles().take_ids(tile + kStages, num_tiles);
        kv_tiles().fetch_ids(tile + 2 * kStages - 1, num_tiles);
      }
      ptx::cp_async_commit();
      if constexpr (!kLooksAhead && !kFetchesIds) next = kv_tiles().look_up(tile + kStages, num_tiles);
      kv_tiles().locate(tile + kStages, num_tiles, next);
      if constexpr (kLooksAhead) next = kv_tiles().look_up(tile + kStages + 1, num_tiles);
      if constexpr (Shape::H::key_transform) kv_tiles().transform_keys(tile);
      non_finite_.look_at(thread_, tile);
      products_.multiply(rows_, thread_, tile, states_);
    }
    thread_.forget();
    ptx::cp_async_wait<0>();
    ptx::cta_sync();
  }
  // Queries came with the first tile.
  WEFT_INLINE void begin_queries() {
    ptx::cp_async_wait<kStages - 2>();
    ptx::cta_sync();
    if constexpr (Shape::kFewBits) FewBitQueries<Shape>::make(thread_);
    products_.keep_queries(thread_);
  }

  const Rows<Shape> rows_;
  Thread<Shape> thread_;
  Products products_;
  States<Shape> states_;
  NonFinite<Shape> non_finite_;
};

}  // namespace mma

// The template's arguments: as of mma::Shape.
template <class S, class F, int kFragments, int kWarpsM, int kWarpsN, int kKeys, bool kIsAlone = false>
using Mma = mma::Attention<mma::Shape<S, F, kFragments, kWarpsM, kWarpsN, kKeys, kIsAlone>,
                           mma::WarpProducts<mma::Shape<S, F, kFragments, kWarpsM, kWarpsN, kKeys, kIsAlone>>>;

}  // namespace weft::attention::cuda
