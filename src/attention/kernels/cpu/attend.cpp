// One work item: its rows against its keys, tile by tile, one pass over K and V for the whole head group.
#include "attention/kernels/cpu/dense.h"
#include "attention/kernels/cpu/item.h"
#include "attention/kernels/cpu/output.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

using abi::kColumnStep;

constexpr int kMinTokens = 32, kMaxTokens = kDirectTokens;
// Keys and values of a tile: it and the next stay in the second-level cache, of 1 MiB and more beside 512-bit vectors.
constexpr long long kTileBytes = kRegisters == 32 ? 256 << 10 : 128 << 10;

int tile_tokens(long long bytes_per_token) {
  int tokens = kMaxTokens;
  while (tokens > kMinTokens && tokens * bytes_per_token > kTileBytes) tokens /= 2;
  return tokens;
}

// Everything an item needs, in scratch. `states` fused rows are worked on together: those of every KV head of the
// unit (direct), or of one (packed); in order [KV head][query token][query head of the group].
struct Buffers {
  Seen* seen;                     // [query tokens]
  abi::ScoreRow* rows;            // [states]
  abi::VectorRow* query_vectors;  // [states]
  float *m, *l, *alpha;           // [states]
  float* o;                       // [states][ld_o]
  float* query;                   // [fused rows of one head][head_dim_qk], rounded in place when computing in bf16
  float* direct_query;            // of every head, as Loader::dot wants it
  float* scores;                  // [states][ld_scores]
  unsigned short* probs;          // the same, for products in bf16
  int* positions;                 // [tokens] of a tile's columns
  float *keys, *values;           // packed
  const char** key_rows[2];       // this tile's and the next one's, of the unit's first head
  const char** value_rows[2];
  const char** shown_rows;  // one side of a boundary tile; what no row sees lies among zeros
  unsigned char* marks;     // [tokens] which of a boundary tile's columns some row sees
  unsigned char* shown;     // [tokens] which columns the bits of their pages show to one row
  float* changed;           // [tokens][larger head dim] keys or values after their hook
  unsigned short* changed_bf16;
  const char** changed_rows;
  abi::VectorRow* key_vectors;  // [tokens]
  float* vector_scratch;        // [larger head dim]

  // Latent rows: `values` are the keys, too, and scores are computed token by token.
  float *query_panels, *by_token;  // queries packed as keys are; [tokens][ld_by_token]
  char* joined[2];                 // whole rows of this tile and the next, where they do not lie so in the cache

  bool direct;
  bool latent;     // packed, and one packed row serves as key and value
  int group_rows;  // fused rows of one head
  int states, tokens;
  long long ld_o, ld_scores, ld_by_token;
  long long bytes;
};

