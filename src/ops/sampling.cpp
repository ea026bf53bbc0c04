// Sampling and log-probabilities of one row of logits. Everything is done in double, in an order that the logits alone
// decide, with an exponential of our own: the same bits on every machine (this file is compiled without contraction).
#include "ops/sampling.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "base/enum_names.h"
#include "ops/elementwise.h"
#include "weft/ops.h"

namespace weft {
namespace {

// exp(x) for x <= 0 within 2 ulp, 0 below -700; plain arithmetic, so that the compiler can vectorise it and every
// machine agrees.
inline double exp_of_negative(double x) {
  const double held = x < -700. ? -700. : x;
  constexpr double kMagic = 6755399441055744.;  // 1.5 * 2^52: adding it rounds to an integer
  const double shifted = held * 1.4426950408889634 + kMagic, n = shifted - kMagic;
  const double r = (held - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
  double p = 1. / 6227020800.;
  for (double c : {1. / 479001600., 1. / 39916800., 1. / 3628800., 1. / 362880., 1. / 40320., 1. / 5040., 1. / 720.,
                   1. / 120., 1. / 24., 1. / 6., 0.5, 1., 1.})
    p = p * r + c;
  const auto power = (std::bit_cast<uint64_t>(shifted) - std::bit_cast<uint64_t>(kMagic) + 1023) << 52;
  return x < -700. ? 0. : p * std::bit_cast<double>(power);
}

// Neither ruled out (-inf) nor NaN.
bool is_possible(float logit) { return logit > -INFINITY; }

// The first of the largest logits. Throws when none is possible.
int32_t first_of_largest(std::string_view op, std::span<const float> logits) {
  const int32_t best = ops::first_of_largest(logits);
  check(best >= 0, ErrorCode::invalid_argument,
        "{}: each of the {} logits is -inf or NaN; leave a token possible, or see to the model and its input", op,
        logits.size());
  return best;
}

// exp(scale * (logits - largest)); what is impossible weighs nothing, and so does what is finite where the largest is
// not: infinite logits differ by NaN among each other, and are equal.
void weigh(std::span<const float> logits, float largest, double scale, double* weights) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const double difference = static_cast<double>(logits[i]) - static_cast<double>(largest);
    const double weight = exp_of_negative(difference <= 0. ? difference * scale : 0.);
    weights[i] = is_possible(logits[i]) ? weight : 0.;
  }
}
std::vector<double> weights_of(std::span<const float> logits, float largest, double scale) {
  std::vector<double> weights(logits.size());
  weigh(logits, largest, scale, weights.data());
  return weights;
}

// Most probable first, the least id of equals first.
struct MoreProbable {
  std::span<const float> logits;
  bool operator()(int32_t a, int32_t b) const {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  }
};

// Those that can be drawn: beside an infinite logit only its equals.
std::vector<int32_t> possible_ids(std::span<const float> logits, float largest) {
  std::vector<int32_t> ids;
  ids.reserve(logits.size());
  for (size_t i = 0; i < logits.size(); ++i)
    if (is_possible(logits[i]) && (std::isfinite(largest) || logits[i] == largest))
      ids.push_back(static_cast<int32_t>(i));
  return ids;
}

void keep_first(std::vector<int32_t>& ids, size_t count, MoreProbable order) {
  if (count < ids.size()) {
    std::nth_element(ids.begin(), ids.begin() + static_cast<int64_t>(count), ids.end(), order);
    ids.resize(count);
  }
  std::sort(ids.begin(), ids.end(), order);
}

// The shortest run of the most probable ids whose weights reach `mass`. Sorts no more than it needs, doubling.
void keep_mass(std::vector<int32_t>& ids, const std::vector<double>& weights, double mass, MoreProbable order,
               bool sorted) {
  double sum = 0;
  size_t done = 0, chunk = sorted ? ids.size() : 64;
  while (done < ids.size()) {
    const size_t end = std::min(ids.size(), done + chunk);
    if (!sorted) {
      if (end < ids.size())
        std::nth_element(ids.begin() + static_cast<int64_t>(done), ids.begin() + static_cast<int64_t>(end), ids.end(),
                         order);
      std::sort(ids.begin() + static_cast<int64_t>(done), ids.begin() + static_cast<int64_t>(end), order);
    }
    for (; done < end; ++done) {
      sum += weights[static_cast<size_t>(ids[done])];
      if (sum >= mass) {
        ids.resize(done + 1);
        return;
      }
    }
    chunk *= 4;
  }
}

double sum_of(const std::vector<int32_t>& ids, const std::vector<double>& weights) {
  return std::accumulate(ids.begin(), ids.end(), 0.,
                         [&](double sum, int32_t id) { return sum + weights[static_cast<size_t>(id)]; });
}

void check_params(const SamplingParams& params) {
  check(params.temperature >= 0.f && std::isfinite(params.temperature), ErrorCode::invalid_argument,
        "sample: temperature = {}; 0 (greedy) or a positive number is needed", params.temperature);
  check(params.top_k >= 0, ErrorCode::invalid_argument, "sample: top_k = {}; 0 (off) or more is needed", params.top_k);
  check(params.top_p > 0.f && params.top_p <= 1.f, ErrorCode::invalid_argument,
        "sample: top_p = {}; above 0 and at most 1 (off) is needed", params.top_p);
  check(params.min_p >= 0.f && params.min_p <= 1.f, ErrorCode::invalid_argument,
        "sample: min_p = {}; 0 (off) to 1 is needed", params.min_p);
  check(params.filter_order <= FilterOrder::joint, ErrorCode::invalid_argument,
        "sample: filter_order = {}; FilterOrder::top_k_first or joint is needed",
        static_cast<int>(params.filter_order));
}

// log of the sum of exp, less the largest logit.
double log_sum(std::span<const float> logits, float largest) {
  std::array<double, 512> weights;  // a few at a time: those of a vocabulary are half a megabyte
  double sum = 0;
  for (size_t done = 0; done < logits.size(); done += weights.size()) {
    const size_t count = std::min(weights.size(), logits.size() - done);
    weigh(logits.subspan(done, count), largest, 1., weights.data());
    sum = std::accumulate(weights.begin(), weights.begin() + static_cast<std::ptrdiff_t>(count), sum);
  }
  return std::log(sum);
}

// By the log_sum of all. The largest is taken off first: the sum may vanish beside it.
double log_probability_of(float logit, float largest, double sum) {
  if (!is_possible(logit)) return -INFINITY;
  return (logit == largest ? 0. : static_cast<double>(logit) - static_cast<double>(largest)) - sum;
}

// A token for one number of the generator; params were checked, and `best` is the first of the largest logits.
int32_t draw(std::span<const float> logits, const SamplingParams& params, int32_t best, std::mt19937_64& generator) {
  if (params.temperature == 0.f) return best;
  const MoreProbable order{logits};
  const float largest = logits[static_cast<size_t>(best)];
  const std::vector<double> weights = weights_of(logits, largest, 1. / static_cast<double>(params.temperature));
  std::vector<int32_t> ids = possible_ids(logits, largest);
  if (params.top_k > 0) keep_first(ids, static_cast<size_t>(params.top_k), order);
  if (params.top_p < 1.f) {
    const double all = params.filter_order == FilterOrder::joint ? std::accumulate(weights.begin(), weights.end(), 0.)
                                                                 : sum_of(ids, weights);
    keep_mass(ids, weights, static_cast<double>(params.top_p) * all, order, params.top_k > 0);
  }
  if (params.min_p > 0.f)  // the largest weight is 1
    std::erase_if(ids,
                  [&](int32_t id) { return weights[static_cast<size_t>(id)] < static_cast<double>(params.min_p); });
  const double drawn = static_cast<double>(generator() >> 11) * 0x1p-53 * sum_of(ids, weights);
  double sum = 0;
  int32_t last = best;
  for (int32_t id : ids) {
    const double weight = weights[static_cast<size_t>(id)];
    if (weight == 0.) continue;
    sum += weight;
    last = id;
    if (sum > drawn) break;
  }
  return last;
}

}  // namespace

