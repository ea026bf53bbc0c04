// The tokens of a tile: where they lie, their scales, what their hooks make of them, and which of them rows see.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Finds the tile's tokens.
void Item::locate(const KvTile& tile, int head, int stage) {
  locate_tokens(args_, list_, args_.k, head, tile.begin, tile.n, b_.key_rows[stage]);
  if (!args_.v_is_k_prefix) locate_tokens(args_, list_, args_.v, head, tile.begin, tile.n, b_.value_rows[stage]);
  if (b_.joined[stage]) join(tile, stage);
}

// Copies latent rows, so that each is whole and one follows the other.
void Item::join(const KvTile& tile, int stage) {
  const int bytes = bits_of(args_.kv_element) / 8, rope = args_.rope_dim * bytes,
            first = args_.head_dim_qk * bytes - rope;
  const char** rope_rows = b_.masked_rows;  // nobody else's until the tile is worked on
  if (rope > 0) locate_tokens(args_, list_, args_.rope, 0, tile.begin, tile.n, rope_rows);
  char* to = b_.joined[stage];
  for (int i = 0; i < tile.n; ++i, to += first + rope) {
    __builtin_memcpy(to, b_.key_rows[stage][i], static_cast<unsigned long>(first));
    if (rope > 0) __builtin_memcpy(to + first, rope_rows[i], static_cast<unsigned long>(rope));
    b_.key_rows[stage][i] = to;
  }
}

// A tile's n tokens in the order of memory, which is what the machine's own prefetchers follow.
Prefetcher::Region Item::region_of(const TokensView& view, const char* const* rows, int n, int dim) const {
  const int heads = unit_.kv_head_end - unit_.kv_head_begin, bytes = dim * bits_of(args_.kv_element) / 8;
  if (view.head_stride == bytes) return {rows, n, bytes * heads, 1, 0};  // whole tokens
  return {rows, n, bytes, heads, view.head_stride};
}

int Item::fetch_beside(const KvTile& tile, int stage, Prefetcher& prefetcher) const {
  const Prefetcher::Region k = region_of(args_.k, b_.key_rows[stage], tile.n, args_.head_dim_qk - args_.rope_dim),
                           v = region_of(args_.v, b_.value_rows[stage], args_.v_is_k_prefix ? 0 : tile.n,
                                         args_.head_dim_vo);
  prefetcher.add(k, v);
  return (k.n * k.bytes * k.heads + v.n * v.bytes * v.heads) / 64;
}

// Finds the scales of a tile's tokens, which fetch_scales and gather_scales shall read later.
void Item::locate_scales(const KvTile& tile, int head, int stage) {
  if (args_.scaling != Scaling::token) return;
  for (const Source& source : both_sources())
    locate_tokens(args_, list_, source.scale, head, tile.begin, tile.n, b_.scale_rows[stage][source.side]);
}

// Asks for those of tokens [begin, end), of which some share a line.
void Item::fetch_scales(const Source& source, int begin, int end, int stage) const {
  if (args_.scaling != Scaling::token) return;
  const char* const* rows = b_.scale_rows[stage][source.side];
  const long long stride = source.scale.token_stride;
  const int step = stride > 0 && stride < 64 ? min_of(static_cast<int>(64 / stride), args_.token_page_size) : 1;
  for (int i = begin; i < end; i += max_of(step, 1)) prefetch(rows[i]);
}

// Those of each head from the located one on; 0 for what no row sees, whatever lies there.
void Item::gather_scales(const KvTile& tile, int heads, int stage) {
  if (args_.scaling != Scaling::token) return;
  for (const Source& source : both_sources())
    for (int h = 0; h < heads; ++h) {
      float* scales = source.scales + static_cast<long long>(h) * b_.tokens;
      const long long offset = h * source.scale.head_stride;
      const char* const* rows = b_.scale_rows[stage][source.side];
      int i = 0;
      for (; i + kLanes <= tile.n; i += kLanes) store(scales + i, gather(rows + i, offset));
      for (; i < tile.n; ++i) __builtin_memcpy(scales + i, rows[i] + offset, sizeof(float));
      for (; i < round_up(tile.n, kColumnStep); ++i) scales[i] = 0;
      if (tile.boundary)
        for (i = 0; i < tile.n; ++i) scales[i] = b_.marks[i] ? scales[i] : 0.f;
    }
}

