// Sampling and log-probabilities of rows of logits. The latter are made in double, in an order that the logits alone
// decide, with an exponential of our own: the same bits on every machine (this file is compiled without contraction).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/check.h"
#include "base/device_checks.h"
#include "base/enum_names.h"
#include "ops/backend.h"
#include "ops/draw.h"
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

// exp(scale * (logits - largest)); what is impossible weighs nothing, and so does what is finite where the largest is
// not: infinite logits differ by NaN among each other, and are equal.
void weigh(std::span<const float> logits, float largest, double scale, double* weights) {
  for (size_t i = 0; i < logits.size(); ++i) {
    const double difference = static_cast<double>(logits[i]) - static_cast<double>(largest);
    const double weight = exp_of_negative(difference <= 0. ? difference * scale : 0.);
    weights[i] = is_possible(logits[i]) ? weight : 0.;
  }
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

// Of each row, all that is said being right.
std::vector<TokenDraw> checked_draws(const TensorView& logits, std::span<const SamplingParams> params,
                                     std::span<const Philox> random, Stream stream) {
  const Device device = ops::device_of(logits);
  ops::backend_of("sample_rows", device);  // throws where there is none
  ops::check_fp32("sample_rows", "logits", logits, 2, 2, device);
  ops::check_stream("sample_rows", stream, device);
  const auto rows = static_cast<size_t>(logits.shape(0));
  check(params.size() == rows && random.size() == rows, ErrorCode::invalid_shape,
        "sample_rows: {} params and {} generators for {} rows of logits; one of each a row is needed", params.size(),
        random.size(), rows);
  for (const SamplingParams& p : params) ops::check_params("sample_rows", p);
  std::vector<TokenDraw> how(rows);
  for (size_t row = 0; row < rows; ++row) how[row] = {.params = params[row], .random = random[row]};
  return how;
}

void check_drawn(std::span<const int32_t> ids, const TensorView& logits) {
  for (size_t row = 0; row < ids.size(); ++row)
    check(ids[row] >= 0, ErrorCode::invalid_argument,
          "sample_rows: row {}: each of the {} logits is -inf or NaN; leave a token possible, or see to the model and "
          "its input",
          row, logits.shape(1));
}

}  // namespace

int32_t sample(std::span<const float> logits, const SamplingParams& params, Philox& random) {
  ops::check_params("sample", params);
  Philox moved = random;
  const int32_t id = ops::RowDraw().draw(logits, ops::rule_of(params), ops::take_bits(params, moved));
  ops::check_possible("sample", id >= 0, static_cast<int64_t>(logits.size()));
  random = moved;
  return id;
}

std::vector<int32_t> sample_rows(const TensorView& logits, std::span<const SamplingParams> params,
                                 std::span<Philox> random, Stream stream) {
  const std::vector<TokenDraw> how = checked_draws(logits, params, random, stream);
  std::vector<int32_t> ids(how.size());
  ops::backend_of("sample_rows", ops::device_of(logits)).draw(logits, how, ids, stream);
  check_drawn(ids, logits);
  for (size_t row = 0; row < how.size(); ++row) ops::move_on(params[row], random[row]);
  return ids;
}

void sample_rows(const TensorView& logits, std::span<const SamplingParams> params, std::span<Philox> random,
                 const TensorView& ids, Stream stream) {
  const std::vector<TokenDraw> how = checked_draws(logits, params, random, stream);
  const Device device = ops::device_of(logits);
  check(ids && ids.dtype() == DType::int32, ErrorCode::invalid_dtype, "sample_rows: ids: is {}; int32 is needed", ids);
  check(ids.rank() == 1 && ids.shape(0) == logits.shape(0) && (ids.shape(0) <= 1 || ids.stride(0) == 1),
        ErrorCode::invalid_shape,
        "sample_rows: ids: is {}; {} that lie together are needed, one for each row of logits", ids, logits.shape(0));
  check_on("sample_rows", "ids", ids.device(), device);
  for (size_t row = 0; row < how.size(); ++row) ops::move_on(params[row], random[row]);
  ops::backend_of("sample_rows", device).draw_beside(logits, how, ids, stream);
  if (device == Device::cpu()) check_drawn({ids.as<int32_t>(), how.size()}, logits);
}

void sample_probabilities(const ProbabilityDraws& draws, Stream stream) {
  constexpr std::string_view kOp = "sample_probabilities";
  const Device device = ops::device_of(draws.probs);
  const ops::Backend& backend = ops::backend_of(kOp, device);
  ops::check_fp32(kOp, "probs", draws.probs, 2, 2, device);
  ops::check_stream(kOp, stream, device);
  const int64_t rows = draws.probs.shape(0), count = draws.rows ? draws.rows.shape(0) : rows;
  const auto check_array = [&](std::string_view name, const TensorView& array, DType dtype, int64_t size) {
    check(array && array.dtype() == dtype, ErrorCode::invalid_dtype, "{}: {}: is {}; {} is needed", kOp, name, array,
          to_string(dtype));
    check(array.rank() == 1 && array.shape(0) == size && (size <= 1 || array.stride(0) == 1), ErrorCode::invalid_shape,
          "{}: {}: is {}; {} that lie together are needed", kOp, name, array, size);
    check_on(kOp, name, array.device(), device);
  };
  if (draws.rows) check_array("rows", draws.rows, DType::int32, count);
  check_array("bits", draws.bits, DType::int64, count);
  check_array("ids", draws.ids, DType::int32, count);
  if (draws.top_k) check_array("top_k", draws.top_k, DType::int32, rows);
  if (draws.top_p) check_array("top_p", draws.top_p, DType::fp32, rows);
  if (draws.min_p) check_array("min_p", draws.min_p, DType::fp32, rows);
  check(draws.probs.shape(1) > 0 || count == 0, ErrorCode::invalid_shape, "{}: probs: is {}; there is no token to draw",
        kOp, draws.probs);
  check(draws.filter_order <= FilterOrder::joint, ErrorCode::invalid_argument,
        "{}: filter_order = {}; FilterOrder::top_k_first or joint is needed", kOp,
        static_cast<int>(draws.filter_order));
  if (count > 0) backend.draw_from_probabilities(draws, stream);
}

double log_probability(std::span<const float> logits, int32_t token) {
  check(token >= 0 && static_cast<size_t>(token) < logits.size(), ErrorCode::invalid_token,
        "log_probability: token = {}; allowed are 0 to {}", token, static_cast<int64_t>(logits.size()) - 1);
  const float largest = ops::RowDraw().possible_largest("log_probability", logits);
  return log_probability_of(logits[static_cast<size_t>(token)], largest, log_sum(logits, largest));
}

std::vector<std::pair<int32_t, double>> top_log_probabilities(std::span<const float> logits, int k) {
  check(k >= 0, ErrorCode::invalid_argument, "top_log_probabilities: k = {}; 0 or more is needed", k);
  ops::RowDraw drawer;
  const float largest = drawer.possible_largest("top_log_probabilities", logits);
  if (k == 0) return {};
  const double sum = log_sum(logits, largest);
  std::vector<std::pair<int32_t, double>> top;
  for (const int32_t id : drawer.largest(logits, k))
    top.emplace_back(id, log_probability_of(logits[static_cast<size_t>(id)], largest, sum));
  return top;
}

std::string_view to_string(FilterOrder order) {
  static constexpr std::string_view kNames[] = {"top_k_first", "joint"};
  return enum_name(kNames, order);
}

}  // namespace weft
