// Products of an item with integer keys and values.
#include "attention/cpu/kernels/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// A loaded query of one head.
void Item::split_queries(const float* query, int first_state) {
  if constexpr (kHasByteDot) {
    const int dim = args_.head_dim_qk, padded = round_up(dim, kLanes);
    for (int i = 0; i < b_.group_rows; ++i) {
      const int state = first_state + i;
      for (int d = dim; d < padded; ++d) b_.vector_scratch[d] = 0;
      order_query(query + static_cast<long long>(i) * dim, dim, args_.kv_element, b_.vector_scratch);
      split_int8(b_.vector_scratch, padded, nullptr, most_split(dim), b_.query_split + state * kSplitLd,
                 b_.query_scales[state], b_.query_sums[state]);
    }
  }
}

// Scores of a head, scaled by what its tokens are.
void Item::multiply_int8_keys(const Side& side, int begin, int n, int head, Prefetcher& prefetcher) {
  if constexpr (kHasByteDot) {
    const int dim = args_.head_dim_qk, padded = round_up(n, kColumnStep);
    const long long first_state = static_cast<long long>(head) * b_.group_rows;
    auto* packed = reinterpret_cast<unsigned*>(b_.keys);
    pack_int8_keys(args_.kv_element, side.rows + begin, side.offset, padded, dim, packed, prefetcher);
    multiply_int8(
        {.a = b_.query_split + first_state * kSplitLd,
         .sums = b_.query_sums + first_state,
         .scales = b_.query_scales + first_state,
         .b = packed,
         .stride = panel_stride(dim / 4),
         .words = dim / 4,
         .offset = stored_offset(),
         .column_scales = args_.scaling == Scaling::token ? keys().scales_of(head, b_.tokens) + begin : nullptr,
         .c = scores_of(head) + begin,
         .ldc = b_.ld_scores,
         .alpha = nullptr,
         .c_sums = nullptr,
         .rows = b_.group_rows,
         .panels = padded / kPanel,
         .lines = fetched_lines()},
        prefetcher);
  }
}

// Probabilities of a head, times what its tokens are scaled by.
void Item::split_probs(const KvTile& tile, int head) {
  if constexpr (kHasByteDot) {
    const int padded = round_up(tile.n, kColumnStep);
    const float* factors = args_.scaling == Scaling::token ? values().scales_of(head, b_.tokens) : nullptr;
    for (int i = 0; i < b_.group_rows; ++i) {
      const long long state = static_cast<long long>(head) * b_.group_rows + i;
      split_int8(scores_of(head) + i * b_.ld_scores, padded, factors, kMostSplit, b_.prob_split + state * kSplitLd,
                 b_.prob_scales[state], b_.prob_sums[state]);
    }
  }
}

// Packed: the output of a head, from all tokens of a tile. Direct: its sums, which add_int8_sums shall add.
void Item::multiply_int8_values(const Side& side, int begin, int n, int head, Prefetcher& prefetcher) {
  if constexpr (kHasByteDot) {
    const int words = round_up(n, kColumnStep) / 4;
    const long long first_state = static_cast<long long>(head) * b_.group_rows;
    auto* packed = reinterpret_cast<unsigned*>(b_.values);
    pack_int8_values(args_.kv_element, side.rows + begin, side.offset, 4 * words, args_.head_dim_vo, packed,
                     prefetcher);
    multiply_int8({.a = b_.prob_split + first_state * kSplitLd + begin / 4,
                   .sums = b_.prob_sums + first_state,
                   .scales = b_.prob_scales + first_state,
                   .b = packed,
                   .stride = panel_stride(words),
                   .words = words,
                   .offset = stored_offset(),
                   .column_scales = nullptr,
                   .c = b_.o + first_state * b_.ld_o,
                   .ldc = b_.ld_o,
                   .alpha = b_.alpha + first_state,
                   .c_sums = b_.direct ? b_.value_sums + first_state * b_.ld_o : nullptr,
                   .rows = b_.group_rows,
                   .panels = static_cast<int>(b_.ld_o / kPanel),
                   .lines = fetched_lines()},
                  prefetcher);
  }
}

// The output of every state moves on by a tile, whose sums leave zeros behind.
void Item::add_int8_sums() {
  if constexpr (kHasByteDot) {
    for (int state = 0; state < b_.states; ++state)
      finish_int8(b_.value_sums + state * b_.ld_o, static_cast<int>(b_.ld_o),
                  static_cast<unsigned>(b_.prob_sums[state]) * stored_offset(), b_.prob_scales[state], b_.alpha[state],
                  b_.o + state * b_.ld_o);
  }
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