Buffers lay_out(const AttendArgs& args, const Unit& unit, char* base) {
  Buffers b = {};
  const int query_tokens = unit.row_end - unit.row_begin, heads = unit.kv_head_end - unit.kv_head_begin;
  const int dqk = args.head_dim_qk, dvo = args.head_dim_vo, larger = max_of(dqk, dvo);
  b.direct = unit.tile_class == kDirectClass;
  b.group_rows = query_tokens * args.group_size;
  b.states = b.group_rows * (b.direct ? heads : 1);
  b.latent = args.v_is_k_prefix && !b.direct && !args.leaf->key && !args.leaf->value;
  const bool narrow = b.direct ? args.kv_element != Element::fp32 : args.compute_bf16 != 0;
  // Of latent rows half as much is held; packed, they get twice the room, as each tile is a pass over all of o.
  const int stored = args.v_is_k_prefix ? dqk / (b.latent ? 2 : 1) : dqk + dvo;
  b.tokens = tile_tokens(static_cast<long long>(stored) * (narrow ? 2 : 4) * (b.direct ? heads : 1));
  b.ld_o = round_up(dvo, kPanel);
  b.ld_scores = b.direct ? kDirectLd : b.tokens;
  b.ld_by_token = round_up(b.group_rows, kLanes);

  const long long tokens = b.tokens, states = b.states;
  const long long packed = b.direct ? 0 : tokens, changed = args.leaf->key || args.leaf->value ? tokens : 0;
  Carver carver(base);
  b.seen = carver.take<Seen>(query_tokens);
  b.rows = carver.take<abi::ScoreRow>(states);
  b.query_vectors = carver.take<abi::VectorRow>(states);
  b.m = carver.take<float>(states);
  b.l = carver.take<float>(states);
  b.alpha = carver.take<float>(states);
  b.o = carver.take<float>(states * b.ld_o);
  b.query = carver.take<float>(static_cast<long long>(b.group_rows) * dqk);
  b.direct_query = carver.take<float>(b.direct ? states * direct_query_size(dqk) : 0);
  b.scores = carver.take<float>(states * b.ld_scores);
  if (args.compute_bf16 && !b.direct) b.probs = carver.take<unsigned short>(states * b.ld_scores);
  b.positions = carver.take<int>(tokens);
  b.keys = carver.take<float>(b.latent ? 0 : packed / kPanel * panel_stride(dqk));
  const int packed_columns = round_up(b.latent ? dqk : dvo, kPanel);
  b.values = carver.take<float>(packed_columns / kPanel * panel_stride(b.direct ? 0 : b.tokens));
  b.query_panels = carver.take<float>(b.latent ? round_up(b.group_rows, kPanel) / kPanel * panel_stride(dqk) : 0);
  b.by_token = carver.take<float>(b.latent ? tokens * b.ld_by_token : 0);
  const bool join = args.rope_dim > 0 || (b.latent && args.compute_bf16);
  const long long joined = join ? tokens * dqk * bits_of(args.kv_element) / 8 : 0;
  for (int i = 0; i < 2; ++i) {
    b.key_rows[i] = carver.take<const char*>(tokens);
    b.value_rows[i] = args.v_is_k_prefix ? b.key_rows[i] : carver.take<const char*>(tokens);
    b.joined[i] = join ? carver.take<char>(joined) : nullptr;
  }
  b.shown_rows = carver.take<const char*>(tokens);
  b.marks = carver.take<unsigned char>(tokens);
  b.shown = carver.take<unsigned char>(args.plan->bits_index.count > 0 ? tokens : 0);
  b.changed = carver.take<float>(changed * larger);
  b.changed_bf16 = carver.take<unsigned short>(args.compute_bf16 ? changed * larger : 0);
  b.changed_rows = carver.take<const char*>(changed);
  b.key_vectors = carver.take<abi::VectorRow>(changed);
  b.vector_scratch = carver.take<float>(larger);
  b.bytes = carver.bytes();
  return b;
}

class Item {
 public:
  Item(const AttendArgs& args, const WorkItem& item, char* scratch)
      : args_(args),
        plan_(*args.plan),
        item_(item),
        unit_(plan_section<Unit>(args.plan, plan_.units)[item.unit]),
        list_(plan_section<PageList>(args.plan, plan_.page_lists)[unit_.page_list]),
        rows_(plan_section<PlanRow>(args.plan, plan_.rows) + unit_.row_begin),
        num_rows_(unit_.row_end - unit_.row_begin),
        b_(lay_out(args, unit_, scratch)),
        stored_(loader_for(args.kv_element, args.compute_bf16)),
        changed_(loader_for(Element::fp32, false)) {
    const int* kv_len = plan_section<int>(args.plan, plan_.kv_len);
    end_ = min_of(item.kv_end, list_.len >= 0 ? list_.len : kv_len[list_.request] - list_.first_pos);
    for (int r = 0; r < num_rows_; ++r) b_.seen[r] = seen_by(plan_, rows_[r].pos, kv_len[rows_[r].request]);
  }

  void run() {
    if (b_.direct) {
      attend_direct();
      return;
    }
    if (b_.latent) {
      attend_latent();
      return;
    }
    for (int head = unit_.kv_head_begin; head < unit_.kv_head_end; ++head) attend_packed(head);
  }

 private:
  // Tokens as the products take them: token t lies at rows[t] + offset.
  struct Side {
    const char* const* rows;
    long long offset;
    const Loader* loader;
  };

