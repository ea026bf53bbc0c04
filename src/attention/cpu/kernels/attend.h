// One work item in the making: what it needs in scratch, and its steps. attend.cpp begins and ends it, tokens.cpp finds
// keys and values, attend_direct.cpp, attend_packed.cpp and attend_latent.cpp are the three ways through its tiles,
// attend_int8.cpp the integer products, and contain.cpp keeps NaN and Inf from rows that do not see them.
#pragma once

#include "attention/cpu/kernels/dense.h"
#include "attention/cpu/kernels/item.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

using abi::kColumnStep;

// Tokens of a head that are worked on at once, whole vectors of scores; and those that a hook changes at once: before
// and after, with what the hook reads of them, they stay in the first-level cache.
constexpr int kSliceTokens = 16, kHookTokens = 8;

// Everything an item needs, in scratch. `states` are the fused rows of every KV head of the unit, in order
// [KV head][query token][query head of the group].
struct Buffers {
  Seen* seen;                     // [query tokens]
  abi::ScoreRow* rows;            // [states]
  abi::VectorRow* query_vectors;  // [states]
  float *m, *l, *alpha;           // [states]
  float* o;                       // [states][ld_o]
  float* query;                   // [states][head_dim_qk], rounded in place when computing in bf16; direct: of one head
  float* direct_query;            // of every head, as Loader::dot wants it
  float* scores;                  // [states][ld_scores], packed: of one head
  unsigned short* probs;          // the same, rounded, for products in bf16
  int* positions;                 // [tokens] of a tile's columns
  float *keys, *values;           // packed; of keys one panel, or as integers the tile
  const char** key_rows[2];       // this tile's and the next one's, of the unit's first head
  const char** value_rows[2];
  // Where the scales of keys and of values lie: this tile's and the next one's, of the unit's first head.
  const char** scale_rows[2][2];
  float* scales[2];           // [heads worked on][tokens]
  const char** masked_rows;   // one side of a boundary tile; what no row sees lies among zeros
  unsigned char* marks;       // [tokens] columns of a boundary tile that some row sees
  unsigned char* non_finite;  // [heads][tokens] and whose values or scales are not finite, when containing them
  unsigned char* visible;     // [tokens] columns that the bits of their pages show to one row
  float* dequantised;         // [kHookTokens][larger head dim] keys or values before their hook
  char* transformed;          // [tokens][larger head dim] and after it, in bf16 where that is multiplied
  const char** transformed_rows;
  abi::VectorRow* key_vectors;  // [tokens]
  float* vector_scratch;        // [larger head dim]

  // Integer products: rows split into int8, beside their scales and sums.
  unsigned *query_split, *prob_split;  // [states][kSplitLd]
  int* value_sums;                     // [states][ld_o] of a tile
  float *query_scales, *prob_scales;
  int *query_sums, *prob_sums;

  // Latent rows: `values` are the keys, too, and scores are computed token by token.
  float *query_panels, *by_token;  // queries packed as keys are; [tokens][ld_by_token]
  char* joined[2];                 // whole rows of this tile and the next, where they do not lie so in the cache

  bool direct;
  bool streamed;  // keys and values come from memory
  bool latent;    // packed, and one packed row serves as key and value
  bool int8_keys, int8_values;
  int group_rows;  // fused rows of one head
  int states, tokens;
  long long ld_o, ld_scores, ld_by_token;
  long long bytes;
};

// With a null base only `bytes` counts.
Buffers lay_out(const AttendArgs& args, const Unit& unit, char* base);

inline float head_scale(const TokensView& scales, int head) {
  float scale;
  __builtin_memcpy(&scale, scales.data + head * scales.head_stride, sizeof scale);
  return scale;
}
inline void scale_vector(float* x, long long n, float factor) {
  for (long long i = 0; i < n; ++i) x[i] *= factor;
}

class Item {
 public:
  Item(const AttendArgs& args, const WorkItem& item, char* scratch)
      : args_(args),
        plan_(*args.plan),
        item_(item),
        unit_(section<Unit>(args.plan, plan_.units)[item.unit]),
        list_(section<PageList>(args.plan, plan_.page_lists)[unit_.page_list]),
        rows_(section<PlanRow>(args.plan, plan_.rows) + unit_.row_begin),
        num_rows_(unit_.row_end - unit_.row_begin),
        b_(lay_out(args, unit_, scratch)),
        stored_(loader_for(args.kv_element, args.compute_bf16)),
        transformed_(loader_for(Element::fp32, false)) {
    const int* kv_len = section<int>(args.plan, plan_.kv_len);
    end_ = min_of(item.kv_end, list_.len >= 0 ? list_.len : kv_len[list_.request] - list_.first_pos);
    for (int r = 0; r < num_rows_; ++r) b_.seen[r] = seen_by(plan_, rows_[r].pos, kv_len[rows_[r].request]);
  }

  void run() {
    attend();
    if (must_contain()) {
      containing_ = true;
      attend();
    }
    finish();
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
    int side;                  // 0: keys
    const char** const* rows;  // of this tile and the next
    float* scales;
    int dim;
    abi::VectorFn hook;
    const float* scales_of(int h, int ld) const { return scales + static_cast<long long>(h) * ld; }
  };
  Source keys() const {
    return {args_.k, args_.k_scale, 0, b_.key_rows, b_.scales[0], args_.head_dim_qk, args_.leaf->key};
  }
  Source values() const {
    return {args_.v, args_.v_scale, 1, b_.value_rows, b_.scales[1], args_.head_dim_vo, args_.leaf->value};
  }
  struct Sources {
    Source both[2];
    const Source* begin() const { return both; }
    const Source* end() const { return both + 2; }
  };
  Sources both_sources() const { return {{keys(), values()}}; }
  long long head_bytes(const Source& source) const { return source.dim * bits_of(args_.kv_element) / 8; }
  const Loader& loader_of(const Source& source) const {
    return source.hook && !args_.compute_bf16 ? transformed_ : stored_;
  }

