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
  const char** scale_rows[2];  // where scales of a tile's keys and values lie, of the unit's first head
  float* scales[2];            // [heads worked on][tokens]
  const char** shown_rows;     // one side of a boundary tile; what no row sees lies among zeros
  unsigned char* marks;        // [tokens] which of a boundary tile's columns some row sees
  unsigned char* shown;        // [tokens] which columns the bits of their pages show to one row
  float* changed;              // [tokens][larger head dim] keys or values after their hook
  unsigned short* changed_bf16;
  const char** changed_rows;
  abi::VectorRow* key_vectors;  // [tokens]
  float* vector_scratch;        // [larger head dim]

  // Integer products: rows as digits, beside their scales and sums.
  unsigned* query_digits;  // [states][2][round_up(head_dim_qk, kLanes) / 4]
  unsigned* prob_digits;   // [group_rows][2][tokens / 4]
  float *query_scales, *prob_scales;
  int *query_sums, *prob_sums;

  // Latent rows: `values` are the keys, too, and scores are computed token by token.
  float *query_panels, *by_token;  // queries packed as keys are; [tokens][ld_by_token]
  char* joined[2];                 // whole rows of this tile and the next, where they do not lie so in the cache

  bool direct;
  bool latent;  // packed, and one packed row serves as key and value
  bool key_digits, value_digits;
  int group_rows;  // fused rows of one head
  int states, tokens;
  long long ld_o, ld_scores, ld_by_token;
  long long bytes;
};

// Words of a digit of a query.
long long digit_words(int dim) { return round_up(dim, kLanes) / 4; }

