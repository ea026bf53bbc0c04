#include "decode/fused/walk_ring.h"

#include <algorithm>
#include <cstring>

namespace weft::decode::fused {
namespace {

constexpr char kPoisonByte = '\xff';  // a NaN of every type of weights and of the cache

}  // namespace

void WalkRing::reset() {
  next_ = 0;
  released_ = 0;
  in_flight_.clear();
  landed_.assign(loads_.size(), 0);
  bytes_.assign(static_cast<size_t>(memory_.partition.machine.ring_bytes), kPoisonByte);
}

const Load& WalkRing::at(int load) const {
  demand(load >= 0 && load < static_cast<int>(loads_.size()), "a load that is not there");
  return loads_[static_cast<size_t>(load)];
}

void WalkRing::issue() {
  const Load& load = loads_[next_];
  demand(load.phase >= 0 && load.phase < memory_.schedule.num_phases, "a load of a phase that is not there");
  demand(load.at >= 0 && load.bytes >= 0 && load.at + load.bytes <= static_cast<int64_t>(bytes_.size()),
         "a load beyond the ring");
  if (memory_.poisons) std::fill_n(bytes_.begin() + load.at, load.bytes, kPoisonByte);
  in_flight_.push_back(static_cast<int>(next_++));
}

void WalkRing::land(size_t which) {
  const int index = in_flight_[which];
  in_flight_.erase(in_flight_.begin() + static_cast<std::ptrdiff_t>(which));
  const Load& load = loads_[static_cast<size_t>(index)];
  const Phase& phase = memory_.phase(load.phase);
  if (phase.attends()) {
    copy_keys(load);
  } else {
    demand(phase.multiplies(), "a load of a phase that loads nothing");
    const TiledMatrix& tiles = memory_.partition.matrix_of(phase).tiles;
    demand(load.begin >= 0 && load.begin <= tiles.num_tiles(), "a load of tiles that are not there");
    const int64_t first = tiles.byte_of(load.begin);
    demand(first + load.bytes <= tiles.bytes, "a load beyond its matrix");
    std::copy_n(memory_.weights.matrix(load.phase) + first, load.bytes, bytes_.begin() + load.at);
  }
  landed_[static_cast<size_t>(index)] = 1;
}

// An entry of keys and values: [2, tokens, dim].
void WalkRing::copy_keys(const Load& load) {
  const Phase& phase = memory_.phase(load.phase);
  const AttentionItems& items = memory_.schedule.items_of(phase, memory_.program);
  demand(load.item >= 0 && load.item < static_cast<int>(items.items.size()), "a load of an item that is not there");
  const AttentionItem& item = items.items[static_cast<size_t>(load.item)];
  const KvCache& cache = memory_.input.caches[static_cast<size_t>(phase.layer)];
  const PageTableView pages = memory_.input.step->pages.get();
  const int64_t dim = memory_.program.head_dim, element = bits_of(cache.k.dtype()) / 8, tokens = load.end - load.begin;
  demand(load.begin >= 0 && tokens >= 0 && load.end <= items.requests[static_cast<size_t>(item.request)].kv_len &&
             load.bytes == 2 * tokens * dim * element,
         "a load of keys that are not there");
  char* to = bytes_.data() + load.at;
  for (const TensorView* side : {&cache.k, &cache.v})
    for (int64_t token = load.begin; token < load.end; ++token, to += dim * element) {
      const int64_t page = pages.kv_page_indices[static_cast<size_t>(
          pages.kv_page_indptr[static_cast<size_t>(item.request)] + token / pages.page_size)];
      const int64_t at =
          page * side->stride(0) + token % pages.page_size * side->stride(1) + item.kv_head * side->stride(2);
      std::memcpy(to, static_cast<const char*>(side->data()) + at * element, static_cast<size_t>(dim * element));
    }
}

void WalkRing::release(int index) {
  const Load& load = at(index);
  ++released_;
  if (memory_.poisons && has_landed(index)) std::fill_n(bytes_.begin() + load.at, load.bytes, kPoisonByte);
}

}  // namespace weft::decode::fused
