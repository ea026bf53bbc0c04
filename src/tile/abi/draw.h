// How a token is drawn from a row of logits, in integers: whatever the order of their sums, every device draws the same
// id. For host and kernel alike.
//
//   weight of a logit:  2^30 e^((logit - largest) / temperature), rounded to an integer (tile/draw.h); 0 below e^-20.75
//   of a probability:   2^30 probability / largest, rounded to an integer; 0 below 2^-30 of the largest
//   order of tokens:    those with a weight, the largest logit first, the least id of equals first
//   kept:               the first top_k; of them the shortest beginning with top_p of the weight; of it min_p's
//   drawn:              the first id, in order of ids, up to which the kept ids' weight is more than a random number
//                       below the weight of all that are kept
#pragma once

namespace weft::tile {

inline constexpr int kLargestWeight = 1 << 30;
inline constexpr unsigned long long kWholeShare = 1ull << 32;

// What the filters of SamplingParams or ProbabilityFilters say, as a draw takes them.
struct DrawRule {
  float scale = 0.f;                       // 1 / temperature; 0: greedy. Of probabilities: any other
  int top_k = 0;                           // 0: off
  unsigned long long share = kWholeShare;  // top_p * 2^32; 2^32: off
  int least_weight = 1;                    // min_p * 2^30, rounded up; 1: off
  float least_share = 0.f;                 // of the largest probability, which other tokens have at least; 0: off
  bool joint = false;                      // top_p is a share of all tokens, else of those that top_k keeps
  bool keeps_ties = false;                 // with the last token that a filter keeps all that equal it
  bool of_probabilities = false;           // the row holds them, and not logits

  constexpr bool is_greedy() const { return scale == 0.f; }
  constexpr bool has_share() const { return share < kWholeShare; }
  constexpr bool keeps_all() const { return top_k == 0 && !has_share() && least_weight <= 1 && least_share <= 0.f; }
};

// What changes a row's logits before a token is drawn: first the penalties of what was said, then a bias.
struct DrawPenalties {
  float repetition = 1.f, presence = 0.f, frequency = 0.f;
};
// Of one token. A row has one of a token at most.
struct LogitChange {
  int id;
  int count;   // in the output: presence, and frequency as many times
  bool seen;   // in prompt or output: repetition
  float bias;  // -inf rules it out
};

// The least weight that is `share` of `total`, which is below 2^50; at least 1.
constexpr unsigned long long weight_of_share(unsigned long long total, unsigned long long share) {
  const unsigned long long low = (total & 0xffffffffu) * share, high = (total >> 32) * share;
  const unsigned long long weight = high + (low >> 32) + ((low & 0xffffffffu) != 0 ? 1 : 0);
  return weight > 0 ? weight : 1;
}

// What a probability is multiplied by to be a share of the largest one.
constexpr float scale_of_shares(float largest) {
  constexpr float kMost = 3.402823466e38f;
  const float scale = 1.f / largest;
  return scale < kMost ? scale : kMost;
}
// What a probability of 1 weighs, at most 2^49.
constexpr unsigned long long weight_of_one(float scale) {
  return scale < 0x1p19f ? static_cast<unsigned long long>(scale * static_cast<float>(kLargestWeight)) : 1ull << 49;
}
// The filters of a row of probabilities; top_p of 1 and more, and top_k outside of 1 to columns - 1, are off.
constexpr DrawRule rule_of_probabilities(int top_k, float top_p, float min_p, bool joint, int columns) {
  DrawRule rule;
  rule.scale = 1.f;
  rule.top_k = top_k > 0 && top_k < columns ? top_k : 0;
  if (top_p < 1.f) rule.share = top_p > 0.f ? static_cast<unsigned long long>(top_p * 0x1p32f) : 0;
  rule.least_share = min_p > 1.f ? 1.f : min_p;  // the largest is always kept
  rule.joint = joint;
  rule.keeps_ties = rule.of_probabilities = true;
  return rule;
}

// Philox4x32-10 (Salmon et al., Parallel random numbers: as easy as 1, 2, 3, 2011): a block of 128 bits.
struct PhiloxBlock {
  unsigned word[4];
};
constexpr PhiloxBlock philox(PhiloxBlock counter, unsigned key0, unsigned key1) {
  for (int round = 0; round < 10; ++round) {
    const unsigned long long a = 0xd2511f53ull * counter.word[0], b = 0xcd9e8d57ull * counter.word[2];
    counter = {{static_cast<unsigned>(b >> 32) ^ counter.word[1] ^ key0, static_cast<unsigned>(b),
                static_cast<unsigned>(a >> 32) ^ counter.word[3] ^ key1, static_cast<unsigned>(a)}};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return counter;
}
// Number `position` of the seed's: the seed is the key, the position the counter, and the block's first 64 bits count.
constexpr unsigned long long random_bits(unsigned long long seed, unsigned long long position) {
  const PhiloxBlock block = philox({{static_cast<unsigned>(position), static_cast<unsigned>(position >> 32), 0, 0}},
                                   static_cast<unsigned>(seed), static_cast<unsigned>(seed >> 32));
  return static_cast<unsigned long long>(block.word[1]) << 32 | block.word[0];
}

// floor(bits / 2^64 * total): below total, which is below 2^50, each number as often as any other to one part in 2^14.
constexpr unsigned long long scaled_below(unsigned long long bits, unsigned long long total) {
  const unsigned long long low = (bits & 0xffffffffu) * (total & 0xffffffffu);
  const unsigned long long cross = (bits >> 32) * (total & 0xffffffffu) + (low >> 32);
  const unsigned long long other = (bits & 0xffffffffu) * (total >> 32) + (cross & 0xffffffffu);
  return (bits >> 32) * (total >> 32) + (cross >> 32) + (other >> 32);
}

}  // namespace weft::tile