Buffers lay_out(const AttendArgs& args, const Unit& unit, char* base) {
  Buffers b = {};
  const int query_tokens = unit.row_end - unit.row_begin, heads = unit.kv_head_end - unit.kv_head_begin;
  const int dqk = args.head_dim_qk, dvo = args.head_dim_vo, larger = max_of(dqk, dvo);
  b.direct = unit.tile_class == kDirectClass;
  b.group_rows = query_tokens * args.group_size;
  b.states = b.group_rows * (b.direct ? heads : 1);
  b.latent = args.v_is_k_prefix && !b.direct && !args.leaf->key && !args.leaf->value;
  b.key_digits = kHasByteDot && args.compute_digits && !args.leaf->key;
  b.value_digits = kHasByteDot && args.compute_digits && !args.leaf->value;
  const int bits = b.direct ? bits_of(args.kv_element) : args.compute_bf16 ? 16 : 32;
  // Of latent rows half as much is held; packed, they get twice the room, as each tile is a pass over all of o.
  const int stored = args.v_is_k_prefix ? dqk / (b.latent ? 2 : 1) : dqk + dvo;
  b.tokens = tile_tokens(static_cast<long long>(stored) * bits / 8 * (b.direct ? heads : 1));
  b.ld_o = round_up(dvo, kPanel);
  if constexpr (kHasByteDot)
    if (b.value_digits) b.ld_o = value_columns(args.kv_element, dvo);
  b.ld_scores = b.direct ? kDirectLd : b.tokens;
  b.ld_by_token = round_up(b.group_rows, kLanes);

  const long long tokens = b.tokens, states = b.states;
  const int key_units = b.key_digits ? dqk / 4 : b.direct ? 0 : dqk;
  const int value_units = b.value_digits ? b.tokens / 4 : b.direct ? 0 : b.tokens;
  const long long changed = args.leaf->key || args.leaf->value ? tokens : 0;
  Carver carver(base);
  b.seen = carver.take<Seen>(query_tokens);
  b.rows = carver.take<abi::ScoreRow>(states);
  b.query_vectors = carver.take<abi::VectorRow>(states);
  b.m = carver.take<float>(states);
  b.l = carver.take<float>(states);
  b.alpha = carver.take<float>(states);
  b.o = carver.take<float>(states * b.ld_o);
  b.query = carver.take<float>(static_cast<long long>(b.group_rows) * dqk);
  b.direct_query = carver.take<float>(b.direct && !b.key_digits ? states * direct_query_size(dqk) : 0);
  b.query_digits = carver.take<unsigned>(b.key_digits ? states * 2 * digit_words(dqk) : 0);
  b.query_scales = carver.take<float>(b.key_digits ? states : 0);
  b.query_sums = carver.take<int>(b.key_digits ? states : 0);
  b.prob_digits = carver.take<unsigned>(b.value_digits ? b.group_rows * 2 * tokens / 4 : 0);
  b.prob_scales = carver.take<float>(b.value_digits ? b.group_rows : 0);
  b.prob_sums = carver.take<int>(b.value_digits ? b.group_rows : 0);
  b.scores = carver.take<float>(states * b.ld_scores);
  if (args.compute_bf16 && !b.direct) b.probs = carver.take<unsigned short>(states * b.ld_scores);
  b.positions = carver.take<int>(tokens);
  const int packed_columns = b.latent ? round_up(dqk, kPanel) : static_cast<int>(b.ld_o);
  b.keys = carver.take<float>(b.latent || key_units == 0 ? 0 : tokens / kPanel * panel_stride(key_units));
  b.values = carver.take<float>(value_units > 0 ? packed_columns / kPanel * panel_stride(value_units) : 0);
  b.query_panels = carver.take<float>(b.latent ? round_up(b.group_rows, kPanel) / kPanel * panel_stride(dqk) : 0);
  b.by_token = carver.take<float>(b.latent ? tokens * b.ld_by_token : 0);
  const bool join = args.rope_dim > 0 || (b.latent && args.compute_bf16);
  const long long joined = join ? tokens * dqk * bits_of(args.kv_element) / 8 : 0;
  const bool scaled = args.scaling == Scaling::token;
  for (int i = 0; i < 2; ++i) {
    b.key_rows[i] = carver.take<const char*>(tokens);
    b.value_rows[i] = args.v_is_k_prefix ? b.key_rows[i] : carver.take<const char*>(tokens);
    b.joined[i] = join ? carver.take<char>(joined) : nullptr;
    b.scale_rows[i] = carver.take<const char*>(scaled ? tokens : 0);
    b.scales[i] = carver.take<float>(scaled ? tokens * (b.direct ? heads : 1) : 0);
  }
  b.shown_rows = carver.take<const char*>(tokens);
  b.marks = carver.take<unsigned char>(tokens);
  b.shown = carver.take<unsigned char>(args.plan->bits_index.count > 0 ? tokens : 0);
  b.changed = carver.take<float>(changed * larger);
  b.changed_bf16 = carver.take<unsigned short>(args.compute_bf16 ? changed * larger : 0);
  b.changed_rows = carver.take<const char*>(changed);
  b.key_vectors = carver.take<abi::VectorRow>(changed);
  b.vector_scratch = carver.take<float>(round_up(larger, kLanes));
  b.bytes = carver.bytes();
  return b;
}