  void attend_direct();
  void attend_packed(int head);
  void attend_latent();
  void start(int first_head, int heads);
  void load_query(int head, const abi::VectorRow* vectors);
  void locate(const KvTile& tile, int head, int which);
  void join(const KvTile& tile, int which);
  void pack_queries();
  Side side(const KvTile& tile, const char* const* rows, long long offset, int head, int dim, abi::VectorFn hook);
  Ahead next_rows(const TokensView& view, const char* const* rows, int n, int dim, int h) const;
  void place(const KvTile& tile);
  void hide_by_bits(const KvTile& tile, float scale);
  void score(const KvTile& tile);
  void finish(int first_head, int heads);

  TileCursor tiles() const { return {args_, b_.seen, num_rows_, list_.first_pos, item_.kv_begin, end_, b_.tokens}; }

  const AttendArgs& args_;
  const PlanHeader& plan_;
  const WorkItem& item_;
  const Unit& unit_;
  const PageList& list_;
  const PlanRow* rows_;
  int num_rows_, end_ = 0;
  Buffers b_;
  const Loader& stored_;   // reads the cache
  const Loader& changed_;  // reads what a hook made, in fp32
};

// Rows and empty states of these KV heads.
void Item::start(int first_head, int heads) {
  const int* qo_len = plan_section<int>(args_.plan, plan_.qo_len);
  const int* kv_len = plan_section<int>(args_.plan, plan_.kv_len);
  int state = 0;
  for (int head = first_head; head < first_head + heads; ++head)
    for (int r = 0; r < num_rows_; ++r)
      for (int g = 0; g < args_.group_size; ++g, ++state) {
        const PlanRow& row = rows_[r];
        const Seen& seen = b_.seen[r];
        const int qo_head = head * args_.group_size + g;
        b_.rows[state] = {row.request,
                          row.idx,
                          qo_head,
                          head,
                          qo_len[row.request],
                          kv_len[row.request],
                          row.pos,
                          {seen.lower[0], seen.lower[1]},
                          {seen.upper[0], seen.upper[1]}};
        b_.query_vectors[state] = {row.request, row.idx, row.pos, qo_head};
        b_.m[state] = -__builtin_inff();
        b_.l[state] = 0;
      }
  __builtin_memset(b_.o, 0, static_cast<unsigned long>(b_.states * b_.ld_o) * sizeof(float));
}

// The query rows of one KV head, changed by their hook and rounded to the compute type.
void Item::load_query(int head, const abi::VectorRow* vectors) {
  const int dim = args_.head_dim_qk, group = args_.group_size;
  for (int r = 0; r < num_rows_; ++r)
    for (int g = 0; g < group; ++g)
      convert_to_f32(args_.q.data + rows_[r].q_row * args_.q.row_stride + (head * group + g) * args_.q.head_stride,
                     args_.q.element, dim, b_.query + static_cast<long long>(r * group + g) * dim);
  if (args_.leaf->query) {
    const abi::VectorTile tile = {args_.params, vectors, b_.group_rows, dim, b_.query, dim, b_.vector_scratch};
    args_.leaf->query(&tile);
  }
  if (args_.compute_bf16)  // in place: a narrow row ends before the next wide one begins
    for (long long r = 0; r < b_.group_rows; ++r)
      convert_from_f32(b_.query + r * dim, dim, reinterpret_cast<char*>(b_.query + r * dim / 2), Element::bf16);
}

// Finds the tile's tokens.
void Item::locate(const KvTile& tile, int head, int which) {
  locate_tokens(args_, list_, args_.k, head, tile.begin, tile.n, b_.key_rows[which]);
  if (!args_.v_is_k_prefix) locate_tokens(args_, list_, args_.v, head, tile.begin, tile.n, b_.value_rows[which]);
  if (b_.joined[which]) join(tile, which);
}

// Copies latent rows, so that each is whole and one follows the other.
void Item::join(const KvTile& tile, int which) {
  const int bytes = bits_of(args_.kv_element) / 8, rope = args_.rope_dim * bytes,
            first = args_.head_dim_qk * bytes - rope;
  const char** rope_rows = b_.shown_rows;  // nobody else's until the tile is worked on
  if (rope > 0) locate_tokens(args_, list_, args_.rope, 0, tile.begin, tile.n, rope_rows);
  char* to = b_.joined[which];
  for (int i = 0; i < tile.n; ++i, to += first + rope) {
    __builtin_memcpy(to, b_.key_rows[which][i], static_cast<unsigned long>(first));
    if (rope > 0) __builtin_memcpy(to + first, rope_rows[i], static_cast<unsigned long>(rope));
    b_.key_rows[which][i] = to;
  }
}

