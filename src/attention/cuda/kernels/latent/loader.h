// The warpgroup that brings latent rows to shared memory, as far ahead as there are stages: rows of pages of any size,
// 16 bytes a lane. A warp has a quarter of the rows of a tile.
#pragma once

#include "attention/cuda/kernels/latent/shape.h"
#include "attention/cuda/kernels/mma/rows.h"

namespace weft::attention::cuda {

#if WEFT_SM >= 90
namespace latent {

template <class Shape>
class Loader {
  using S = typename Shape::S;
  static constexpr int kKeys = Shape::kKeys, kWarps = Shape::kLoaders / 32, kOfWarp = kKeys / kWarps;
  static constexpr int kLaneColumns = 32 * 8;  // that a warp copies at once

 public:
  WEFT_INLINE Loader(const mma::Rows<Shape>& rows, mma::Thread<Shape>& thread)
      : rows_(rows),
        thread_(thread),
        first_columns_(Shape::shared().first_columns),
        other_columns_(Shape::shared().other_columns) {}

  // All tiles of the item, one after another. The next one's pages are looked up while this one is copied.
  WEFT_INLINE void load() {
    const int num_tiles = Shape::shared().walk.num_tiles;
    Token next = {};
    if (num_tiles > 0) next = look_up(0);
    WEFT_NO_UNROLL
    for (int tile = 0; tile < num_tiles; ++tile) {
      thread_.forget();
      locate(next);
      if (tile + 1 < num_tiles) next = look_up(tile + 1);
      const typename Shape::Rows to = Shape::rows_of(first_columns_.stage());
      first_columns_.wait_for_room();
      ptx::warp_sync();  // it is said where the warp's rows lie
      copy<0, Shape::kOwnVo>(to, [](const auto& source) { return source.k; });
      tell(first_columns_, Shape::shared().first_columns);
      other_columns_.wait_for_room();
      copy<Shape::kOwnVo, Shape::kDimVo>(to, [](const auto& s) { return s.k + Shape::kOwnVo * kElementBytes; });
      copy<Shape::kDimVo, Shape::kDimQk>(to, [](const auto& source) { return source.v; });
      tell(other_columns_, Shape::shared().other_columns);
    }
  }

 private:
  using Walk = tile::StageWalk<Shape::kStages>;
  static constexpr int kElementBytes = sizeof(typename S::Cache);

  // What this warp has begun to copy is there once the stage is filled.
  WEFT_INLINE void tell(Walk& walk, tile::StageBarriers<Shape::kStages>& barriers) const {
    u64* const full = &barriers.full[walk.stage()];
    ptx::cp_async_arrive(full);
    ptx::warp_sync();
    if (thread_.lane == 0) ptx::mbarrier_arrive(full);
    walk.advance();
  }
  // That of a lane: lane i has the i-th of the warp's rows.
  struct Token {
    int token, page;
  };
  WEFT_INLINE int first_row() const { return (thread_.warp - Shape::kProductThreads / 32) * kOfWarp; }
  WEFT_INLINE Token look_up(int tile) const {
    const int token = mma::token_to_load(rows_, tile, first_row() + thread_.lane % kOfWarp);
    return {token, Shape::shared().tokens.page(token)};
  }
  WEFT_INLINE void locate(const Token& at) const {
    const Call& call = rows_.call;
    const auto& tokens = Shape::shared().tokens;
    Source<false>& source = Shape::shared().sources[0][first_row() + thread_.lane % kOfWarp];
    if (thread_.lane >= kOfWarp) return;
    source.k = tokens.row(call.k, at.page, at.token, 0);
    source.v =
        call.rope_dim > 0 ? tokens.row(call.rope, at.page, at.token, 0) : source.k + Shape::kDimVo * kElementBytes;
  }
  // Elements [kBegin, kEnd) of the warp's rows, which follow each other from `from(source)` on.
  template <int kBegin, int kEnd, class From>
  WEFT_INLINE void copy(const typename Shape::Rows& to, const From& from) const {
    constexpr int kChunks = (kEnd - kBegin) / 8, kTogether = kChunks < 32 ? 32 / kChunks : 1,
                  kEach = kChunks * kTogether / 32;  // copies of a lane for so many rows
    static_assert(kChunks * kTogether % 32 == 0 && 8 % kTogether == 0);
    const int chunk = thread_.lane % kChunks, row = thread_.lane / kChunks;
    ptx::SharedPlace places[8 / kTogether];  // rows that are 8 apart are permuted alike
    WEFT_UNROLL
    for (int r = 0; r < 8 / kTogether; ++r)
      places[r] = ptx::shared_place(to.chunk(first_row() + kTogether * r + row, kBegin / 8 + chunk));
    WEFT_NO_UNROLL
    for (int first = 0; first < kOfWarp; first += 8) WEFT_UNROLL
    for (int r = 0; r < 8 / kTogether; ++r) {
      const auto& of_row = Shape::shared().sources[0][first_row() + first + kTogether * r + row];
      const char* const source = from(of_row) + 16 * chunk;
      WEFT_UNROLL
      for (int i = 0; i < kEach; ++i)
        ptx::cp_async_16(places[r] + first * Shape::Rows::kRowBytes + i * kLaneColumns / 64 * Shape::kPanelBytes,
                         source + i * kLaneColumns * 2);
    }
  }

  const mma::Rows<Shape>& rows_;
  mma::Thread<Shape>& thread_;
  Walk first_columns_, other_columns_;
};

}  // namespace latent
#endif

}  // namespace weft::attention::cuda
