#include "decode/fused/check_loads.h"

#include <algorithm>

namespace weft::decode::fused {

void CheckedLoads::issue(const Load& load) {
  found_.phase = load.phase;
  if (!found_.expect(load.phase >= 0 && load.phase < schedule_.num_phases, "phase {} is not there", load.phase)) return;
  if (!found_.expect(load.at >= 0 && load.at % kAlignment == 0 && load.bytes > 0 &&
                         load.at + load.bytes <= partition_.machine.ring_bytes,
                     "bytes {} to {} are not of a ring of {}, or not at a multiple of {}", load.at,
                     load.at + load.bytes, partition_.machine.ring_bytes, kAlignment))
    return;
  // Entries are released in their order, so those from `after` on may be in use.
  if (!found_.expect(
          load.after >= 0 && load.after <= found_.load && found_.load - load.after < partition_.machine.max_entries,
          "is issued behind {} releases; with {} entries in use at most it is behind {} to {}", load.after,
          partition_.machine.max_entries, std::max(0, found_.load + 1 - partition_.machine.max_entries), found_.load))
    return;
  for (int i = load.after; i < found_.load; ++i) {
    const Load& other = state_.list().loads[static_cast<size_t>(i)];
    if (!found_.expect(other.at >= load.at + load.bytes || load.at >= other.at + other.bytes,
                       "takes the place of load {}, which may be in use", i))
      return;
  }
  if (state_.phase_at(load.phase).attends()) {
    issue_keys(load);
    return;
  }
  if (!found_.expect(state_.phase_at(load.phase).multiplies(), "{} loads nothing",
                     name_of(state_.phase_at(load.phase))))
    return;
  const TiledMatrix& tiles = partition_.matrix_of(state_.phase_at(load.phase)).tiles;
  if (!found_.expect(load.item == kNothing && load.begin >= 0 && load.begin < load.end &&
                         load.end <= tiles.num_tiles() && load.bytes == tiles.bytes_of(load.begin, load.end),
                     "tiles {}..{} in {} bytes are not of {} tiles", load.begin, load.end, load.bytes,
                     tiles.num_tiles()))
    return;
  for (int64_t tile = load.begin; tile < load.end; ++tile)
    if (!found_.expect(state_.uses[static_cast<size_t>(load.phase)].loaded[static_cast<size_t>(tile)]++ == 0,
                       "tile {} was loaded before", tile))
      return;
}

void CheckedLoads::issue_keys(const Load& load) {
  const AttentionItem* item = state_.item_at(load.item);
  if (!found_.expect(item != nullptr, "item {} is not there", load.item)) return;
  found_.expect(load.begin >= item->kv_begin && load.begin < load.end && load.end <= item->kv_end &&
                    load.end <= state_.cached_of(*item) &&
                    load.bytes == (load.end - load.begin) * schedule_.shape.kv_bytes,
                "keys {}..{} in {} bytes are not keys of item {} that lie in the cache before this step", load.begin,
                load.end, load.bytes, load.item);
}

const Load* CheckedLoads::use(int index) {
  if (!found_.expect(index >= 0 && index < static_cast<int>(state_.list().loads.size()), "load {} is not there", index))
    return nullptr;
  const Load& load = state_.list().loads[static_cast<size_t>(index)];
  if (!found_.expect(state_.own().awaited[static_cast<size_t>(index)] != 0, "load {} was not waited for", index) ||
      !found_.expect(index >= state_.own().released, "load {} was released before", index) ||
      !found_.expect(load.phase == found_.phase, "load {} is of {}", index, name_of(state_.phase_at(load.phase))))
    return nullptr;
  return &load;
}

}  // namespace weft::decode::fused