// Scores or probabilities of a head, from its first state on, times what their columns' keys or values are scaled by.
// What a hook made is scaled already.
void Item::scale_columns(const KvTile& tile, const Source& source, int head, int first_state) {
  if (args_.scaling != Scaling::token || source.hook) return;
  const float* scales = source.scales_of(head, b_.tokens);
  const int padded = round_up(tile.n, kColumnStep);
  for (int state = first_state; state < first_state + b_.group_rows; ++state) {
    float* scores = b_.scores + state * b_.ld_scores;
    for (int i = 0; i < padded; i += kLanes) store(scores + i, load(scores + i) * load(scales + i));
  }
}

Item::Side Item::masked(const KvTile& tile, const char* const* rows, long long offset, int begin, int n) {
  const int end = begin + n < tile.n ? begin + n : round_up(tile.n, kColumnStep);
  for (int i = begin; i < end; ++i) b_.masked_rows[i] = i < tile.n && b_.marks[i] ? rows[i] + offset : kZeros;
  return {b_.masked_rows, 0, &stored_};
}

// Tokens of a slice in fp32, scaled.
void Item::dequantise(const Source& source, const Side& stored, const Slice& slice, int first, int count) {
  const int dim = source.dim;
  stored_.widen_rows(stored.rows + first, stored.offset, count, dim, slice.next, b_.dequantised, dim);
  if (args_.scaling == Scaling::head)
    scale_vector(b_.dequantised, static_cast<long long>(count) * dim,
                 head_scale(source.scale, unit_.kv_head_begin + slice.head));
  if (args_.scaling != Scaling::token) return;
  const float* scales = source.scales_of(slice.head, b_.tokens);
  for (int i = 0; i < count; ++i)
    scale_vector(b_.dequantised + static_cast<long long>(i) * dim, dim, scales[first + i]);
}

// What the hook makes of a slice's tokens, a few at a time, which it reads in fp32 or, for products in bf16, as they are
// stored.
Item::Side Item::transformed(const Source& source, const Slice& slice) {
  const auto& [tile, stage, head, begin, n, next] = slice;
  const Side stored = as_stored(tile, source.rows[stage], head * source.tokens.head_stride, begin, n);
  const int dim = source.dim, end = begin + n, kv_head = unit_.kv_head_begin + head;
  const long long row_bytes = dim * (args_.compute_bf16 ? 2 : 4);
  for (int first = begin; first < end; first += kHookTokens) {
    const int count = min_of(kHookTokens, end - first);
    char* to = b_.transformed + (first - begin) * row_bytes;
    for (int i = 0; i < count; ++i) {
      b_.key_vectors[first + i].head = kv_head;
      b_.transformed_rows[first + i] = to + i * row_bytes;
    }
    const char* dequantised[kHookTokens];
    abi::VectorTile vectors = {args_.params, b_.key_vectors + first, count, dim, dequantised, 0, to, dim};
    if (args_.compute_bf16) {
      vectors.from = stored.rows + first;
      vectors.offset = stored.offset;
      for (int i = 0; i < count; ++i)
        for (int at = 0; at < row_bytes; at += 64)
          prefetch_near(vectors.from[i + next.rows] + stored.offset + next.bytes + at);
    } else {
      dequantise(source, stored, slice, first, count);
      for (int i = 0; i < count; ++i)
        dequantised[i] = reinterpret_cast<const char*>(b_.dequantised + static_cast<long long>(i) * dim);
    }
    source.hook(&vectors);
  }
  if (tile.boundary)
    for (int i = begin; i < (end < tile.n ? end : round_up(end, kColumnStep)); ++i)
      if (i >= tile.n || !b_.marks[i]) b_.transformed_rows[i] = kZeros;
  return {b_.transformed_rows, 0, &loader_of(source)};
}

// Positions of the tile's columns, -1 behind the last one, what hooks are told of them, and for a boundary tile which
// of them any row sees.
void Item::place(const KvTile& tile) {
  const abi::Leaf& leaf = *args_.leaf;
  if (!leaf.score && !leaf.key && !leaf.value && !tile.boundary) return;
  find_positions(plan_, list_, tile.begin, tile.n, b_.positions);
  for (int i = tile.n; i < round_up(tile.n, kColumnStep); ++i) b_.positions[i] = -1;
  if (leaf.key || leaf.value)
    for (int i = 0; i < tile.n; ++i)
      b_.key_vectors[i] = {list_.request, list_.first_pos + tile.begin + i, b_.positions[i], 0};
  if (!tile.boundary) return;
  if (plan_.positions_per_page > 0)
    mark_positions(b_.seen, num_rows_, b_.positions, tile.n, b_.marks);
  else
    mark_seen(b_.seen, num_rows_, list_.first_pos + tile.begin, tile.n, b_.marks);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
