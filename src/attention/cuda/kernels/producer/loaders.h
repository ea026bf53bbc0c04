// How keys and values of a job come to their stages: in boxes, by tensor copies, or row by row from wherever these are.
// What follows the load is one text (load.h, multiply.h).
#pragma once

#include "attention/cuda/kernels/mma/row_copy.h"
#include "attention/cuda/kernels/producer/shape.h"
#include "tile/cuda/ptx/tensor_copy.h"

namespace weft::attention::cuda::producer {

#if WEFT_SM >= 90
// Boxes of contiguous tokens of a head, by the first warp. A box is a tile, or tokens of one page.
template <class Shape>
class Boxes {
  using Job = typename Shape::Job;

 public:
  static constexpr int kFillers = 1;  // threads that say of a stage that it is filled
  WEFT_INLINE Boxes(const abi::TensorMap& k, const abi::TensorMap& v) : k_(k), v_(v) {}

  WEFT_INLINE void begin(const Rows<Shape>&, int) const {}
  WEFT_INLINE void fetch_keys(const Rows<Shape>& rows, int tile, tile::StageWalk<Shape::kStages>& to,
                              int thread) const {
    if (thread >= 32) return;
    u64* const full = thread == 0 ? to.fill(Shape::KeyTile::kBytes) : nullptr;
    fetch<abi::in_wide_panels(Shape::kKeys, Shape::kPadQk)>(k_, rows.job, tile, Shape::keys_of(to.stage()).data, full);
  }
  // `looks`: at them, before they are multiplied: then the loaders say themselves that the stage is filled.
  WEFT_INLINE void fetch_values(const Rows<Shape>& rows, int tile, tile::StageWalk<Shape::kStages>& to, bool looks,
                                int thread) const {
    if (thread >= 32) return;
    u64* full = nullptr;
    if (thread == 0 && looks) {
      to.wait_for_room();
      full = &Shape::shared().landed;
      ptx::mbarrier_arrive_expect(full, Shape::ValueTile::kBytes);
    } else if (thread == 0) {
      full = to.fill(Shape::ValueTile::kBytes);
    }
    fetch<abi::in_wide_panels(Shape::kKeys, Shape::kPadVo)>(v_, rows.job, tile, Shape::values_of(to.stage()).data,
                                                            full);
  }

 private:
  template <abi::MatrixTile kTile>
  WEFT_INLINE void fetch(const abi::TensorMap& map, const Job& job, int tile, u8* to, u64* full) const {
    ptx::warp_sync();
    full = ptx::shuffle(full, 0);
    const int rows = map.layout.box[1], panels = map.layout.box[2], boxes = Shape::kKeys / rows;
    const int begin = job.walk.at(tile);
    // Many tiles of rows read the same keys; small ones are alone with theirs.
    const ptx::CachePolicy policy = job.item.tile_kind == TileKind::direct ? ptx::evict_first() : ptx::evict_last();
    WEFT_NO_UNROLL
    for (int i = ptx::lane(); i < boxes * (kTile.panels() / panels); i += 32) {
      const int row = i % boxes * rows, panel = i / boxes * panels;
      const Place place = job.tokens.place(begin + row, job.walk.end - 1);
      ptx::tensor_load(to + panel * kTile.panel_bytes() + row * kTile.span(), map,
                       {0, static_cast<int>(place.slot), panel, job.kv_head, static_cast<int>(place.page)}, full,
                       policy);
    }
  }

  const abi::TensorMap &k_, &v_;
};

// Rows by all loaders, which find a tile's rows while the one before it is fetched.
template <class Shape>
class Gathers {
  using Job = typename Shape::Job;
  static constexpr int kThreads = Shape::kLoaders;

 public:
  static constexpr int kFillers = kThreads;

  WEFT_INLINE void begin(const Rows<Shape>& rows, int thread) const {
    locate(rows, 0, thread);
    ptx::named_sync(Shape::kLoadersBarrier, kThreads);
  }
  WEFT_INLINE void fetch_keys(const Rows<Shape>& rows, int tile, tile::StageWalk<Shape::kStages>& to,
                              int thread) const {
    to.wait_for_room();
    copy<Shape::kDimQk, Shape::kPadQk>(Shape::keys_of(to.stage()), thread,
                                       [&](int key) { return Shape::shared().sources[tile % 2][key].k; });
    locate(rows, tile + 1, thread);
  }
  WEFT_INLINE void fetch_values(const Rows<Shape>&, int tile, tile::StageWalk<Shape::kStages>& to, bool,
                                int thread) const {
    to.wait_for_room();
    copy<Shape::kDimVo, Shape::kPadVo>(Shape::values_of(to.stage()), thread,
                                       [&](int key) { return Shape::shared().sources[tile % 2][key].v; });
    ptx::named_sync(Shape::kLoadersBarrier, kThreads);  // the next tile is found, and this one's rows were read
  }

 private:
  WEFT_INLINE void locate(const Rows<Shape>& rows, int tile, int key) const {
    if (key >= Shape::kKeys || tile >= rows.job.walk.num_tiles) return;
    const Job& job = rows.job;
    const int t = mma::token_to_load(rows, tile, key);
    const int page = job.tokens.page(t);
    Shape::shared().sources[tile % 2][key] = {job.tokens.row(rows.call.k, page, t, job.kv_head),
                                              job.tokens.row(rows.call.v, page, t, job.kv_head)};
  }
  template <int kDim, int kColumns, class Tile, class Source>
  WEFT_INLINE void copy(const Tile& to, int thread, const Source& source) const {
    using Copy = mma::RowCopy<kThreads, kColumns, Tile>;
    const Copy copy(to, thread);
    WEFT_UNROLL_4
    for (int i = 0; i < Copy::template kCopies<Shape::kKeys>; ++i)
      if (copy.template has<Shape::kKeys>(i)) copy.template copy<2 * kDim>(to, i, source(copy.row(i)));
  }
};
#endif

}  // namespace weft::attention::cuda::producer
