// A tile's scores, and the probabilities that become of them.
#include "attention/cpu/kernels/scores.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

Scores::Scores(const States& states, const Columns& columns, int heads, long long ld, Arena& arena)
    : unit_(states.unit),
      states_(states),
      columns_(columns),
      held_heads_(heads),
      ld_(ld),
      head_floats_(unit_.group_rows * ld) {
  const long long floats = heads * head_floats_;
  scores_ = arena.allocate<float>(floats);
  probs_ = unit_.args.compute == Compute::bf16 ? arena.allocate<unsigned short>(floats + kRowsBeyond * ld) : nullptr;
  visible_ = arena.allocate<unsigned char>(unit_.plan.bits_index.count > 0 ? ld : 0);
}

void Scores::to_probabilities(const KvTile& tile, int first_head, int heads) const {
  const abi::Leaf& leaf = *unit_.args.leaf;
  const int first_state = first_head * unit_.group_rows, num_states = heads * unit_.group_rows;
  float scale = static_cast<float>(unit_.args.params[0].real);
  if (leaf.score) {
    const abi::ScoreTile scores = {.params = unit_.args.params,
                                   .rows = states_.rows + first_state,
                                   .kv_positions = columns_.positions,
                                   .num_rows = num_states,
                                   .num_kv = tile.n,
                                   .kv_begin = unit_.list.first_pos + tile.begin,
                                   .scores = of(first_head),
                                   .ld = ld_};
    leaf.score(&scores);
    scale = 1;
  }
  if (mask_by_bits(tile, first_head, heads, scale)) scale = 1;
  softmax({.rows = states_.rows + first_state,
           .kv_positions = columns_.positions,
           .num_rows = num_states,
           .num_kv_padded = round_up(tile.n, abi::kColumnStep),
           .use_softmax = leaf.use_softmax,
           .boundary = tile.boundary,
           .scale = scale,
           .scores = of(first_head),
           .ld = ld_,
           .probs_bf16 = probs_ ? probs_ + held(first_head) * head_floats_ : nullptr,
           .m = states_.m + first_state,
           .l = states_.l + first_state,
           .alpha = states_.alpha + first_state});
}

// Masks what the bits of their pages do not show; each query token has a row of bits. Returns whether any page of the
// tile has bits: then the scores are scaled first, as masked ones stay what they are.
bool Scores::mask_by_bits(const KvTile& tile, int first_head, int heads, float scale) const {
  const PlanHeader& plan = unit_.plan;
  if (plan.bits_index.count == 0) return false;
  const int page_size = plan.page_size, first_page = tile.begin / page_size;
  const int last_page = (tile.begin + tile.n - 1) / page_size;
  const int* patterns = section<int>(&plan, plan.bits_index) + unit_.list.first;
  bool any = false;
  for (int page = first_page; page <= last_page; ++page) any = any || patterns[page] >= 0;
  if (!any) return false;
  const unsigned char* bits = section<unsigned char>(&plan, plan.bits);
  const long long bytes = bytes_of_bits(plan.block_rows, page_size);
  const float masked = unit_.args.leaf->use_softmax ? -__builtin_inff() : 0.f;
  for (int r = 0; r < unit_.num_rows; ++r) {
    const long long row = unit_.unit.row_begin + r - unit_.list.row_begin;
    for (int page = first_page; page <= last_page; ++page) {
      const int begin = max_of(page * page_size, tile.begin), end = min_of((page + 1) * page_size, tile.begin + tile.n);
      for (int i = begin; i < end; ++i) {
        const long long bit = row * page_size + i - page * page_size;
        visible_[i - tile.begin] =
            patterns[page] < 0 || ((bits[patterns[page] * bytes + bit / 8] >> (bit % 8)) & 1) != 0;
      }
    }
    for (int head = first_head; head < first_head + heads; ++head)
      for (int g = 0; g < unit_.args.group_size; ++g) {
        float* scores = of(head) + (r * unit_.args.group_size + g) * ld_;
        for (int i = 0; i < tile.n; ++i) scores[i] = visible_[i] ? scores[i] * scale : masked;
      }
  }
  return true;
}

float Scores::prob(int head, int row, int token) const {
  const long long at = held(head) * head_floats_ + row * ld_ + token;
  if (!probs_) return scores_[at];
  const unsigned bits = static_cast<unsigned>(probs_[at]) << 16;
  float p;
  __builtin_memcpy(&p, &bits, sizeof p);
  return p;
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
