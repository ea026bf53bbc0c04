#include "ops/draw.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <unordered_map>

#include "base/check.h"
#include "ops/elementwise.h"

namespace weft::ops {
namespace {

constexpr size_t kBlock = DrawTable::kBlock;

const DrawTable& loops() {
  switch (current_isa()) {
    WEFT_RETURN_PER_ISA(draw_loops)
    default: throw InternalError("an instruction set without loops over logits");
  }
}

long long length(std::span<const float> row) { return static_cast<long long>(row.size()); }
size_t blocks_of(std::span<const float> row) { return (row.size() + kBlock - 1) / kBlock; }

uint64_t sum_of(std::span<const unsigned long long> sums) {
  uint64_t total = 0;
  for (const unsigned long long sum : sums) total += sum;
  return total;
}

}  // namespace

void check_params(std::string_view op, const SamplingParams& params) {
  check(params.temperature >= 0.f && std::isfinite(params.temperature), ErrorCode::invalid_argument,
        "{}: temperature = {}; 0 (greedy) or a positive number is needed", op, params.temperature);
  check(params.top_k >= 0, ErrorCode::invalid_argument, "{}: top_k = {}; 0 (off) or more is needed", op, params.top_k);
  check(params.top_p > 0.f && params.top_p <= 1.f, ErrorCode::invalid_argument,
        "{}: top_p = {}; above 0 and at most 1 (off) is needed", op, params.top_p);
  check(params.min_p >= 0.f && params.min_p <= 1.f, ErrorCode::invalid_argument,
        "{}: min_p = {}; 0 (off) to 1 is needed", op, params.min_p);
  check(params.filter_order <= FilterOrder::joint, ErrorCode::invalid_argument,
        "{}: filter_order = {}; FilterOrder::top_k_first or joint is needed", op,
        static_cast<int>(params.filter_order));
}

tile::DrawRule rule_of(const SamplingParams& params) {
  constexpr float kColdest = 1e-30f;  // 1 / temperature stays finite
  tile::DrawRule rule;
  rule.scale = params.temperature == 0.f ? 0.f : 1.f / std::max(params.temperature, kColdest);
  rule.top_k = params.top_k;
  rule.share = static_cast<uint64_t>(static_cast<double>(params.top_p) * 0x1p32);
  rule.least_weight =
      std::max(1, static_cast<int>(std::ceil(static_cast<double>(params.min_p) * tile::kLargestWeight)));
  rule.joint = params.filter_order == FilterOrder::joint;
  return rule;
}

void check_possible(std::string_view op, bool is_possible, int64_t size) {
  check(is_possible, ErrorCode::invalid_argument,
        "{}: each of the {} logits is -inf or NaN; leave a token possible, or see to the model and its input", op,
        size);
}

namespace {

constexpr size_t kWordBits = 32;

void check_token(std::string_view op, std::string_view of, int32_t id, int64_t vocab) {
  check(id >= 0 && id < vocab, ErrorCode::invalid_token, "{}: {} token {}; allowed are 0 to {}", op, of, id, vocab - 1);
}

bool penalises(const Penalties& p) { return p.repetition != 1.f || p.presence != 0.f || p.frequency != 0.f; }

}  // namespace

void check_penalties(std::string_view op, const Penalties& penalties) {
  check(penalties.repetition > 0.f && std::isfinite(penalties.repetition), ErrorCode::invalid_argument,
        "{}: repetition = {}; a number above 0 is needed, 1 is off", op, penalties.repetition);
  check(std::isfinite(penalties.presence) && std::isfinite(penalties.frequency), ErrorCode::invalid_argument,
        "{}: presence = {}, frequency = {}; finite numbers are needed, 0 is off", op, penalties.presence,
        penalties.frequency);
}

void check_draw(std::string_view op, const TokenDraw& draw, int64_t vocab) {
  check_params(op, draw.params);
  check_penalties(op, draw.penalties);
  for (const int32_t id : draw.prompt) check_token(op, "the prompt's", id, vocab);
  for (const int32_t id : draw.output) check_token(op, "the output's", id, vocab);
  for (const int32_t id : draw.ruled_out) check_token(op, "ruled out", id, vocab);
  for (const auto& [id, bias] : draw.bias) {
    check_token(op, "biased", id, vocab);
    check(!std::isnan(bias) && bias != INFINITY, ErrorCode::invalid_argument,
          "{}: bias of token {} is {}; a finite number or -inf is needed", op, id, bias);
  }
  const size_t words = (static_cast<size_t>(vocab) + kWordBits - 1) / kWordBits;
  check(draw.mask.empty() || draw.mask.size() == words, ErrorCode::invalid_shape,
        "{}: mask has {} words for {} logits; {} are needed, a bit a token", op, draw.mask.size(), vocab, words);
}

tile::DrawPenalties penalties_of(const TokenDraw& draw) {
  return {draw.penalties.repetition, draw.penalties.presence, draw.penalties.frequency};
}

std::vector<tile::LogitChange> changes_of(const TokenDraw& draw) {
  std::vector<tile::LogitChange> changes;
  std::unordered_map<int32_t, size_t> found;
  const auto of = [&](int32_t id) -> tile::LogitChange& {
    const auto [at, is_new] = found.try_emplace(id, changes.size());
    if (is_new) changes.push_back({.id = id, .count = 0, .seen = false, .bias = 0.f});
    return changes[at->second];
  };
  if (penalises(draw.penalties)) {
    if (draw.penalties.repetition != 1.f)
      for (const int32_t id : draw.prompt) of(id).seen = true;
    for (const int32_t id : draw.output) {
      tile::LogitChange& change = of(id);
      change.seen = true;
      ++change.count;
    }
  }
  for (const auto& [id, bias] : draw.bias) of(id).bias += bias;
  for (const int32_t id : draw.ruled_out) of(id).bias = -INFINITY;
  return changes;
}

void change_logits(std::span<float> logits, const TokenDraw& draw) {
  const std::vector<tile::LogitChange> changes = changes_of(draw);
  loops().change(logits.data(), penalties_of(draw), changes.data(), static_cast<long long>(changes.size()));
  if (draw.mask.empty()) return;
  for (size_t i = 0; i < logits.size(); ++i)
    if ((draw.mask[i / kWordBits] >> (i % kWordBits) & 1u) == 0) logits[i] = -INFINITY;
}

int32_t RowDraw::draw(std::span<const float> row, const TokenDraw& how) {
  Philox random = how.random;
  const uint64_t bits = take_bits(how.params, random);
  const tile::DrawRule rule = rule_of(how.params);
  if (!penalises(how.penalties) && how.bias.empty() && how.ruled_out.empty() && how.mask.empty())
    return draw(row, rule, bits);
  changed_.assign(row.begin(), row.end());
  change_logits(changed_, how);
  return draw(changed_, rule, bits);
}

int32_t first_of_largest(std::span<const float> logits) { return RowDraw().draw(logits, {}, 0); }

bool RowDraw::find_largest(std::span<const float> row) {
  row_ = row;
  block_largest_.resize(blocks_of(row));
  const bool has_nan = loops().largest_of_blocks(row.data(), length(row), block_largest_.data());
  largest_ = -INFINITY;
  for (const float of_block : block_largest_) largest_ = std::max(largest_, of_block);
  return has_nan;
}

float RowDraw::possible_largest(std::string_view op, std::span<const float> row) {
  find_largest(row);
  check_possible(op, largest_ > -INFINITY, length(row));
  return largest_;
}

double RowDraw::log_sum(std::span<const float> row, float largest) const {
  if (largest == INFINITY) return std::log(static_cast<double>(std::ranges::count(row, INFINITY)));
  return std::log(loops().sum_of_exp(row.data(), length(row), largest));
}

int32_t RowDraw::draw(std::span<const float> row, const tile::DrawRule& rule, uint64_t bits) {
  if (!rule.is_greedy()) return keep(row, rule) ? drawn(bits) : -1;
  find_largest(row);
  if (!(largest_ > -INFINITY)) return -1;
  const auto block = static_cast<size_t>(std::ranges::find(block_largest_, largest_) - block_largest_.begin());
  const std::span<const float> rest = row.subspan(block * kBlock);
  return static_cast<int32_t>(static_cast<long long>(block * kBlock) +
                              loops().first_equal(rest.data(), length(rest), largest_));
}

bool RowDraw::keep(std::span<const float> row, const tile::DrawRule& rule) {
  const bool has_nan = find_largest(row);
  if (rule.of_probabilities) {
    if (has_nan || !(largest_ > 0.f) || largest_ == INFINITY) return false;
    weighing_ = &loops().probabilities;
    scale_ = tile::scale_of_shares(largest_);
  } else {
    if (!(largest_ > -INFINITY)) return false;
    weighing_ = &loops().logits;
    scale_ = rule.scale;
  }
  are_few_ = rule.top_k > 0 && is_few(rule.top_k);
  if (are_few_)
    keep_few(rule);
  else
    keep_of_all(rule);
  return true;
}

int32_t RowDraw::drawn(uint64_t bits) const {
  uint64_t left = tile::scaled_below(bits, kept_weight_);
  if (are_few_) {
    for (const Candidate& c : candidates_) {
      if (left < static_cast<uint64_t>(c.weight)) return c.id;
      left -= static_cast<uint64_t>(c.weight);
    }
    throw InternalError("a number that is not below the weight of all tokens");
  }
  const auto block = static_cast<size_t>(std::ranges::upper_bound(block_sums_, left) - block_sums_.begin());
  if (block > 0) left -= block_sums_[block - 1];
  for (size_t i = block * kBlock;; ++i) {
    if (!is_kept(i)) continue;
    if (left < static_cast<uint64_t>(weights_[i])) return static_cast<int32_t>(i);
    left -= static_cast<uint64_t>(weights_[i]);
  }
}

// ---------------------------------------------------------------- the largest k, found by the largest of blocks

// As many blocks have a logit that is at least the k-th largest of theirs: there are k such tokens, and not many more
// while k is below half of the blocks. Short rows are collected whole.
bool RowDraw::is_few(int k) const {
  constexpr size_t kShort = 1024;
  return row_.size() <= kShort || static_cast<size_t>(k) <= num_blocks() / 2;
}

// The k largest logits, and whatever else it takes to be sure of them.
void RowDraw::collect_largest(std::span<const float> row, int k) {
  float least = -INFINITY;
  if (static_cast<size_t>(k) <= num_blocks()) {
    ordered_largest_ = block_largest_;
    const auto kth = ordered_largest_.begin() + (k - 1);
    std::nth_element(ordered_largest_.begin(), kth, ordered_largest_.end(), std::greater());
    least = *kth;
  }
  candidates_.clear();
  ids_.resize(kBlock);
  for (size_t block = 0; block < num_blocks(); ++block) {
    if (block_largest_[block] < least) continue;
    const auto first = static_cast<int32_t>(block * kBlock);
    const std::span<const float> logits = row.subspan(block * kBlock, std::min(kBlock, row.size() - block * kBlock));
    const long long count = loops().select(logits.data(), length(logits), least, ids_.data());
    for (const int32_t i : std::span(ids_).first(static_cast<size_t>(count)))
      candidates_.push_back({first + i, logits[static_cast<size_t>(i)], 0});
  }
}

// The first `count` in the order of tokens, with ties of the last one where these are kept; the others go.
void RowDraw::order_candidates(size_t count, bool keeps_ties) {
  const auto is_before = [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  if (count < candidates_.size()) {
    const auto end = candidates_.begin() + static_cast<std::ptrdiff_t>(count);
    std::nth_element(candidates_.begin(), end - 1, candidates_.end(), is_before);
    const float last = (end - 1)->logit;
    const auto ties = [&](const Candidate& c) { return keeps_ties && c.logit == last; };
    candidates_.erase(std::partition(end, candidates_.end(), ties), candidates_.end());
  }
  std::sort(candidates_.begin(), candidates_.end(), is_before);
}

// The same of candidates in order.
void RowDraw::keep_candidates(size_t count, bool keeps_ties) {
  while (keeps_ties && count < candidates_.size() && candidates_[count].logit == candidates_[count - 1].logit) ++count;
  candidates_.resize(count);
}

std::span<const int32_t> RowDraw::largest(std::span<const float> row, int k) {
  ids_.clear();
  if (k <= 0) return ids_;
  find_largest(row);
  if (!(largest_ > -INFINITY)) return ids_;
  collect_largest(row, k);
  std::erase_if(candidates_, [&](const Candidate& c) {
    return !(c.logit > -INFINITY) || (largest_ == INFINITY && c.logit < INFINITY);
  });
  order_candidates(static_cast<size_t>(k), false);
  ids_.clear();
  for (const Candidate& c : candidates_) ids_.push_back(c.id);
  return ids_;
}

void RowDraw::keep_few(const tile::DrawRule& rule) {
  collect_largest(row_, rule.top_k);
  std::vector<float>& logits = ordered_largest_;
  logits.clear();
  for (const Candidate& c : candidates_) logits.push_back(c.logit);
  weights_.resize(logits.size());
  block_sums_.resize(blocks_of(logits));
  weighing_->weigh(logits.data(), length(logits), largest_, scale_, weights_.data(), block_sums_.data());
  for (size_t i = 0; i < candidates_.size(); ++i) candidates_[i].weight = weights_[i];
  std::erase_if(candidates_, [](const Candidate& c) { return c.weight == 0; });
  order_candidates(static_cast<size_t>(rule.top_k), rule.keeps_ties);

  const auto sum = [&] {
    uint64_t total = 0;
    for (const Candidate& c : candidates_) total += static_cast<uint64_t>(c.weight);
    return total;
  };
  if (rule.has_share()) {
    const auto whole = [&] { return rule.of_probabilities ? tile::weight_of_one(scale_) : weigh_all(); };
    const uint64_t wanted = tile::weight_of_share(rule.joint ? whole() : sum(), rule.share);
    uint64_t kept = 0;
    size_t count = 0;
    while (count < candidates_.size() && kept < wanted) kept += static_cast<uint64_t>(candidates_[count++].weight);
    keep_candidates(count, rule.keeps_ties);
  }
  const float least = rule.least_share * largest_;
  std::erase_if(candidates_, [&](const Candidate& c) {
    return c.weight < rule.least_weight || (rule.of_probabilities && c.logit < least);
  });
  std::ranges::sort(candidates_, {}, &Candidate::id);
  kept_weight_ = sum();
}

// ---------------------------------------------------------------- any number of tokens, all of them weighed

uint64_t RowDraw::weigh_all() {
  weights_.resize(row_.size());
  block_sums_.resize(num_blocks());
  weighing_->weigh(row_.data(), length(row_), largest_, scale_, weights_.data(), block_sums_.data());
  return sum_of(block_sums_);
}

// All tokens behind the first such bins weigh together no more than what the share leaves out.
int RowDraw::bins_of_share(bool of_probabilities, uint64_t total, uint64_t wanted) const {
  constexpr double kLeast = 4096, kMargin = 1e-3;  // beside which roundings are nothing
  const double weight = static_cast<double>(total - wanted) / static_cast<double>(row_.size());
  if (weight < kLeast) return DrawTable::kBins;
  const double share = weight / tile::kLargestWeight;
  return weighing_->bins_down_to(
      static_cast<float>(of_probabilities ? share * (1 - kMargin) : std::log(share) - kMargin));
}

// The token with which the first ones reach this weight, or this count, which all together reach: its bin first, then
// its place among the bin's tokens. With its ties: the last of these.
RowDraw::Last RowDraw::last_within(uint64_t wanted, bool counts, int num_bins, bool keeps_ties) {
  bins_.assign(DrawTable::kBins + 1, 0);
  weighing_->add_to_bins(row_.data(), weights_.data(), length(row_), largest_, scale_, num_bins, counts, bins_.data());
  uint64_t before = 0;
  int bin = 0;
  for (; bin < num_bins && before + bins_[static_cast<size_t>(bin)] < wanted; ++bin)
    before += bins_[static_cast<size_t>(bin)];
  if (bin == num_bins) return {-INFINITY, 0};  // fewer are there
  ids_.resize(row_.size());
  const long long count = weighing_->select_bin(row_.data(), length(row_), largest_, scale_, bin, ids_.data());
  candidates_.clear();
  for (const int32_t id : std::span(ids_).first(static_cast<size_t>(count)))
    candidates_.push_back({id, row_[static_cast<size_t>(id)], weights_[static_cast<size_t>(id)]});
  order_candidates(candidates_.size(), false);
  for (const Candidate& c : candidates_) {
    before += counts ? 1 : static_cast<uint64_t>(c.weight);
    if (before >= wanted) return {c.logit, keeps_ties ? static_cast<int32_t>(row_.size()) - 1 : c.id};
  }
  throw InternalError("a bin of tokens that weighs less than its sum");
}

// Of the row's tokens.
bool RowDraw::is_kept(size_t i) const {
  const bool is_before = row_[i] > last_.logit || (row_[i] == last_.logit && i <= static_cast<size_t>(last_.id));
  return is_before && weights_[i] >= least_weight_;
}

// Sums of blocks, of tokens that are kept: blocks before the last token's own have it with its equals, those behind
// without.
uint64_t RowDraw::sum_kept() {
  const auto sum = [&](size_t begin, size_t end, float least_logit) {  // of blocks
    if (begin == end) return;
    const size_t first = begin * kBlock;
    loops().sum_blocks(row_.data() + first, weights_.data() + first,
                       static_cast<long long>(std::min(end * kBlock, row_.size()) - first), least_logit, least_weight_,
                       block_sums_.data() + begin);
  };
  const size_t own = static_cast<size_t>(last_.id) / kBlock;
  const float above =
      last_.logit == INFINITY ? std::numeric_limits<float>::quiet_NaN() : std::nextafter(last_.logit, INFINITY);
  sum(0, own, last_.logit);
  sum(own + 1, num_blocks(), above);
  uint64_t of_own = 0;
  for (size_t i = own * kBlock; i < std::min((own + 1) * kBlock, row_.size()); ++i)
    if (is_kept(i)) of_own += static_cast<uint64_t>(weights_[i]);
  block_sums_[own] = of_own;
  return sum_of(block_sums_);
}

void RowDraw::keep_of_all(const tile::DrawRule& rule) {
  const uint64_t all = weigh_all();
  last_ = {-INFINITY, 0};  // behind all that have a weight
  least_weight_ = 1;
  uint64_t total = all;
  if (rule.top_k > 0) {
    last_ = last_within(static_cast<uint64_t>(rule.top_k), true, DrawTable::kBins, rule.keeps_ties);
    if (!rule.joint) total = sum_kept();
  }
  if (rule.has_share()) {
    const uint64_t whole = rule.joint && rule.of_probabilities ? tile::weight_of_one(scale_) : total;
    const uint64_t wanted = std::min<uint64_t>(tile::weight_of_share(whole, rule.share), total);
    const Last of_share =
        last_within(wanted, false, total == all ? bins_of_share(rule.of_probabilities, all, wanted) : DrawTable::kBins,
                    rule.keeps_ties);
    const bool is_first = of_share.logit != last_.logit ? of_share.logit > last_.logit : of_share.id < last_.id;
    if (is_first) last_ = of_share;
  }
  least_weight_ = rule.least_weight;
  if (const float least = rule.least_share * largest_; rule.of_probabilities && least > last_.logit)
    last_ = {least, static_cast<int32_t>(row_.size()) - 1};
  if (!rule.keeps_all()) sum_kept();
  std::partial_sum(block_sums_.begin(), block_sums_.end(), block_sums_.begin());
  kept_weight_ = block_sums_.back();
}

// ---------------------------------------------------------------- rows

void draw_rows(const std::function<std::span<const float>(size_t row)>& row_of, std::span<const TokenDraw> how,
               int64_t vocab, WorkerTeam& team, std::span<int32_t> ids) {
  for_rows(team, static_cast<int64_t>(how.size()), vocab, [&](int64_t begin, int64_t end) {
    RowDraw drawer;
    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
      ids[row] = drawer.draw(row_of(row), how[row]);
  });
}

void draw_from_probabilities(const ProbabilityDraws& call, WorkerTeam& team) {
  const int64_t num_rows = call.probs.shape(0), vocab = call.probs.shape(1);
  const std::span<int32_t> ids(call.ids.as<int32_t>(), static_cast<size_t>(call.ids.shape(0)));
  const int32_t* const rows = call.rows ? call.rows.as<const int32_t>() : nullptr;
  const auto row_of = [&](int32_t draw) { return rows == nullptr ? draw : rows[draw]; };
  // Draws of one row stand together: the row is looked at once, or once a worker.
  std::vector<int32_t> order(ids.size());
  std::iota(order.begin(), order.end(), 0);
  if (!std::ranges::is_sorted(order, {}, row_of)) std::ranges::stable_sort(order, {}, row_of);
  const auto rule_of_row = [&](int64_t row) {
    const auto value = [&](const TensorView& of, float off) { return of ? of.as<const float>()[row] : off; };
    return tile::rule_of_probabilities(call.top_k ? call.top_k.as<const int32_t>()[row] : 0, value(call.top_p, 1.f),
                                       value(call.min_p, 0.f), call.filter_order == FilterOrder::joint,
                                       static_cast<int>(vocab));
  };
  const auto draw = [&](int64_t begin, int64_t end) {
    RowDraw drawer;
    int64_t row = -1;
    bool is_possible = false;
    for (const int32_t i : std::span(order).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin))) {
      const int64_t own = row_of(i);
      if (own < 0 || own >= num_rows) {
        ids[static_cast<size_t>(i)] = -1;
        continue;
      }
      if (own != row) {
        row = own;
        is_possible = drawer.keep(
            {call.probs.as<const float>() + row * call.probs.stride(0), static_cast<size_t>(vocab)}, rule_of_row(row));
      }
      const auto bits = static_cast<uint64_t>(call.bits.as<const int64_t>()[i]);
      ids[static_cast<size_t>(i)] = is_possible ? drawer.drawn(bits) : -1;
    }
  };
  for_rows(team, static_cast<int64_t>(ids.size()), vocab, draw);
}

}  // namespace weft::ops