void scale_vector(float* x, long long n, float factor) {
  for (long long i = 0; i < n; ++i) x[i] *= factor;
}
float head_scale(const TokensView& scales, int head) {
  float scale;
  __builtin_memcpy(&scale, scales.data + head * scales.head_stride, sizeof scale);
  return scale;
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

  // What keys and values differ in.
  struct Source {
    const TokensView &tokens, &scale;
    const char** scale_rows;
    float* scales;
    int dim;
    abi::VectorFn hook;
    const float* scales_of(int h, int ld) const { return scales + static_cast<long long>(h) * ld; }
  };
  Source keys() const {
    return {args_.k, args_.k_scale, b_.scale_rows[0], b_.scales[0], args_.head_dim_qk, args_.leaf->key};
  }
  Source values() const {
    return {args_.v, args_.v_scale, b_.scale_rows[1], b_.scales[1], args_.head_dim_vo, args_.leaf->value};
  }
  struct Sources {
    Source both[2];
    const Source* begin() const { return both; }
    const Source* end() const { return both + 2; }
  };
  Sources both_sources() const { return {{keys(), values()}}; }

  void attend_direct();
  void attend_packed(int head);
  void attend_latent();
  void start(int first_head, int heads);
  void load_query(int head, const abi::VectorRow* vectors);
  void locate(const KvTile& tile, int head, int which);
  void join(const KvTile& tile, int which);
  void pack_queries();
  void locate_scales(const KvTile& tile, int head);
  Side as_stored(const KvTile& tile, const char* const* rows, long long offset);
  Side side(const KvTile& tile, const Source& source, const char* const* rows, int first_head, int head);
  void gather_scales(const KvTile& tile, int heads);
  void scale_columns(const KvTile& tile, const Source& source, int first_head, int head, int first_state);
  Ahead next_rows(const TokensView& view, const char* const* rows, int n, int dim, int h) const;
  void place(const KvTile& tile);
  void hide_by_bits(const KvTile& tile, float scale);
  void make_query_digits(int first_state);
  void multiply_key_digits(const KvTile& tile, const Side& side, int first_head, int head, int first_state,
                           Ahead& ahead);
  void multiply_value_digits(const KvTile& tile, const Side& side, int first_head, int head, int first_state,
                             Ahead& ahead);
  void order_values();
  // As many bytes ahead as are read: 128 bytes of int8 a unit of a panel, or 64 of int4.
  int fetched_lines() const { return args_.kv_element == Element::int4 ? 2 : 4; }
  unsigned stored_offset() const { return args_.kv_element == Element::int4 ? 8 : 128; }
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
  if (args_.scaling == Scaling::head && !args_.leaf->key)
    scale_vector(b_.query, static_cast<long long>(b_.group_rows) * dim, head_scale(args_.k_scale, head));
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

// Finds the scales of a tile's tokens, which gather_scales shall read later.
void Item::locate_scales(const KvTile& tile, int head) {
  if (args_.scaling != Scaling::token) return;
  for (const Source& source : both_sources()) {
    locate_tokens(args_, list_, source.scale, head, tile.begin, tile.n, source.scale_rows);
    for (int i = 0; i < tile.n; ++i) prefetch(source.scale_rows[i]);
  }
}

// Those of each head from the located one on; 0 for what no row sees, whatever lies there.
void Item::gather_scales(const KvTile& tile, int heads) {
  if (args_.scaling != Scaling::token) return;
  for (const Source& source : both_sources())
    for (int h = 0; h < heads; ++h) {
      float* scales = source.scales + static_cast<long long>(h) * b_.tokens;
      const long long offset = h * source.scale.head_stride;
      for (int i = 0; i < tile.n; ++i) __builtin_memcpy(scales + i, source.scale_rows[i] + offset, sizeof(float));
      for (int i = tile.n; i < round_up(tile.n, kColumnStep); ++i) scales[i] = 0;
      if (tile.boundary)
        for (int i = 0; i < tile.n; ++i) scales[i] = b_.marks[i] ? scales[i] : 0.f;
    }
}

// Scores or probabilities of a head, from its first state on, times what their columns' keys or values are scaled by.
// What a hook made is scaled already.
void Item::scale_columns(const KvTile& tile, const Source& source, int first_head, int head, int first_state) {
  if (args_.scaling != Scaling::token || source.hook) return;
  const float* scales = source.scales_of(head - first_head, b_.tokens);
  const int padded = round_up(tile.n, kColumnStep);
  for (int state = first_state; state < first_state + b_.group_rows; ++state) {
    float* scores = b_.scores + state * b_.ld_scores;
    for (int i = 0; i < padded; i += kLanes) store(scores + i, load(scores + i) * load(scales + i));
  }
}

// Tokens that no row sees are zeros.
Item::Side Item::as_stored(const KvTile& tile, const char* const* rows, long long offset) {
  if (!tile.boundary) return {rows, offset, &stored_};
  for (int i = 0; i < round_up(tile.n, kColumnStep); ++i)
    b_.shown_rows[i] = i < tile.n && b_.marks[i] ? rows[i] + offset : kZeros;
  return {b_.shown_rows, 0, &stored_};
}

// The tokens of `head`; rows are those of first_head.
Item::Side Item::side(const KvTile& tile, const Source& source, const char* const* rows, int first_head, int head) {
  const int padded = round_up(tile.n, kColumnStep), dim = source.dim;
  const Side result = as_stored(tile, rows, (head - first_head) * source.tokens.head_stride);
  if (!source.hook) return result;

  stored_.widen_rows(result.rows, result.offset, padded, dim, b_.changed, dim);
  if (args_.scaling == Scaling::head) {
    scale_vector(b_.changed, static_cast<long long>(padded) * dim, head_scale(source.scale, head));
  } else if (args_.scaling == Scaling::token) {
    const float* scales = source.scales_of(head - first_head, b_.tokens);
    for (int i = 0; i < padded; ++i) scale_vector(b_.changed + static_cast<long long>(i) * dim, dim, scales[i]);
  }
  for (int i = 0; i < tile.n; ++i) {
    b_.key_vectors[i] = {list_.request, list_.first_pos + tile.begin + i, b_.positions[i], head};
  }
  const abi::VectorTile vectors = {args_.params, b_.key_vectors, tile.n, dim, b_.changed, dim, b_.vector_scratch};
  source.hook(&vectors);
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

// The loaded query of one head.
void Item::make_query_digits(int first_state) {
  if constexpr (kHasByteDot) {
    const int dim = args_.head_dim_qk, padded = round_up(dim, kLanes);
    for (int i = 0; i < b_.group_rows; ++i) {
      const int state = first_state + i;
      unsigned* high = b_.query_digits + state * 2 * digit_words(dim);
      for (int d = dim; d < padded; ++d) b_.vector_scratch[d] = 0;
      order_query(b_.query + static_cast<long long>(i) * dim, dim, args_.kv_element, b_.vector_scratch);
      make_digits(b_.vector_scratch, padded, nullptr, most_digits(dim), high, high + digit_words(dim),
                  b_.query_scales[state], b_.query_sums[state]);
    }
  }
}

// Scores of one head, scaled by what its tokens are.
void Item::multiply_key_digits(const KvTile& tile, const Side& side, int first_head, int head, int first_state,
                               Ahead& ahead) {
  if constexpr (kHasByteDot) {
    const int dim = args_.head_dim_qk, padded = round_up(tile.n, kColumnStep);
    auto* packed = reinterpret_cast<unsigned*>(b_.keys);
    pack_digit_keys(args_.kv_element, side.rows, side.offset, padded, dim, packed);
    multiply_digits(
        {.a = b_.query_digits + first_state * 2 * digit_words(dim),
         .lda = 2 * digit_words(dim),
         .sums = b_.query_sums + first_state,
         .scales = b_.query_scales + first_state,
         .b = packed,
         .stride = panel_stride(dim / 4),
         .units = dim / 4,
         .offset = stored_offset(),
         .column_scales = args_.scaling == Scaling::token ? keys().scales_of(head - first_head, b_.tokens) : nullptr,
         .c = b_.scores + first_state * b_.ld_scores,
         .ldc = b_.ld_scores,
         .alpha = nullptr,
         .rows = b_.group_rows,
         .panels = padded / kPanel,
         .lines = fetched_lines()},
        ahead);
  }
}

// Output of one head, from probabilities times what its tokens are scaled by.
void Item::multiply_value_digits(const KvTile& tile, const Side& side, int first_head, int head, int first_state,
                                 Ahead& ahead) {
  if constexpr (kHasByteDot) {
    const int padded = round_up(tile.n, kColumnStep), units = padded / 4;
    const float* factors = args_.scaling == Scaling::token ? values().scales_of(head - first_head, b_.tokens) : nullptr;
    for (int i = 0; i < b_.group_rows; ++i) {
      unsigned* high = b_.prob_digits + static_cast<long long>(i) * 2 * units;
      make_digits(b_.scores + (first_state + i) * b_.ld_scores, padded, factors, kMostDigits, high, high + units,
                  b_.prob_scales[i], b_.prob_sums[i]);
    }
    auto* packed = reinterpret_cast<unsigned*>(b_.values);
    pack_digit_values(args_.kv_element, side.rows, side.offset, padded, args_.head_dim_vo, packed);
    multiply_digits({.a = b_.prob_digits,
                     .lda = 2 * units,
                     .sums = b_.prob_sums,
                     .scales = b_.prob_scales,
                     .b = packed,
                     .stride = panel_stride(units),
                     .units = units,
                     .offset = stored_offset(),
                     .column_scales = nullptr,
                     .c = b_.o + first_state * b_.ld_o,
                     .ldc = b_.ld_o,
                     .alpha = b_.alpha + first_state,
                     .rows = b_.group_rows,
                     .panels = static_cast<int>(b_.ld_o / kPanel),
                     .lines = fetched_lines()},
                    ahead);
  }
}

// Output columns stand as packed values do: puts them in the order of the head.
void Item::order_values() {
  if constexpr (kHasByteDot) {
    const int dim = args_.head_dim_vo;
    int from[kMaxHeadDim];
    for (int column = 0; column < b_.ld_o; ++column) {
      const int d = value_dim(args_.kv_element, column, dim);
      if (d < dim) from[d] = column;
    }
    for (int state = 0; state < b_.states; ++state) {
      float* o = b_.o + state * b_.ld_o;
      for (int d = 0; d < dim; ++d) b_.vector_scratch[d] = o[from[d]];
      __builtin_memcpy(o, b_.vector_scratch, static_cast<unsigned long>(dim) * sizeof(float));
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
    if (b_.key_digits) {
      make_query_digits(h * rows);
      continue;
    }
    pack_direct_query(b_.query, args_.compute_bf16 ? dqk / 2 : dqk, rows, dqk, args_.compute_bf16,
                      b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk));
  }
  TileCursor cursor = tiles();
  KvTile tile, next;
  int which = 0;
  bool more = cursor.next(tile);
  if (more) {
    locate(tile, first, which);
    locate_scales(tile, first);
  }
  while (more) {
    more = cursor.next(next);
    const int num_next = more ? next.n : 0;
    if (more) locate(next, first, 1 - which);
    place(tile);
    gather_scales(tile, heads);
    if (more) locate_scales(next, first);
    const int padded = round_up(tile.n, kColumnStep);
    for (int h = 0; h < heads; ++h) {
      const Side keys = side(tile, this->keys(), b_.key_rows[which], first, first + h);
      Ahead ahead = next_rows(args_.k, b_.key_rows[1 - which], num_next, dqk, h);
      if (b_.key_digits) {
        multiply_key_digits(tile, keys, first, first + h, h * rows, ahead);
        continue;
      }
      keys.loader->dot(keys.rows, keys.offset, padded, ahead,
                       b_.direct_query + static_cast<long long>(h) * rows * direct_query_size(dqk), rows, dqk,
                       b_.scores + static_cast<long long>(h) * rows * b_.ld_scores);
      scale_columns(tile, this->keys(), first, first + h, h * rows);
    }
    score(tile);
    for (int h = 0; h < heads; ++h) {
      const Side values = side(tile, this->values(), b_.value_rows[which], first, first + h);
      Ahead ahead = next_rows(args_.v, b_.value_rows[1 - which], args_.v_is_k_prefix ? 0 : num_next, dvo, h);
      if (b_.value_digits) {
        multiply_value_digits(tile, values, first, first + h, h * rows, ahead);
        continue;
      }
      scale_columns(tile, this->values(), first, first + h, h * rows);
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
  if (b_.key_digits) make_query_digits(0);
  Ahead nothing(nullptr, 0, 0, 0);
  TileCursor cursor = tiles();
  for (KvTile tile; cursor.next(tile);) {
    locate(tile, head, 0);
    locate_scales(tile, head);
    place(tile);
    gather_scales(tile, 1);
    const int padded = round_up(tile.n, kColumnStep);
    const Side keys = side(tile, this->keys(), b_.key_rows[0], head, head);
    if (b_.key_digits) {
      multiply_key_digits(tile, keys, head, head, 0, nothing);
    } else {
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
      scale_columns(tile, this->keys(), head, head, 0);
    }
    score(tile);
    const Side values = side(tile, this->values(), b_.value_rows[0], head, head);
    if (b_.value_digits) {
      multiply_value_digits(tile, values, head, head, 0, nothing);
      continue;
    }
    scale_columns(tile, this->values(), head, head, 0);
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
    const Side latent = as_stored(tile, b_.key_rows[0], 0);
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
  if (b_.value_digits) order_values();
  if (args_.scaling == Scaling::head && !args_.leaf->value)
    for (int h = 0; h < heads; ++h)
      scale_vector(b_.o + h * b_.group_rows * b_.ld_o, b_.group_rows * b_.ld_o,
                   head_scale(args_.v_scale, first_head + h));
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