Item::Side Item::side(const KvTile& tile, const char* const* rows, long long offset, int head, int dim,
                      abi::VectorFn hook) {
  const int padded = round_up(tile.n, kColumnStep);
  Side result = {rows, offset, &stored_};
  if (tile.boundary) {
    for (int i = 0; i < padded; ++i) b_.shown_rows[i] = i < tile.n && b_.marks[i] ? rows[i] + offset : kZeros;
    result = {b_.shown_rows, 0, &stored_};
  }
  if (!hook) return result;

  stored_.widen_rows(result.rows, result.offset, padded, dim, b_.changed, dim);
  for (int i = 0; i < tile.n; ++i) {
    b_.key_vectors[i] = {list_.request, list_.first_pos + tile.begin + i, b_.positions[i], head};
  }
  const abi::VectorTile vectors = {args_.params, b_.key_vectors, tile.n, dim, b_.changed, dim, b_.vector_scratch};
  hook(&vectors);
  for (int i = 0; i < padded; ++i) {
    const float* row = b_.changed + static_cast<long long>(i) * dim;
    b_.changed_rows[i] = reinterpret_cast<const char*>(row);
    if (args_.compute_bf16) {
      unsigned short* narrow = b_.changed_bf16 + static_cast<long long>(i) * dim;
      convert_from_f32(row, dim, reinterpret_cast<char*>(narrow), Element::bf16);
      b_.changed_rows[i] = reinterpret_cast<const char*>(narrow);
    }
    if (tile.boundary && !(i < tile.n && b_.marks[i])) b_.changed_rows[i] = kZeros;
  }
  return {b_.changed_rows, 0, args_.compute_bf16 ? &stored_ : &changed_};
}

// Positions of the tile's columns, -1 behind the last one, and for a boundary tile which of them any row sees.
void Item::place(const KvTile& tile) {
  const abi::Leaf& leaf = *args_.leaf;
  if (!leaf.score && !leaf.key && !leaf.value && !tile.boundary) return;
  find_positions(plan_, list_, tile.begin, tile.n, b_.positions);
  for (int i = tile.n; i < round_up(tile.n, kColumnStep); ++i) b_.positions[i] = -1;
  if (!tile.boundary) return;
  if (plan_.positions_per_page > 0)
    mark_positions(b_.seen, num_rows_, b_.positions, tile.n, b_.marks);
  else
    mark_seen(b_.seen, num_rows_, list_.first_pos + tile.begin, tile.n, b_.marks);
}

// Scales the scores and hides what the bits of their pages do not show: each query token has a row of bits.
void Item::hide_by_bits(const KvTile& tile, float scale) {
  const int* index = plan_section<int>(args_.plan, plan_.bits_index) + list_.first;
  const unsigned char* bits = plan_section<unsigned char>(args_.plan, plan_.bits);
  const long long bytes = bytes_of_bits(plan_.block_rows, plan_.page_size);
  const float hidden = args_.leaf->use_softmax ? -__builtin_inff() : 0.f;
  for (int r = 0; r < num_rows_; ++r) {
    const long long row = unit_.row_begin + r - list_.row_begin;
    for (int i = 0; i < tile.n; ++i) {
      const int pattern = index[(tile.begin + i) / plan_.page_size];
      const long long bit = row * plan_.page_size + (tile.begin + i) % plan_.page_size;
      b_.shown[i] = pattern < 0 || ((bits[pattern * bytes + bit / 8] >> (bit % 8)) & 1) != 0;
    }
    for (int first = 0; first < b_.states; first += b_.group_rows)
      for (int g = 0; g < args_.group_size; ++g) {
        float* scores = b_.scores + (first + r * args_.group_size + g) * b_.ld_scores;
        for (int i = 0; i < tile.n; ++i) scores[i] = b_.shown[i] ? scores[i] * scale : hidden;
      }
  }
}

