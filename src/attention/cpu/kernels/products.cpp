// Products with keys and values as floats.
#include "attention/cpu/kernels/products.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// ---------------------------------------------------------------- as stored

DirectKeys::DirectKeys(Item& item, Arena& arena)
    : item_(item),
      query_(arena.allocate<float>(static_cast<long long>(item.unit.group_rows) * item.keys.dim())),
      queries_(arena.allocate<float>(item.unit.heads * head_floats())) {}

int DirectKeys::slice_tokens(const UnitView& unit) {
  const long long head_bytes = unit.args.head_dim_qk * bits_of(unit.args.kv_element) / 8;
  const int row_tiles = (unit.group_rows + kMostDirectRows - 1) / kMostDirectRows;
  const int tokens = static_cast<int>(row_tiles * kSliceBytes / head_bytes) / kSliceTokens * kSliceTokens;
  return min_of(max_of(tokens, kSliceTokens), 4 * kSliceTokens);
}

void DirectKeys::load_queries() {
  const int dim = item_.keys.dim(), words = dim / per_word(item_.unit.args);
  for (int head = 0; head < item_.unit.heads; ++head) {
    weft::attention::cpu::WEFT_ISA_NAME::load_queries(item_.states, head, query_);
    pack_direct_query(query_, words, item_.unit.group_rows, words, item_.keys.loader().halves_of_keys, dim,
                      queries_ + head * head_floats());
  }
}

void DirectKeys::multiply(const Slice& slice, Prefetcher& prefetcher) {
  const KvSource::Rows rows = item_.keys.rows(slice);
  float* scores = item_.scores.of(slice.head);
  item_.keys.loader().dot(rows.at + slice.begin, rows.offset, round_up(slice.n, kSliceTokens), prefetcher,
                          queries_ + slice.head * head_floats(), item_.unit.group_rows, item_.keys.dim(),
                          scores + slice.begin);
  if (item_.keys.scales_columns()) item_.keys.scales.multiply(slice, item_.unit.group_rows, scores, item_.scores.ld());
}

void DirectValues::prepare(const KvTile& tile, int head) {
  const int rows = item_.unit.group_rows;
  if (item_.values.scales_columns())
    item_.values.scales.multiply({tile, 0, head, 0, tile.n}, rows, item_.scores.of(head), item_.scores.ld());
  const float* alpha = item_.states.alpha + static_cast<long long>(head) * rows;
  float* o = item_.states.o_of(head);
  for (int row = 0; row < rows; ++row, o += item_.states.ld_o)
    if (alpha[row] != 1) scale_vector(o, item_.states.ld_o, alpha[row]);
}

void DirectValues::multiply(const Slice& slice, Prefetcher& prefetcher) {
  const KvSource::Rows rows = item_.non_finite.rows(slice);
  item_.values.loader().accumulate(rows.at + slice.begin, rows.offset, slice.n, prefetcher,
                                   item_.scores.probs(slice.head, slice.begin), item_.unit.group_rows,
                                   item_.values.dim(), item_.states.o_of(slice.head), item_.states.ld_o);
}

void DirectValues::order(float* o, long long rows) const {
  const ColumnOrder order = item_.values.loader().order_of_values;
  if (order == ColumnOrder::stored) return;
  for (float* panel = o; panel < o + rows * item_.states.ld_o; panel += kPanel) {
    F32 a = load(panel), b = load(panel + kLanes);
    if (order == ColumnOrder::halves)
      join_pairs(a, b);
    else
      join_fours(a, b);
    store(panel, a);
    store(panel + kLanes, b);
  }
}

// ---------------------------------------------------------------- packed

PackedKeys::PackedKeys(Item& item, Arena& arena)
    : item_(item),
      queries_(arena.allocate<float>(static_cast<long long>(item.unit.states + kRowsBeyond) * item.keys.dim())),
      panels_(arena.allocate<float>(kPanelsAtOnce * panel_stride(item.keys.dim()))) {}

void PackedKeys::load_queries() {
  for (int head = 0; head < item_.unit.heads; ++head)
    weft::attention::cpu::WEFT_ISA_NAME::load_queries(item_.states, head, queries_of(head));
}

void PackedKeys::multiply(const Slice& slice, Prefetcher& prefetcher) {
  const AttendArgs& args = item_.unit.args;
  const KvSource::Rows rows = item_.keys.rows(slice);
  const int dim = item_.keys.dim(), words = dim / per_word(args);
  float* scores = item_.scores.of(slice.head);
  const int tokens = round_up(slice.n, abi::kColumnStep);
  for (int t = 0; t < tokens; t += kPanelsAtOnce * kPanel) {
    const int n = min_of(kPanelsAtOnce * kPanel, tokens - t);
    item_.keys.loader().pack_keys(rows.at + t, rows.offset, n, dim, panels_);
    multiply_packed({.a = queries_of(slice.head),
                     .lda = words,
                     .a_stride = 0,
                     .b = panels_,
                     .stride = panel_stride(words),
                     .words = words,
                     .c = scores + t,
                     .ldc = item_.scores.ld(),
                     .alpha = nullptr,
                     .rows = item_.unit.group_rows,
                     .vectors = n / kLanes},
                    packed_words(args, dim), prefetcher);
  }
  if (item_.keys.scales_columns()) item_.keys.scales.multiply(slice, item_.unit.group_rows, scores, item_.scores.ld());
}

PackedValues::PackedValues(Item& item, Arena& arena)
    : item_(item), panels_(arena.allocate<float>(item.states.ld_o / kPanel * panel_stride(item.tokens))) {}

void PackedValues::prepare(const KvTile& tile, int head) {
  if (item_.values.scales_columns())
    item_.values.scales.multiply({tile, 0, head, 0, tile.n}, item_.unit.group_rows, item_.scores.of(head),
                                 item_.scores.ld());
}

void PackedValues::multiply(const Slice& slice, Prefetcher& prefetcher) {
  const KvSource::Rows rows = item_.non_finite.rows(slice);
  item_.values.loader().pack_values(rows.at, rows.offset, round_up(slice.n, abi::kColumnStep), item_.values.dim(),
                                    panels_);
  multiply_packed_values(item_, slice.tile, slice.head, panels_, prefetcher);
}

void multiply_packed_values(Item& item, const KvTile& tile, int head, const float* panels, Prefetcher& prefetcher) {
  const int elements = per_word(item.unit.args);
  const Words words = packed_words(item.unit.args, abi::kColumnStep);
  const States& states = item.states;
  multiply_packed(
      {.a = item.scores.probs(head, 0),
       .lda = item.scores.ld() / elements,
       .a_stride = 0,
       .b = panels,
       .stride = panel_stride(round_up(tile.n, abi::kColumnStep) / elements),
       .words = (words == Words::tiles ? round_up(tile.n, abi::kColumnStep) : tile.n + elements - 1) / elements,
       .c = states.o_of(head),
       .ldc = states.ld_o,
       .alpha = states.alpha + static_cast<long long>(head) * item.unit.group_rows,
       .rows = item.unit.group_rows,
       .vectors = static_cast<int>(states.ld_o / kLanes)},
      words, prefetcher);
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
