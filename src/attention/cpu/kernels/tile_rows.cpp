// Where the keys or values of a tile lie.
#include "attention/cpu/kernels/tile_rows.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

// Consecutive tokens from the `first` of `data` on, `count` of them.
void walk(const TokensView& view, const char* data, long long first, int count, const char** rows) {
  if (view.group == 1) {
    data += first * view.token_stride;
    for (int i = 0; i < count; ++i, data += view.token_stride) rows[i] = data;
    return;
  }
  data += first / view.group * view.token_stride;
  int left = view.group - static_cast<int>(first % view.group);
  for (int i = 0; i < count; ++i) {
    rows[i] = data;
    if (--left > 0) continue;
    data += view.token_stride;
    left = view.group;
  }
}

}  // namespace

void locate_tokens(const UnitView& unit, const TokensView& view, long long head, int begin, int n, const char** rows) {
  const AttendArgs& args = unit.args;
  const char* data = view.data + head * view.head_stride;
  const long long first = unit.list.first;
  const int page_size = args.token_page_size;
  if (page_size == 0) return walk(view, data, first + begin, n, rows);
  const int* pages = section<int>(args.plan, args.plan->page_indices);
  if (args.paged && page_size == 1) {
    for (int i = 0; i < n; ++i) rows[i] = data + pages[first + begin + i] * view.page_stride;
    return;
  }
  const long long token = args.paged ? begin : first + begin, before = args.paged ? first : 0;
  long long page = before + token / page_size, slot = token % page_size;
  for (int i = 0; i < n; ++page, slot = 0) {
    const int count = min_of(n - i, static_cast<int>(page_size - slot));
    walk(view, data + (args.paged ? pages[page] : page) * view.page_stride, slot, count, rows + i);
    i += count;
  }
}

TileRows::TileRows(const UnitView& unit, const TokensView& view, int dim, bool join, int tokens, Arena& arena)
    : unit_(unit), view_(view), bytes_(dim * bits_of(unit.args.kv_element) / 8) {
  for (int stage = 0; stage < 2; ++stage) {
    rows_[stage] = arena.allocate<const char*>(tokens);
    joined_[stage] = join ? arena.allocate<char>(static_cast<long long>(tokens) * bytes_) : nullptr;
  }
  rope_rows_ = arena.allocate<const char*>(join ? tokens : 0);
}

void TileRows::locate(const KvTile& tile, int stage) {
  locate_tokens(unit_, view_, unit_.first_head, tile.begin, tile.n, rows_[stage]);
}

void TileRows::join(const KvTile& tile, int stage) {
  if (joined_[stage] == nullptr) return;
  const AttendArgs& args = unit_.args;
  const int rope = args.rope_dim * bits_of(args.kv_element) / 8, first = bytes_ - rope;
  if (rope > 0) locate_tokens(unit_, args.rope, 0, tile.begin, tile.n, rope_rows_);
  char* to = joined_[stage];
  for (int i = 0; i < tile.n; ++i, to += bytes_) {
    __builtin_memcpy(to, rows_[stage][i], static_cast<unsigned long>(first));
    if (rope > 0) __builtin_memcpy(to + first, rope_rows_[i], static_cast<unsigned long>(rope));
    rows_[stage][i] = to;
  }
}

Prefetcher::Region TileRows::region(const KvTile& tile, int stage) const {
  const int bytes = bytes_ - (joined_[0] ? unit_.args.rope_dim * bits_of(unit_.args.kv_element) / 8 : 0);
  if (view_.head_stride == bytes) return {rows_[stage], tile.n, bytes * unit_.heads, 1, 0};  // whole tokens
  return {rows_[stage], tile.n, bytes, unit_.heads, view_.head_stride};
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