// Scores become probabilities; m, l and alpha move on.
void Item::score(const KvTile& tile) {
  const abi::Leaf& leaf = *args_.leaf;
  const int padded = round_up(tile.n, kColumnStep), begin = list_.first_pos + tile.begin;
  float scale = leaf.score ? 1.f : static_cast<float>(args_.params[0].real);
  if (leaf.score) {
    const abi::ScoreTile scores = {.params = args_.params,
                                   .rows = b_.rows,
                                   .kv_positions = b_.positions,
                                   .num_rows = b_.states,
                                   .num_kv = tile.n,
                                   .kv_begin = begin,
                                   .scores = b_.scores,
                                   .ld = b_.ld_scores};
    leaf.score(&scores);
  }
  if (plan_.bits_index.count > 0) {
    hide_by_bits(tile, scale);
    scale = 1;
  }
  softmax({.rows = b_.rows,
           .kv_positions = b_.positions,
           .num_rows = b_.states,
           .num_kv_padded = padded,
           .use_softmax = leaf.use_softmax,
           .boundary = tile.boundary,
           .scale = scale,
           .scores = b_.scores,
           .ld = b_.ld_scores,
           .probs_bf16 = b_.probs,
           .m = b_.m,
           .l = b_.l,
           .alpha = b_.alpha});
}

// What of the next tile's n tokens is fetched while head h of this one is worked on: in the order of memory, which is
// what the machine's own prefetchers follow.
Ahead Item::next_rows(const TokensView& view, const char* const* rows, int n, int dim, int h) const {
  const int heads = unit_.kv_head_end - unit_.kv_head_begin;
  const int bytes = dim * bits_of(args_.kv_element) / 8;
  if (view.head_stride != bytes) return Ahead(rows, h * view.head_stride, n, bytes);
  const int begin = n * h / heads, end = n * (h + 1) / heads;  // whole tokens, a share of them
  return Ahead(rows + begin, 0, end - begin, bytes * heads);
}

// Few rows: every KV head of a tile before the next tile, so that a token's heads, which lie side by side in NHD, are
// read together; while one tile is worked on, the next one is on its way.
void Item::attend_direct() {
  const int first = unit_.kv_head_begin, heads = unit_.kv_head_end - first, rows = b_.group_rows;
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo;
  start(first, heads);
  for (int h = 0; h < heads; ++h) {
    load_query(first + h, b_.query_vectors + h * rows);
    pack_direct_query(b_.query, args_.compute_bf16 ? dqk / 2 : dqk, rows, dqk, args_.compute_bf16,
                      b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk));
  }
  TileCursor cursor = tiles();
  KvTile tile, next;
  int which = 0;
  bool more = cursor.next(tile);
  if (more) locate(tile, first, which);
  while (more) {
    more = cursor.next(next);
    const int num_next = more ? next.n : 0;
    if (more) locate(next, first, 1 - which);
    place(tile);
    const int padded = round_up(tile.n, kColumnStep);
    for (int h = 0; h < heads; ++h) {
      const Side keys = side(tile, b_.key_rows[which], h * args_.k.head_stride, first + h, dqk, args_.leaf->key);
      Ahead ahead = next_rows(args_.k, b_.key_rows[1 - which], num_next, dqk, h);
      keys.loader->dot(keys.rows, keys.offset, padded, ahead,
                       b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk), rows, dqk,
                       b_.scores + static_cast<long long>(h) * rows * b_.ld_scores);
    }
    score(tile);
    for (int h = 0; h < heads; ++h) {
      const Side values = side(tile, b_.value_rows[which], h * args_.v.head_stride, first + h, dvo, args_.leaf->value);
      Ahead ahead = next_rows(args_.v, b_.value_rows[1 - which], args_.v_is_k_prefix ? 0 : num_next, dvo, h);
      values.loader->accumulate(values.rows, values.offset, tile.n, ahead,
                                b_.scores + static_cast<long long>(h) * rows * b_.ld_scores, b_.alpha + h * rows, rows,
                                dvo, b_.o + static_cast<long long>(h) * rows * b_.ld_o, b_.ld_o);
    }
    tile = next;
    which = 1 - which;
  }
  finish(first, heads);
}

