// Draws tokens from rows of logits or probabilities on the CPU, by the rule of tile/abi/draw.h. What it does depends on
// the row and the filters; what it draws does not.
//
//   RowDraw drawer;                                          // a thread's own: it keeps its memory
//   const int32_t id = drawer.draw(row, rule_of(params), random_bits(seed, position));
//   if (drawer.keep(row, rule)) first = drawer.drawn(bits), second = drawer.drawn(others);
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "ops/kernels/draw.h"
#include "tile/abi/draw.h"
#include "weft/device.h"
#include "weft/ops.h"

namespace weft::ops {

// Throws Error(invalid_argument) for a parameter out of its range.
void check_params(std::string_view op, const SamplingParams& params);
void check_penalties(std::string_view op, const Penalties& penalties);
// Of params that were checked.
tile::DrawRule rule_of(const SamplingParams& params);
// The generator's next number. A draw at temperature 0 takes none.
inline uint64_t take_bits(const SamplingParams& params, Philox& random) {
  return params.temperature == 0.f ? 0 : tile::random_bits(random.seed, random.position++);
}
// Of a draw that was made: its number is taken.
inline void move_on(const SamplingParams& params, Philox& random) { take_bits(params, random); }

// The first of the largest logits; -1: all are -inf or NaN.
int32_t first_of_largest(std::span<const float> logits);
// What is thrown for such a row.
void check_possible(std::string_view op, bool is_possible, int64_t size);

// Throws Error(invalid_token | invalid_argument | invalid_shape) for anything of a draw that does not fit the
// vocabulary.
void check_draw(std::string_view op, const TokenDraw& draw, int64_t vocab);
tile::DrawPenalties penalties_of(const TokenDraw& draw);
// What it changes but for its mask, one of a token.
std::vector<tile::LogitChange> changes_of(const TokenDraw& draw);
void change_logits(std::span<float> logits, const TokenDraw& draw);

class RowDraw {
 public:
  // The id, after the row's changes; -1 where then each logit is -inf or NaN.
  int32_t draw(std::span<const float> row, const TokenDraw& how);
  // The id; -1 where each logit is -inf or NaN, or a row of probabilities has no mass, NaN or inf.
  int32_t draw(std::span<const float> row, const tile::DrawRule& rule, uint64_t bits);
  // For many calls of drawn() while the row stays as it is. False where draw() gives -1. The rule is not greedy.
  bool keep(std::span<const float> row, const tile::DrawRule& rule);
  int32_t drawn(uint64_t bits) const;
  // The ids of the k largest logits in their order; fewer where fewer are above -inf. Beside inf only its equals.
  std::span<const int32_t> largest(std::span<const float> row, int k);
  // The largest logit, which is above -inf. Throws otherwise.
  float possible_largest(std::string_view op, std::span<const float> row);
  // log of the sum of e^(logit - largest), to 1e-6; `largest` is above -inf.
  double log_sum(std::span<const float> row, float largest) const;

 private:
  struct Candidate {
    int32_t id;
    float logit;
    int weight;
  };
  // The last token that filters keep, in the order of tokens.
  struct Last {
    float logit;
    int32_t id;
  };
  // Returns whether there is a NaN.
  bool find_largest(std::span<const float> row);
  size_t num_blocks() const { return block_largest_.size(); }
  bool is_few(int k) const;
  void collect_largest(std::span<const float> row, int k);
  void order_candidates(size_t count, bool keeps_ties);
  void keep_candidates(size_t count, bool keeps_ties);
  void keep_few(const tile::DrawRule& rule);
  void keep_of_all(const tile::DrawRule& rule);
  uint64_t weigh_all();
  Last last_within(uint64_t wanted, bool counts, int num_bins, bool keeps_ties);
  int bins_of_share(bool of_probabilities, uint64_t total, uint64_t wanted) const;
  uint64_t sum_kept();
  bool is_kept(size_t i) const;

  std::vector<float> changed_;
  // Of the row at hand.
  std::span<const float> row_ = {};
  const DrawTable::Weighing* weighing_ = nullptr;
  float largest_ = 0.f, scale_ = 0.f;
  // What is kept: candidates, or tokens up to the last one with such a weight, and what they weigh together.
  bool are_few_ = false;
  Last last_ = {};
  int least_weight_ = 1;
  uint64_t kept_weight_ = 0;

  std::vector<float> block_largest_, ordered_largest_;
  std::vector<int> weights_;
  std::vector<unsigned long long> block_sums_, bins_;  // when tokens are kept, sums are of the blocks up to each
  std::vector<int32_t> ids_;
  std::vector<Candidate> candidates_;
};

// Token i from row_of(i), of `vocab` logits, by how[i]; rows over the team.
void draw_rows(const std::function<std::span<const float>(size_t row)>& row_of, std::span<const TokenDraw> how,
               int64_t vocab, WorkerTeam& team, std::span<int32_t> ids);
// sample_probabilities, of arguments that were checked.
void draw_from_probabilities(const ProbabilityDraws& call, WorkerTeam& team);

}  // namespace weft::ops
