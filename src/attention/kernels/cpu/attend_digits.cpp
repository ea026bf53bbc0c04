// Products of an item with integer keys and values.
#include "attention/kernels/cpu/attend.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

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

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