// Many rows: keys and values are packed once a tile, and both products run at the machine's arithmetic rate.
void Item::attend_packed(int head) {
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo, rows = b_.group_rows;
  const int per_unit = args_.compute_bf16 ? 2 : 1;
  start(head, 1);
  load_query(head, b_.query_vectors);
  TileCursor cursor = tiles();
  for (KvTile tile; cursor.next(tile);) {
    locate(tile, head, 0);
    place(tile);
    const int padded = round_up(tile.n, kColumnStep);
    const Side keys = side(tile, b_.key_rows[0], 0, head, dqk, args_.leaf->key);
    keys.loader->pack_keys(keys.rows, keys.offset, padded, dqk, b_.keys);
    multiply({.a = b_.query,
              .lda = dqk / per_unit,
              .a_stride = 0,
              .b = b_.keys,
              .stride = panel_stride(dqk / per_unit),
              .units = dqk / per_unit,
              .c = b_.scores,
              .ldc = b_.ld_scores,
              .alpha = nullptr,
              .rows = rows,
              .vectors = padded / kLanes},
             args_.compute_bf16);
    score(tile);
    const Side values = side(tile, b_.value_rows[0], 0, head, dvo, args_.leaf->value);
    values.loader->pack_values(values.rows, values.offset, padded, dvo, b_.values);
    multiply({.a = args_.compute_bf16 ? reinterpret_cast<const float*>(b_.probs) : b_.scores,
              .lda = b_.ld_scores / per_unit,
              .a_stride = 0,
              .b = b_.values,
              .stride = panel_stride(padded / per_unit),
              .units = (tile.n + per_unit - 1) / per_unit,
              .c = b_.o,
              .ldc = b_.ld_o,
              .alpha = b_.alpha,
              .rows = rows,
              .vectors = static_cast<int>(b_.ld_o / kLanes)},
             args_.compute_bf16);
  }
  finish(head, 1);
}

// Queries as the right side of a product: panels of fused rows.
void Item::pack_queries() {
  const long long row_bytes = static_cast<long long>(args_.head_dim_qk) * (args_.compute_bf16 ? 2 : 4);
  for (int first = 0; first < b_.ld_by_token; first += kLanes) {
    const char* rows[kLanes];
    for (int i = 0; i < kLanes; ++i)
      rows[i] = first + i < b_.group_rows ? reinterpret_cast<const char*>(b_.query) + (first + i) * row_bytes : kZeros;
    const int per_unit = args_.compute_bf16 ? 2 : 1;
    float* panel = b_.query_panels + first / kPanel * panel_stride(args_.head_dim_qk / per_unit) + first % kPanel;
    (args_.compute_bf16 ? stored_ : changed_).pack_keys(rows, 0, kLanes, args_.head_dim_qk, panel);
  }
}

