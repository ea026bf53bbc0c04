// Products with integer keys and values.
#include "attention/cpu/kernels/int8_products.h"

#if defined(WEFT_HAS_BYTE_DOT)

namespace weft::attention::cpu::WEFT_ISA_NAME {
namespace {

SplitRows allocate_split(long long rows, Arena& arena) {
  return {arena.allocate<unsigned>(rows * kSplitLd), arena.allocate<float>(rows), arena.allocate<int>(rows)};
}

}  // namespace

Int8Keys::Int8Keys(Item& item, Arena& arena)
    : item_(item),
      query_(arena.allocate<float>(static_cast<long long>(item.unit.group_rows) * item.keys.dim())),
      split_(allocate_split(item.unit.states, arena)),
      panels_(arena.allocate<unsigned>(item.tokens / kPanel * panel_stride(item.keys.dim() / 4))) {}

void Int8Keys::load_queries() {
  const int dim = item_.keys.dim(), padded = round_up(dim, kLanes), rows = item_.unit.group_rows;
  float* ordered = item_.states.vector_scratch;
  for (int head = 0; head < item_.unit.heads; ++head) {
    weft::attention::cpu::WEFT_ISA_NAME::load_queries(item_.states, head, query_);
    for (int row = 0; row < rows; ++row) {
      for (int d = dim; d < padded; ++d) ordered[d] = 0;
      order_query(query_ + static_cast<long long>(row) * dim, dim, item_.unit.args.kv_element, ordered);
      split_int8(ordered, padded, nullptr, most_split(dim), split_.at(static_cast<long long>(head) * rows + row));
    }
  }
}

void Int8Keys::multiply(const Slice& slice, Prefetcher& prefetcher) {
  const KvSource::Rows rows = item_.keys.rows(slice);
  const Element element = item_.unit.args.kv_element;
  const int dim = item_.keys.dim(), padded = round_up(slice.n, abi::kColumnStep);
  pack_int8_keys(element, rows.at + slice.begin, rows.offset, padded, dim, panels_, prefetcher);
  const TokenScales& scales = item_.keys.scales;
  multiply_int8_keys({.a = split_.at(static_cast<long long>(slice.head) * item_.unit.group_rows),
                      .b = panels_,
                      .stride = panel_stride(dim / 4),
                      .words = dim / 4,
                      .element = element,
                      .rows = item_.unit.group_rows,
                      .panels = padded / kPanel},
                     scales ? scales.of(slice.head) + slice.begin : nullptr, item_.scores.of(slice.head) + slice.begin,
                     item_.scores.ld(), prefetcher);
}

Int8Values::Int8Values(Item& item, Arena& arena)
    : item_(item),
      split_(allocate_split(item.unit.states, arena)),
      sums_(arena.allocate<int>(item.scores.held_heads() * item.unit.group_rows * item.states.ld_o)),
      panels_(arena.allocate<unsigned>(item.states.ld_o / kPanel * panel_stride(item.tokens / 4))) {}

int* Int8Values::sums_of(int head) const {
  return sums_ + item_.scores.held(head) * item_.unit.group_rows * item_.states.ld_o;
}

// Probabilities times what their values are scaled by, split; sums start at zero.
void Int8Values::prepare(const KvTile& tile, int head) {
  const int rows = item_.unit.group_rows, padded = round_up(tile.n, abi::kColumnStep);
  const float* scores = item_.scores.of(head);
  const float* factors = item_.values.scales ? item_.values.scales.of(head) : nullptr;
  for (int row = 0; row < rows; ++row)
    split_int8(scores + row * item_.scores.ld(), padded, factors, kMostSplit,
               split_.at(static_cast<long long>(head) * rows + row));
  __builtin_memset(sums_of(head), 0, static_cast<unsigned long>(rows * item_.states.ld_o) * sizeof(int));
}

void Int8Values::multiply(const Slice& slice, Prefetcher& prefetcher) {
  const KvSource::Rows rows = item_.non_finite.rows(slice);
  const Element element = item_.unit.args.kv_element;
  const int words = round_up(slice.n, abi::kColumnStep) / 4;
  pack_int8_values(element, rows.at + slice.begin, rows.offset, 4 * words, item_.values.dim(), panels_, prefetcher);
  multiply_int8_values({.a = split_.at(static_cast<long long>(slice.head) * item_.unit.group_rows, slice.begin / 4),
                        .b = panels_,
                        .stride = panel_stride(words),
                        .words = words,
                        .element = element,
                        .rows = item_.unit.group_rows,
                        .panels = static_cast<int>(item_.states.ld_o / kPanel)},
                       sums_of(slice.head), item_.states.ld_o, prefetcher);
}

void Int8Values::finish(int head) {
  const long long ld = item_.states.ld_o, first = static_cast<long long>(head) * item_.unit.group_rows;
  for (int row = 0; row < item_.unit.group_rows; ++row)
    add_int8_sums(sums_of(head) + row * ld, static_cast<int>(ld), split_.at(first + row), item_.unit.args.kv_element,
                  item_.states.alpha[first + row], item_.states.o_of(head) + row * ld);
}

void Int8Values::order(float* o, long long rows) const {
  order_int8_values(item_.unit.args.kv_element, item_.values.dim(), o, item_.states.ld_o, static_cast<int>(rows));
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME

#endif