int32_t ops::first_of_largest(std::span<const float> logits) {
  int32_t best = -1;
  for (size_t i = 0; i < logits.size(); ++i)
    if (is_possible(logits[i]) && (best < 0 || logits[i] > logits[static_cast<size_t>(best)]))
      best = static_cast<int32_t>(i);
  return best;
}

int32_t sample(std::span<const float> logits, const SamplingParams& params, std::mt19937_64& generator) {
  check_params(params);
  return draw(logits, params, first_of_largest("sample", logits), generator);
}

std::vector<int32_t> sample_rows(const TensorView& logits, std::span<const SamplingParams> params,
                                 std::span<std::mt19937_64> generators, Stream stream) {
  ops::check_fp32("sample_rows", "logits", logits, 2, 2);
  const auto rows = static_cast<size_t>(logits.shape(0)), vocab = static_cast<size_t>(logits.shape(1));
  check(params.size() == rows && generators.size() == rows, ErrorCode::invalid_shape,
        "sample_rows: {} params and {} generators for {} rows of logits; one of each a row is needed", params.size(),
        generators.size(), rows);
  for (const SamplingParams& p : params) check_params(p);
  const auto row_of = [&](size_t row) {
    return std::span<const float>(logits.as<const float>() + static_cast<int64_t>(row) * logits.stride(0), vocab);
  };
  std::vector<int32_t> ids(rows);
  const auto rows_over_team = [&](const auto& work) {
    ops::for_rows(stream.team(), static_cast<int64_t>(rows), static_cast<int64_t>(vocab),
                  [&](int64_t begin, int64_t end) {
                    for (auto row = static_cast<size_t>(begin); row < static_cast<size_t>(end); ++row)
                      ids[row] = work(row);
                  });
  };
  rows_over_team([&](size_t row) { return first_of_largest("sample_rows", row_of(row)); });
  rows_over_team([&](size_t row) { return draw(row_of(row), params[row], ids[row], generators[row]); });
  return ids;
}

double log_probability(std::span<const float> logits, int32_t token) {
  check(token >= 0 && static_cast<size_t>(token) < logits.size(), ErrorCode::invalid_token,
        "log_probability: token = {}; allowed are 0 to {}", token, static_cast<int64_t>(logits.size()) - 1);
  const float largest = logits[static_cast<size_t>(first_of_largest("log_probability", logits))];
  return log_probability_of(logits[static_cast<size_t>(token)], largest, log_sum(logits, largest));
}

std::vector<std::pair<int32_t, double>> top_log_probabilities(std::span<const float> logits, int k) {
  check(k >= 0, ErrorCode::invalid_argument, "top_log_probabilities: k = {}; 0 or more is needed", k);
  const float largest = logits[static_cast<size_t>(first_of_largest("top_log_probabilities", logits))];
  if (k == 0) return {};
  const double sum = log_sum(logits, largest);
  std::vector<int32_t> ids = possible_ids(logits, largest);
  keep_first(ids, static_cast<size_t>(k), MoreProbable{logits});
  std::vector<std::pair<int32_t, double>> top;
  for (int32_t id : ids) top.emplace_back(id, log_probability_of(logits[static_cast<size_t>(id)], largest, sum));
  return top;
}

std::string_view to_string(FilterOrder order) {
  static constexpr std::string_view kNames[] = {"top_k_first", "joint"};
  return enum_name(kNames, order);
}

}  // namespace weft
