// Where the sections of a workspace lie, and the most that any plan within bounds needs of them.
#include <algorithm>

#include "attention/plan/plan_builder.h"
#include "base/check.h"
#include "base/hash.h"

namespace weft {
namespace planner {
namespace {

using namespace attention;

constexpr int64_t kAlignment = 64;  // a cache line

// Query tiles of at most `requests` requests that have `rows` query tokens together, `tokens` to a tile: every request
// begins a tile, and each further tile takes as many tokens as it holds.
int64_t max_tiles(int64_t requests, int64_t rows, int64_t tokens) {
  const int64_t begun = std::min(requests, rows);
  return begun == 0 ? 0 : begun + (rows - begun) / tokens;
}

void check_bounds(const KernelTraits& traits, const PlanBounds& b) {
  const auto at_least = [](const char* name, int64_t value, int64_t least, int64_t most) {
    check(value >= least && value <= most, ErrorCode::invalid_argument, "bounds.{} = {}; allowed are {} to {}", name,
          value, least, most);
  };
  at_least("max_requests", b.max_requests, 0, kMaxInt);
  at_least("max_rows", b.max_rows, 0, kMaxInt);
  at_least("max_qo_len", b.max_qo_len, 0, kMaxInt);
  at_least("max_pages", b.max_pages, 0, kMaxInt);
  at_least("max_kv_len", b.max_kv_len, 0, int64_t{1} << 30);
  at_least("num_qo_heads", b.num_qo_heads, 1, 65536);
  at_least("num_kv_heads", b.num_kv_heads, 1, traits.kv_form == KvForm::latent ? 1 : b.num_qo_heads);
  check(b.num_qo_heads % b.num_kv_heads == 0, ErrorCode::invalid_argument,
        "bounds.num_qo_heads = {}: is not a multiple of num_kv_heads = {}", b.num_qo_heads, b.num_kv_heads);
  at_least("workers", b.workers, 1, kMaxWorkers);
  at_least("max_levels", b.max_levels, 0, has_page_table(traits.kv_form) ? kMaxLevels : 1);
  const bool blocks = traits.kv_form == KvForm::block_sparse;
  at_least("block_rows", b.block_rows, blocks ? 1 : 0, blocks ? kMaxInt : 0);
  at_least("max_bits_bytes", b.max_bits_bytes, 0, blocks ? kMaxInt : 0);
  check(b.positions_per_block == 0 || (blocks && (b.positions_per_block == 1 || b.positions_per_block == b.page_size)),
        ErrorCode::invalid_argument, "bounds.positions_per_block = {}; allowed are 0, and block-sparse 1 and page_size",
        b.positions_per_block);
  if (has_page_table(traits.kv_form) || blocks) {
    at_least("page_size", b.page_size, 1, kMaxInt);
  } else {
    check(b.page_size == 0 && b.max_pages == 0, ErrorCode::invalid_argument,
          "bounds.page_size = {}, max_pages = {}: this kernel's cache has no pages; leave both 0", b.page_size,
          b.max_pages);
  }
  if (b.mode == PlanMode::fixed_split)
    check(b.fixed_split_size > 0 && b.fixed_split_size % traits.granule == 0, ErrorCode::invalid_argument,
          "bounds.fixed_split_size = {}; allowed are positive multiples of this kernel's granule {}",
          b.fixed_split_size, traits.granule);
  else
    check(b.fixed_split_size == 0, ErrorCode::invalid_argument,
          "bounds.fixed_split_size = {} with mode {}; leave it 0, or use PlanMode::fixed_split", b.fixed_split_size,
          to_string(b.mode));
}

// Query tokens of an entry, at most: a request, or with levels all that share pages.
int64_t most_tokens(const PlanBounds& b) {
  return b.max_levels > 1 || b.max_qo_len == 0 ? b.max_rows : std::min<int64_t>(b.max_rows, b.max_qo_len);
}

// Floats of at most so many partials, where units are cut so often.
int64_t most_partial_floats(const KernelTraits& traits, const PlanBounds& b, int64_t partials, int64_t cuts) {
  const int group = b.num_qo_heads / b.num_kv_heads;
  const int64_t levels = std::max(1, b.max_levels), shared_rows = levels > 1 ? levels * b.max_rows : 0;
  int64_t largest = 0;
  for (const TileClass& c : traits.classes) {
    const int64_t tokens = std::min<int64_t>(most_tokens(b), tile_tokens(c.rows, group));
    largest = std::max<int64_t>(largest,
                                partial_floats(tokens * (c.all_kv_heads ? b.num_qo_heads : group), traits.head_dim_vo));
  }
  int64_t floats = partials * largest;
  // Every row and head has at most one partial a level, and one more a cut or a chunk; a partial is rounded up by less
  // than 16 floats.
  const int64_t row_floats = int64_t{b.num_qo_heads} * floats_of_state(traits.head_dim_vo);
  if (b.mode == PlanMode::fixed_split && cuts + shared_rows > 0) {
    const int64_t chunks = ceil_div(b.max_kv_len, b.fixed_split_size) + (levels > 1 ? levels : 0);
    floats = std::min(floats, chunks * b.max_rows * row_floats + partials * 15);
  } else if (levels > 1) {
    floats = std::min(floats, shared_rows * row_floats + cuts * largest + partials * 15);
  }
  return ceil_div(floats, 16) * 16;
}

}  // namespace

namespace {

// Returns where they end.
int64_t place_copied(const SectionCounts& n, PlanHeader& header) {
  const int64_t counts[] = {n.records,      n.worker_indptr, n.items,        n.units,         n.rows,
                            n.page_lists,   n.partials,      n.merge_groups, n.merge_sources, n.requests,
                            n.requests,     n.mask_indptr,   n.kv_positions, n.bits_index,    n.bits,
                            n.merge_groups, n.page_indices};
  int64_t offset = ceil_div(sizeof(PlanHeader), kAlignment) * kAlignment;
  const std::span<const CopiedSection> copied = copied_sections();
  for (size_t i = 0; i < copied.size(); ++i) {
    (header.*copied[i].section).offset = offset;
    offset = ceil_div(offset + counts[i] * copied[i].element_bytes, kAlignment) * kAlignment;
  }
  return offset;
}

}  // namespace

void place_sections(const SectionCounts& counts, const SectionCounts& room, PlanHeader& header) {
  header.partial_data.offset = place_copied(room, header);
  header.total_bytes = header.partial_data.offset + ceil_div(room.partial_floats * 4, kAlignment) * kAlignment;
  // A captured launch knows where a mask's requests begin by their address, which is that of all plans it may run.
  if (room.mask_indptr == 0) place_copied(counts, header);
}

SectionCounts room_of(const KernelTraits& traits, const PlanBounds& b) {
  check_bounds(traits, b);
  const int group = b.num_qo_heads / b.num_kv_heads;
  const int64_t largest_tile = tile_tokens(most_rows(traits), group);
  SectionCounts room;
  room.worker_indptr = b.workers + 1;
  room.rows = b.max_rows;
  room.requests = b.max_requests;
  if (traits.custom_mask != Mask::none) room.mask_indptr = int64_t{b.max_requests} + 1;
  room.page_indices = b.max_pages;

  // A unit holds all KV heads only where every class says so and nobody narrows it.
  bool whole_tokens = b.mode != PlanMode::balanced || b.workers == 1;
  for (const TileClass& c : traits.classes)
    whole_tokens = whole_tokens && c.all_kv_heads && int64_t{c.rows} * b.num_kv_heads <= c.most_states;
  const int64_t levels = std::max(1, b.max_levels);
  int64_t tiles = levels * max_tiles(b.max_requests, b.max_rows, largest_tile);
  room.page_lists = levels * b.max_requests;
  if (most_tokens(b) <= largest_tile) tiles = std::min(tiles, levels * std::min<int64_t>(b.max_requests, b.max_rows));
  if (b.block_rows > 0) {
    // A request's last row block may be short, and blocks are cut into tiles of their own; lists of one head have units
    // of one.
    const int64_t row_blocks = max_tiles(b.max_requests, b.max_rows, b.block_rows);
    tiles = row_blocks * ceil_div(b.block_rows, largest_tile);
    room.page_lists = row_blocks * b.num_kv_heads;
    whole_tokens = false;
    room.kv_positions = b.max_pages * b.positions_per_block;
    room.bits = b.max_bits_bytes;
    room.bits_index = b.max_bits_bytes > 0 ? b.max_pages : 0;
  }
  room.units = tiles * (whole_tokens ? 1 : b.num_kv_heads);

  const auto check_number = [](const char* of, int64_t number) {
    check(number <= kMaxInt, ErrorCode::invalid_argument,
          "bounds: plans of {} {} would be allowed; lower max_rows, max_levels or max_kv_len", number, of);
  };
  check_number("units", room.units);
  // Each cut makes one piece more, so k cuts leave at most 2k pieces of units that were cut.
  int64_t cuts = 0;
  if (b.mode == PlanMode::balanced || b.mode == PlanMode::paper || b.mode == PlanMode::even) {
    cuts = b.workers - 1;
    if (b.max_kv_len <= traits.granule) cuts = 0;
  } else if (b.mode == PlanMode::fixed_split) {
    cuts = room.units * (std::max<int64_t>(1, ceil_div(b.max_kv_len, b.fixed_split_size)) - 1);
  }
  room.items = room.units + cuts;
  check_number("items and partials", room.items);
  if (traits.item_records) room.records = b.workers + room.items;
  room.merge_groups = std::min(room.units, cuts);
  room.partials = room.merge_sources = std::min(2 * cuts, room.units + cuts);
  // Rows that several levels share write partials, cut or not, and are merged in cells.
  if (levels > 1) {
    const int64_t tile_rows = std::min<int64_t>(b.max_rows, largest_tile);
    room.merge_groups = std::min(b.max_rows, tiles) * b.num_kv_heads;
    room.partials = room.items;
    room.merge_sources = levels * room.merge_groups + cuts * tile_rows * b.num_kv_heads;
  }
  // Before the bytes of partials, which these limits keep within 64 bits.
  check_number("partials to merge", std::max(room.partials, room.merge_sources));
  room.partial_floats = most_partial_floats(traits, b, room.partials, cuts);
  return room;
}

uint64_t digest_of(const PlanBounds& b) {
  return Hash64()
      .add(b.max_requests)
      .add(b.max_rows)
      .add(b.max_qo_len)
      .add(b.max_pages)
      .add(b.max_levels)
      .add(b.max_kv_len)
      .add(b.page_size)
      .add(b.num_qo_heads)
      .add(b.num_kv_heads)
      .add(b.workers)
      .add(b.mode)
      .add(b.fixed_split_size)
      .add(b.block_rows)
      .add(b.positions_per_block)
      .add(b.max_bits_bytes)
      .value();
}

int tile_kinds_of(const Problem& p, const PlanBuilder& builder) {
  if (p.bounds == nullptr) return builder.tile_kinds;
  int kinds = 0;
  int64_t most = most_tokens(*p.bounds);
  if (p.blocks != nullptr) most = std::min<int64_t>(p.bounds->max_rows, p.bounds->block_rows);
  for (const TileKind kind : kinds_of_entries(*p.traits, p.group, static_cast<int>(most)))
    kinds |= 1 << static_cast<int>(kind);
  return kinds;
}

namespace {

void at_most(const char* what, int64_t value, const char* bound, int64_t most) {
  check(value <= most, ErrorCode::invalid_argument, "{} = {}: beyond bounds.{} = {}; plan less, or raise the bound",
        what, value, bound, most);
}
void equal(const char* what, int64_t value, int64_t bound) {
  check(value == bound, ErrorCode::invalid_argument, "{} = {}: the bounds are made for {}; make others", what, value,
        bound);
}

void check_blocks_within(const BlockSparse& blocks, const PlanBuilder& builder, const PlanBounds& b) {
  equal("blocks.block_rows", blocks.block_rows, b.block_rows);
  for (const int len : builder.entry_len) at_most("keys of a list", len, "max_kv_len", b.max_kv_len);
  at_most("blocks.kv_positions", static_cast<int64_t>(blocks.kv_positions.size()), "max_pages * positions_per_block",
          b.max_pages * b.positions_per_block);
  if (!blocks.bits_index.empty())
    at_most("bytes of blocks.bits", std::max<int64_t>(1, static_cast<int64_t>(blocks.bits.size())), "max_bits_bytes",
            b.max_bits_bytes);
}

}  // namespace

void check_within(const Problem& p, const PlanBuilder& builder) {
  const PlanBounds& b = *p.bounds;
  at_most("requests", p.num_requests, "max_requests", b.max_requests);
  at_most("query tokens", p.num_rows, "max_rows", b.max_rows);
  at_most("page ids", p.num_page_ids, "max_pages", b.max_pages);
  at_most("levels", p.num_levels, "max_levels", std::max(1, b.max_levels));
  at_most("num_workers", p.num_workers, "workers", b.workers);
  for (int r = 0; r < p.num_requests; ++r) at_most("kv_len", builder.kv_len[r], "max_kv_len", b.max_kv_len);
  if (b.max_qo_len > 0 && p.blocks == nullptr && b.max_levels <= 1)
    for (const Entry& entry : builder.entries)
      at_most("qo_len", entry.row_end - entry.row_begin, "max_qo_len", b.max_qo_len);
  if (p.blocks != nullptr) check_blocks_within(*p.blocks, builder, b);
  equal("num_qo_heads", p.num_qo_heads, b.num_qo_heads);
  equal("num_kv_heads", p.num_kv_heads, b.num_kv_heads);
  equal("page_size", p.page_size, b.page_size);
  equal("fixed_split_size", p.fixed_split_size, b.fixed_split_size);
  check(p.mode == b.mode, ErrorCode::invalid_argument, "mode {}: the bounds are made for {}; make others",
        to_string(p.mode), to_string(b.mode));
}

}  // namespace planner

size_t Planner::workspace_bytes(const KernelTraits& traits, const PlanBounds& bounds) {
  attention::PlanHeader header{};
  const planner::SectionCounts room = planner::room_of(traits, bounds);
  planner::place_sections(room, room, header);
  return static_cast<size_t>(header.total_bytes);
}

}  // namespace weft
