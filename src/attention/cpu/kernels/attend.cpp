// One work item: its rows against its keys, tile by tile, one pass over K and V for the whole head group.
#include "attention/cpu/kernels/attend.h"

#include "attention/cpu/kernels/output.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Rows and empty states of these KV heads.
void Item::start(int first_head, int heads) {
  const int* qo_len = section<int>(args_.plan, plan_.qo_len);
  const int* kv_len = section<int>(args_.plan, plan_.kv_len);
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
void Item::load_query(int head, const abi::VectorRow* vectors, float* queries) {
  const int dim = args_.head_dim_qk, group = args_.group_size;
  for (int r = 0; r < num_rows_; ++r)
    for (int g = 0; g < group; ++g, ++vectors) {
      float* query = queries + static_cast<long long>(r * group + g) * dim;
      float* converted = args_.leaf->query ? b_.vector_scratch : query;
      convert_to_f32(args_.q.data + rows_[r].q_row * args_.q.row_stride + (head * group + g) * args_.q.head_stride,
                     args_.q.element, dim, converted);
      if (!args_.leaf->query) continue;
      const auto* from = reinterpret_cast<const char*>(converted);
      const abi::VectorTile tile = {args_.params, vectors, 1, dim, &from, 0, query, dim};
      args_.leaf->query(&tile);
    }
  if (args_.scaling == Scaling::head && !args_.leaf->key)
    scale_vector(queries, static_cast<long long>(b_.group_rows) * dim, head_scale(args_.k_scale, head));
  if (args_.compute_bf16)  // in place: a narrow row ends before the next wide one begins
    for (long long r = 0; r < b_.group_rows; ++r)
      round_to_bf16(queries + r * dim, dim, reinterpret_cast<unsigned short*>(queries + r * dim / 2));
}

// Hides what the bits of their pages do not show; each query token has a row of bits. Returns whether any page of the
// tile has bits: then the scores are scaled first, as hidden ones stay what they are.
bool Item::hide_by_bits(const KvTile& tile, int num_states, float scale) {
  if (plan_.bits_index.count == 0) return false;
  const int page_size = plan_.page_size, first_page = tile.begin / page_size;
  const int last_page = (tile.begin + tile.n - 1) / page_size;
  const int* patterns = section<int>(args_.plan, plan_.bits_index) + list_.first;
  bool any = false;
  for (int page = first_page; page <= last_page; ++page) any = any || patterns[page] >= 0;
  if (!any) return false;
  const unsigned char* bits = section<unsigned char>(args_.plan, plan_.bits);
  const long long bytes = bytes_of_bits(plan_.block_rows, page_size);
  const float hidden = args_.leaf->use_softmax ? -__builtin_inff() : 0.f;
  for (int r = 0; r < num_rows_; ++r) {
    const long long row = unit_.row_begin + r - list_.row_begin;
    for (int page = first_page; page <= last_page; ++page) {
      const int begin = max_of(page * page_size, tile.begin), end = min_of((page + 1) * page_size, tile.begin + tile.n);
      for (int i = begin; i < end; ++i) {
        const long long bit = row * page_size + i - page * page_size;
        b_.visible[i - tile.begin] =
            patterns[page] < 0 || ((bits[patterns[page] * bytes + bit / 8] >> (bit % 8)) & 1) != 0;
      }
    }
    for (int first = 0; first < num_states; first += b_.group_rows)
      for (int g = 0; g < args_.group_size; ++g) {
        float* scores = b_.scores + (first + r * args_.group_size + g) * b_.ld_scores;
        for (int i = 0; i < tile.n; ++i) scores[i] = b_.visible[i] ? scores[i] * scale : hidden;
      }
  }
  return true;
}

// Scores of these states become probabilities; m, l and alpha move on.
void Item::score(const KvTile& tile, int first_state, int num_states) {
  const abi::Leaf& leaf = *args_.leaf;
  const int padded = round_up(tile.n, kColumnStep), begin = list_.first_pos + tile.begin;
  float scale = leaf.score ? 1.f : static_cast<float>(args_.params[0].real);
  if (leaf.score) {
    const abi::ScoreTile scores = {.params = args_.params,
                                   .rows = b_.rows + first_state,
                                   .kv_positions = b_.positions,
                                   .num_rows = num_states,
                                   .num_kv = tile.n,
                                   .kv_begin = begin,
                                   .scores = b_.scores,
                                   .ld = b_.ld_scores};
    leaf.score(&scores);
  }
  if (hide_by_bits(tile, num_states, scale)) scale = 1;
  softmax({.rows = b_.rows + first_state,
           .kv_positions = b_.positions,
           .num_rows = num_states,
           .num_kv_padded = padded,
           .use_softmax = leaf.use_softmax,
           .boundary = tile.boundary,
           .scale = scale,
           .scores = b_.scores,
           .ld = b_.ld_scores,
           .probs_bf16 = b_.probs,
           .m = b_.m + first_state,
           .l = b_.l + first_state,
           .alpha = b_.alpha + first_state});
}

void Item::order_values(float* o, long long states) const {
  const ColumnOrder order = loader_of(values()).order_of_values;
  if (b_.direct && !b_.int8_values && order != ColumnOrder::stored)
    for (float* panel = o; panel < o + states * b_.ld_o; panel += kPanel) {
      F32 a = load(panel), b = load(panel + kLanes);
      if (order == ColumnOrder::halves)
        join_pairs(a, b);
      else
        join_fours(a, b);
      store(panel, a);
      store(panel + kLanes, b);
    }
  if constexpr (kHasByteDot)
    if (b_.int8_values) order_int8_values(args_.kv_element, args_.head_dim_vo, o, b_.ld_o, static_cast<int>(states));
}

// States leave for the output, or for the item's partial.
void Item::finish() {
  const int dim = args_.head_dim_vo, group = args_.group_size;
  const int first_head = unit_.kv_head_begin, heads = unit_.kv_head_end - first_head;
  order_values(b_.o, b_.states);
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
  const Partial& partial = section<Partial>(args_.plan, plan_.partials)[item_.partial];
  const long long unit_heads = static_cast<long long>(unit_.kv_head_end - unit_.kv_head_begin) * group;
  float* data = section<float>(args_.plan, plan_.partial_data) + partial.offset;
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