  void attend() {
    if (b_.direct)
      attend_direct();
    else if (b_.latent)
      attend_latent();
    else
      attend_packed();
  }
  void attend_direct();
  void attend_packed();
  void attend_packed(const KvTile& tile, int h, int stage, Prefetcher& prefetcher, int prefetch_lines);
  void attend_latent();
  void start(int first_head, int heads);
  void load_query(int head, const abi::VectorRow* vectors, float* query);
  void locate(const KvTile& tile, int head, int stage);
  void join(const KvTile& tile, int stage);
  void pack_queries();
  void locate_scales(const KvTile& tile, int head, int stage);
  // Of n tokens from `begin` on, and with the tile's last ones what pads it; tokens that no row sees are zeros.
  Side as_stored(const KvTile& tile, const char* const* rows, long long offset, int begin, int n) {
    if (!tile.boundary) return {rows, offset, &stored_};
    return masked(tile, rows, offset, begin, n);
  }
  Side masked(const KvTile& tile, const char* const* rows, long long offset, int begin, int n);
  // Tokens [begin, begin + n) of a tile and a head, which counts from the item's first; `next` as of Prefetcher.
  struct Slice {
    const KvTile& tile;
    int stage, head, begin, n;
    Prefetcher::Next next = {};
  };
  // As of as_stored, after their hook.
  Side side(const Source& source, const Slice& slice) {
    if (source.hook) return transformed(source, slice);
    return as_stored(slice.tile, source.rows[slice.stage], slice.head * source.tokens.head_stride, slice.begin,
                     slice.n);
  }
  void dequantise(const Source& source, const Side& stored, const Slice& slice, int first, int count);
  Side transformed(const Source& source, const Slice& slice);
  void fetch_scales(const Source& source, int begin, int end, int stage) const;
  void gather_scales(const KvTile& tile, int heads, int stage);
  void scale_columns(const KvTile& tile, const Source& source, int head, int first_state);
  // From now on fetches the tile, located already, beside what is worked on. Returns how many lines that are.
  int fetch_beside(const KvTile& tile, int stage, Prefetcher& prefetcher) const;
  Prefetcher::Region region_of(const TokensView& view, const char* const* rows, int n, int dim) const;
  void place(const KvTile& tile);
  bool hide_by_bits(const KvTile& tile, int num_states, float scale);
  void split_queries(const float* query, int first_state);
  // Of n tokens from `begin` on; `head` counts from the first one worked on.
  void multiply_int8_keys(const Side& side, int begin, int n, int head, Prefetcher& prefetcher);
  void split_probs(const KvTile& tile, int head);
  void multiply_int8_values(const Side& side, int begin, int n, int head, Prefetcher& prefetcher);
  void add_int8_sums();
  // Puts output columns, which stand as the values' products leave them, in the order of the head.
  void order_values(float* o, long long states) const;
  void multiply_values(const KvTile& tile, int first_state, Prefetcher& prefetcher, int prefetch_lines);
  // Half of what a slice reads is fetched beside its products, beside every other word of a panel: packing fetches the
  // other half.
  int fetched_lines() const { return !b_.streamed ? 0 : args_.kv_element == Element::int4 ? 1 : 2; }
  unsigned stored_offset() const { return args_.kv_element == Element::int4 ? 8 : 128; }
  void score(const KvTile& tile, int first_state, int num_states);
  // Of a head's first state.
  float* query_of(int h) const { return b_.query + static_cast<long long>(h) * b_.group_rows * args_.head_dim_qk; }
  // Probabilities as the values' products take them, from a state's token on.
  const float* probs_at(long long state, int token) const {
    const long long at = state * b_.ld_scores + token;
    return args_.compute_bf16 ? reinterpret_cast<const float*>(b_.probs + at) : b_.scores + at;
  }
  float prob(long long state, int token) const {
    const long long at = state * b_.ld_scores + token;
    if (!args_.compute_bf16) return b_.scores[at];
    const unsigned bits = static_cast<unsigned>(b_.probs[at]) << 16;
    float p;
    __builtin_memcpy(&p, &bits, sizeof p);
    return p;
  }
  float* scores_of(int h) const { return b_.scores + (b_.direct ? h * b_.group_rows * b_.ld_scores : 0); }
  void finish();

  bool must_contain() const;
  bool contains(const KvTile& tile) const { return containing_ && tile.boundary; }
  void find_non_finite(const KvTile& tile, int stage, int heads);
  // As of side, for the products with values.
  Side contained(const Source& source, const Slice& slice);
  void add_non_finite(const KvTile& tile, int stage, int head);
  float load_value(const Source& source, const Slice& token, float* value);

  TileCursor tiles() const { return {args_, list_, b_.seen, num_rows_, item_.kv_begin, end_, b_.tokens}; }

  const AttendArgs& args_;
  const PlanHeader& plan_;
  const WorkItem& item_;
  const Unit& unit_;
  const PageList& list_;
  const PlanRow* rows_;
  int num_rows_, end_ = 0;
  bool containing_ = false;
  Buffers b_;
  const Loader& stored_;       // reads the cache
  const Loader& transformed_;  // reads what a hook made, in fp32
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
