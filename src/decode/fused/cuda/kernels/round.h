// What items of attention read: keys and values of the cache in an entry of the ring, and the heads of their round, in
// rows beside it. Who calls what, and when: attention.h.
#pragma once

#include "decode/fused/cuda/kernels/heads.h"
#include "tile/cuda/convert.h"
#include "tile/cuda/ptx/cp_async.h"

namespace weft::decode::fused {

#if WEFT_SM >= 90
// Cells that one phase writes and the next one reads.
template <class Cell>
struct PhaseCells {
  Cell* cells;
  u32 phase;
};

template <int kDim>
struct ItemEntry {
  static constexpr int kRowBytes = entry_row_bytes(kDim);
  u8* data;
  int tokens;
  WEFT_INLINE u8* key(int token) const { return data + token * kRowBytes; }
  WEFT_INLINE u8* value(int token) const { return data + (tokens + token) * kRowBytes; }
};

WEFT_INLINE u8* cached_head(const ops::CardCache& cache, ops::CachePlace place, int head) {
  return static_cast<u8*>(cache.data) +
         2 * (place.page * cache.page_stride + place.slot * cache.slot_stride + head * cache.head_stride);
}

// Keys and values that lie in the cache, into the entry, by cp.async of all lanes of a warp. A bulk copy for each token
// and side would be fewer instructions, but lanes issue these one by one. Places are loaded first, so that they are on
// their way while one lane waits for the entry.
template <int kDim, int kKeys>
class CopyItem {
  static constexpr int kOfLane = (kKeys + 31) / 32;
  static constexpr int kPieces = kDim / 8;  // of a row, 16 bytes each
  // Neighbours that copy a row at once, a piece each; where there are fewer pieces, some of them copy nothing.
  static constexpr int kNeighbours = kPieces <= 2 ? 2 : kPieces <= 4 ? 4 : kPieces <= 8 ? 8 : kPieces <= 16 ? 16 : 32;
  static_assert(kPieces <= kNeighbours && kDim % 16 == 0);

 public:
  WEFT_INLINE CopyItem(const AttendArgs& args, const CardItem& item) : args_(args), item_(item) {
    WEFT_UNROLL
    for (int i = 0; i < kOfLane; ++i) {
      const int token = item.copy_begin() + ptx::lane() + 32 * i, page = token / args.page_size;
      places_[i] = {token < item.copy_end() ? args.pages[item.first_page + page] : 0, token - page * args.page_size};
    }
  }
  // Once lane 0 has the entry; behind it lane 0 arrives at `full`. Neighbours copy the rows of their own tokens, one
  // after the other.
  WEFT_INLINE void start(u8* entry_data, u64* full) const {
    const int piece = ptx::lane() % kNeighbours, first = ptx::lane() - piece;
    const int count = item_.copy_end() - item_.copy_begin();
    const ItemEntry<kDim> entry{entry_data, item_.tokens()};
    const int row = item_.copy_begin() - item_.kv_begin + first;
    const ptx::SharedPlace keys = ptx::shared_place(entry.key(row) + 16 * piece),
                           values = ptx::shared_place(entry.value(row) + 16 * piece);
    ptx::warp_sync();
    WEFT_NO_UNROLL
    for (int i = 0; i < kOfLane && 32 * i < count; ++i) {
      const ops::CachePlace place = this->place(i);
      const u8* const key = cached_head(args_.k, place, item_.kv_head);
      const u8* const value = cached_head(args_.v, place, item_.kv_head);
      const int rows = piece < kPieces ? count - 32 * i - first : 0;
      WEFT_UNROLL
      for (int j = 0; j < kNeighbours; ++j) {
        const u8* const key_of_row = ptx::shuffle_among<kNeighbours>(key, j);
        const u8* const value_of_row = ptx::shuffle_among<kNeighbours>(value, j);
        if (j >= rows) continue;
        const int at = (32 * i + j) * ItemEntry<kDim>::kRowBytes;
        ptx::cp_async_16(keys + at, key_of_row + 16 * piece);
        ptx::cp_async_16(values + at, value_of_row + 16 * piece);
      }
    }
    ptx::cp_async_arrive(full);
    ptx::warp_sync();
  }

 private:
  // places_[i], of registers, which no number that is not a constant picks.
  WEFT_INLINE ops::CachePlace place(int i) const {
    ops::CachePlace found = places_[0];
    WEFT_UNROLL
    for (int n = 1; n < kOfLane; ++n)
      if (i == n) found = places_[n];
    return found;
  }

  const AttendArgs& args_;
  const CardItem& item_;
  ops::CachePlace places_[kOfLane];
};

// A head to be made, and HeadOfRow's slots of it.
struct PlacedHead {
  const CardHead* head;
  const int* first_slot;
  int stride;
};
// Of the tables in global memory.
WEFT_INLINE PlacedHead placed_head(const HeadArgs& args, const CardHead* head, int head_dim) {
  return {head, args.first_slot + head->head * (head_dim / 16), args.bands};
}

// Heads [first, end) of a round by a warp, as heads.h says, of at(i), into rows of `heads`; and those that the cache
// gets, into the cache.
template <class T, int kDim, int kPieces, class Edge, class At>
WEFT_INLINE bool make_round(const AttendArgs& args, const Edge& edge, PhaseCells<const typename Edge::Cell> sums,
                            int first, int end, int step, const At& at, u8* heads) {
  const int keys = args.heads.num_qo_heads, values = keys + args.heads.num_kv_heads;
  const auto head_of = [&](int i) -> HeadOfRow {
    const PlacedHead placed = at(i);
    const int head = placed.head->head;
    const float* const norm = head < keys ? args.heads.q_norm : head < values ? args.heads.k_norm : nullptr;
    return {placed.head->row, head * kDim, norm, head < values, placed.first_slot, placed.stride};
  };
  const auto write = [&](int i, int column, const float(&x)[2]) {
    const u32 pair = tile::pack<T>(x[0], x[1]);
    reinterpret_cast<u32*>(heads + i * entry_row_bytes(kDim))[column / 2] = pair;
    const CardHead* const of = at(i).head;
    if (of->page < 0) return;
    const bool is_key = of->head < values;
    u8* const cached = cached_head(is_key ? args.k : args.v, {of->page, of->slot}, of->head - (is_key ? keys : values));
    reinterpret_cast<u32*>(cached)[column / 2] = pair;
  };
  return make_heads<kDim, kPieces>(args.heads, edge, sums.cells, sums.phase, first, end, step, head_of, write);
}
#endif

}  // namespace weft::decode::fused