// Latent rows are keys and, up to head_dim_vo, values of many queries. Their scores are computed token by token, with
// the queries on the right, so that a row packed for P V is a left side as it stands: it is read and packed once. Pairs
// of bf16 run along a key's elements, and along tokens in values: there the joined rows are the left side.
void Item::attend_latent() {
  const int dqk = args_.head_dim_qk, dvo = args_.head_dim_vo, rows = b_.group_rows;
  const bool bf16 = args_.compute_bf16 != 0;
  const int per_unit = bf16 ? 2 : 1;
  start(unit_.kv_head_begin, 1);
  load_query(unit_.kv_head_begin, b_.query_vectors);
  pack_queries();
  const int score_vectors = static_cast<int>(b_.ld_by_token / kLanes),
            value_vectors = static_cast<int>(b_.ld_o / kLanes);
  TileCursor cursor = tiles();
  KvTile tile, next;
  for (bool more = cursor.next(tile); more; tile = next) {
    locate(tile, 0, 0);
    place(tile);
    more = cursor.next(next);
    const int padded = round_up(tile.n, kColumnStep);
    // The next tile is on its way meanwhile.
    if (more) locate_tokens(args_, list_, args_.k, 0, next.begin, next.n, b_.key_rows[1]);
    const int bytes = (dqk - args_.rope_dim) * bits_of(args_.kv_element) / 8, lines = (bytes + 63) / 64;
    Ahead ahead(b_.key_rows[1], 0, more ? next.n : 0, bytes);
    const int blocks = num_blocks(tile.n, dqk / per_unit, score_vectors) + num_blocks(rows, tile.n, value_vectors);
    const int ahead_lines = more ? (next.n * lines + blocks - 1) / blocks : 0;
    const Side latent = side(tile, b_.key_rows[0], 0, 0, dqk, nullptr);
    latent.loader->pack_values(latent.rows, latent.offset, padded, bf16 ? dvo : dqk, b_.values);
    multiply({.a = bf16 ? reinterpret_cast<const float*>(b_.joined[0]) : b_.values,
              .lda = bf16 ? dqk / 2 : kPanel,
              .a_stride = bf16 ? 0 : panel_stride(padded),
              .b = b_.query_panels,
              .stride = panel_stride(dqk / per_unit),
              .units = dqk / per_unit,
              .c = b_.by_token,
              .ldc = b_.ld_by_token,
              .alpha = nullptr,
              .rows = tile.n,
              .vectors = score_vectors,
              .ahead = &ahead,
              .ahead_lines = ahead_lines},
             bf16);
    transpose_scores(b_.by_token, b_.ld_by_token, rows, padded, b_.scores, b_.ld_scores);
    score(tile);
    multiply({.a = bf16 ? reinterpret_cast<const float*>(b_.probs) : b_.scores,
              .lda = b_.ld_scores / per_unit,
              .a_stride = 0,
              .b = b_.values,
              .stride = panel_stride(padded / per_unit),
              .units = (tile.n + per_unit - 1) / per_unit,
              .c = b_.o,
              .ldc = b_.ld_o,
              .alpha = b_.alpha,
              .rows = rows,
              .vectors = value_vectors,
              .ahead = &ahead,
              .ahead_lines = ahead_lines},
             bf16);
  }
  finish(unit_.kv_head_begin, 1);
}

// States leave for the output, or for the item's partial.
void Item::finish(int first_head, int heads) {
  const int dim = args_.head_dim_vo, group = args_.group_size;
  float* lse = b_.l;
  if (args_.leaf->use_softmax)
    for (int s = 0; s < b_.states; ++s) {
      float* o = b_.o + s * b_.ld_o;
      const float sum = b_.l[s];
      lse[s] = sum == 0 ? -__builtin_inff() : b_.m[s] + __builtin_logf(sum);
      const F32 factor = broadcast(sum == 0 ? 0.f : 1.f / sum);
      for (int d = 0; d < b_.ld_o; d += kLanes) store(o + d, load(o + d) * factor);
    }
  if (item_.partial < 0) {
    write_output(args_, {rows_, num_rows_, first_head, heads, b_.o, b_.ld_o, lse, b_.query_vectors, b_.vector_scratch});
    return;
  }
  const Partial& partial = plan_section<Partial>(args_.plan, plan_.partials)[item_.partial];
  const long long unit_heads = static_cast<long long>(unit_.kv_head_end - unit_.kv_head_begin) * group;
  float* data = const_cast<float*>(plan_section<float>(args_.plan, plan_.partial_data)) + partial.offset;
  float* data_lse = data + num_rows_ * unit_heads * dim;
  int state = 0;
  for (int head = first_head; head < first_head + heads; ++head)
    for (int r = 0; r < num_rows_; ++r)
      for (int g = 0; g < group; ++g, ++state) {
        const long long index = r * unit_heads + (head - unit_.kv_head_begin) * group + g;
        convert_from_f32(b_.o + state * b_.ld_o, dim, reinterpret_cast<char*>(data + index * dim), Element::fp32);
        data_lse[index] = lse[state];
      }
}

}  // namespace

// Of merge.cpp.
long long merge_scratch(const AttendArgs& args, int kv_heads);
void merge(const AttendArgs& args, const MergeGroup& group, char* scratch);
void merge_states(const MergeStatesArgs& args, long long begin, long long end);

namespace {
long long attend_scratch(const AttendArgs& args, const Unit& unit) { return lay_out(args, unit, nullptr).bytes; }
void attend(const AttendArgs& args, const WorkItem& item, char* scratch) { Item(args, item, scratch).run(); }
}  // namespace

extern const CoreTable kCore;
const CoreTable kCore = {attend_scratch, merge_scratch, attend, merge, softmax, merge_states};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
