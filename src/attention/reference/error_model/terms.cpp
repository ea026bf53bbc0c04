#include "attention/reference/error_model/terms.h"

#include <algorithm>
#include <cmath>

namespace weft::reference {
namespace {

constexpr double kSlopeStep = 1e-4;  // of a logit, to either side

double finite(double x) { return std::isfinite(x) ? x : 0; }
double at(const VectorError& error, size_t i) { return error.empty() ? 0 : error[i]; }

// How far q . k moves by what their hooks round.
double product_error(const Vector& q, const VectorError& q_error, const Vector& k, const VectorError& k_error) {
  if (q_error.empty() && k_error.empty()) return 0;
  double sum = 0;
  for (size_t d = 0; d < q.size(); ++d)
    sum += at(q_error, d) * (std::abs(k[d]) + at(k_error, d)) + std::abs(q[d]) * at(k_error, d);
  return sum;
}

// What a variant's arithmetic rounds of a logit, and what rounding it once more does, as exponents and states do: they
// are relative to the numbers themselves, which a transform may make as large as it likes.
double transform_error(const ErrorContext& call, const Score& c, double s, double logit) {
  if (!call.transforms.logits_error) return 0;
  return finite(call.transforms.logits_error(c, s)) +
         (call.hooks.use_softmax ? finite(2 * call.rounding.sums * std::abs(logit)) : 0);
}

// Half a step of what a query becomes as integers.
double query_step(const ErrorContext& call, const Vector& q) {
  double step = 0;
  if (call.rounding.query_steps > 0)
    for (const double x : q) step = std::max(step, std::abs(x) / (2 * call.rounding.query_steps));
  return step;
}

// Of each key that is seen.
struct LogitErrors {
  Vector moved, coarse;  // how far a logit moves, by a variant's arithmetic and by integers
  Vector size;           // sm_scale * sum |q_i k_i| * slope over kReferenceLogit
  double stretch = 1;    // the largest size, or 1
};

LogitErrors logit_errors(const ErrorContext& call, const AttendedRow& row, const VectorError& q_error,
                         const KvErrors& kv_errors) {
  const Vector& q = row.q;
  const auto& transform = call.hooks.logits;
  const size_t n = row.kv.keys.size();
  LogitErrors errors{Vector(n), Vector(n), Vector(n)};
  const double step = query_step(call, q), sm_scale = std::abs(call.sm_scale);
  for (size_t j = 0; j < n; ++j) {
    if (!row.state.seen[j]) continue;
    const Vector& k = row.kv.keys[j];
    double size = 0, length = 0;
    for (size_t d = 0; d < q.size(); ++d) {
      length += std::abs(k[d]);
      size += std::abs(q[d] * k[d]);
    }
    size *= sm_scale / kReferenceLogit;
    // The error of s, times the slope of what becomes of it.
    const Score c = row.place.score_of(row.list, j);
    const double s = row.state.s[j];
    const double slope =
        transform ? std::abs(transform(c, s + kSlopeStep) - transform(c, s - kSlopeStep)) / (2 * kSlopeStep) : 1;
    const double passed_on = sm_scale * (std::isfinite(slope) ? slope : 1);
    errors.coarse[j] = step * length * passed_on;
    errors.moved[j] =
        product_error(q, q_error, k, kv_errors.keys[j]) * passed_on + transform_error(call, c, s, row.state.logits[j]);
    if (std::isfinite(slope)) size *= slope;  // not at the edge of what a transform hides with -inf
    errors.size[j] = size;
    errors.stretch = std::max(errors.stretch, size);
  }
  return errors;
}

// Without softmax a weight is p itself, and how it moves with s.
void add_scale(Terms& terms, const ErrorContext& call, const AttendedRow& row, const LogitErrors& errors,
               const Vector& value_scales) {
  const State& state = row.state;
  for (size_t j = 0; j < row.kv.values.size(); ++j) {
    if (!state.seen[j]) continue;
    const double weight =
        call.hooks.use_softmax ? state.p[j] * errors.stretch : std::abs(state.logits[j]) + errors.size[j];
    const double least = call.rounding.least_units > 0 ? call.rounding.least_units * std::abs(value_scales[j]) : 0;
    for (size_t d = 0; d < terms.scale.size(); ++d)
      terms.scale[d] += weight * std::max(std::abs(row.kv.values[j][d]), least);
  }
}

// With softmax a probability moves by the error of its logit and, through the sum, by the mean of all.
void add_moved(Terms& terms, const Vector& weights, const Vector& errors, const KvHead& kv, const KvErrors& kv_errors,
               bool use_softmax) {
  if (use_softmax)
    for (size_t j = 0; j < errors.size(); ++j) terms.moved_lse += weights[j] * errors[j];
  for (size_t j = 0; j < errors.size(); ++j) {
    const double moved = use_softmax ? weights[j] * std::expm1(std::min(errors[j] + terms.moved_lse, 100.)) : errors[j];
    if (moved == 0 && kv_errors.values[j].empty()) continue;  // hidden ones' numbers mean nothing
    for (size_t d = 0; d < terms.moved.size(); ++d)
      if (weights[j] != 0 || moved != 0)
        terms.moved[d] += moved * std::abs(kv.values[j][d]) + weights[j] * at(kv_errors.values[j], d);
  }
}

// What integers can do, at most: a query by half a step of its largest element, weights by half a step of the largest
// of their tile, which lies within two blocks of as many tokens.
void add_coarse(Terms& terms, const attention::Rounding& rounding, const Vector& weights, const Vector& logit_errors,
                const KvHead& kv, const Vector& value_scales, bool use_softmax) {
  const auto block = static_cast<size_t>(rounding.probability_tile);
  const double step = 1 / (2. * rounding.probability_steps);
  if (kv.values.empty()) return;
  const double worst = *std::max_element(logit_errors.begin(), logit_errors.end());
  Vector tops((kv.values.size() + block - 1) / block + 2);
  for (size_t j = 0; j < kv.values.size(); ++j)
    if (weights[j] != 0) tops[j / block + 1] = std::max(tops[j / block + 1], std::abs(weights[j] * value_scales[j]));
  for (size_t j = 0; j < kv.values.size(); ++j) {
    if (weights[j] == 0) continue;  // hidden: its numbers mean nothing
    const size_t b = j / block + 1;
    const double top = std::max({tops[b - 1], tops[b], tops[b + 1]});
    const double moved = use_softmax ? 2 * worst * weights[j] : logit_errors[j];
    const double rounded = value_scales[j] == 0 ? 0 : step * top / std::abs(value_scales[j]);
    for (size_t d = 0; d < terms.coarse.size(); ++d) terms.coarse[d] += (moved + rounded) * std::abs(kv.values[j][d]);
  }
  terms.coarse_lse = worst;
}

}  // namespace

VectorError error_of(const VectorHook& exact, const VectorHook& rounded, const abi::VectorRow& row, const Vector& x) {
  if (!exact || !rounded) return {};
  const Vector want = transformed(exact, row, x);
  VectorError error = transformed(rounded, row, x);
  for (size_t i = 0; i < error.size(); ++i) error[i] = finite(std::abs(error[i] - want[i]));
  return error;
}

Terms terms_of(const ErrorContext& call, const AttendedRow& row, const VectorError& q_error,
               const KvErrors& kv_errors) {
  const State& state = row.state;
  const size_t dim = state.o.size(), n = state.p.size();
  const bool use_softmax = call.hooks.use_softmax;
  Terms terms{Vector(dim), Vector(dim), Vector(dim)};
  const LogitErrors errors = logit_errors(call, row, q_error, kv_errors);
  const bool is_empty = use_softmax && std::isinf(state.lse);
  if (!is_empty) add_scale(terms, call, row, errors, kv_errors.value_scales);
  Vector weights(n);
  for (size_t j = 0; j < n; ++j) weights[j] = std::abs(state.p[j]);
  add_moved(terms, weights, errors.moved, row.kv, kv_errors, use_softmax);
  if (call.rounding.query_steps > 0)
    add_coarse(terms, call.rounding, weights, errors.coarse, row.kv, kv_errors.value_scales, use_softmax);
  // As in the error of o: logits, sums over keys, the logarithm.
  const double keys = static_cast<double>(n), dims = static_cast<double>(row.q.size());
  terms.lse_error = terms.moved_lse + (kReferenceLogit * (std::sqrt(dims) + 6) * errors.stretch + 24 +
                                       std::min(keys, 4 * std::sqrt(keys))) *
                                          call.rounding.sums;
  return terms;
}

void pass_output(const ErrorContext& call, const AttendedRow& attended, Terms& terms) {
  const State& state = attended.state;
  const VectorHook& hook = call.hooks.output;
  if (!hook) return;
  abi::VectorRow row = attended.place.finished_row(state);
  const auto output = [&](const Vector& x) { return transformed(hook, row, x); };
  const size_t dim = state.o.size();
  const VectorError own = error_of(hook, call.transforms.output, row, state.o);
  const Vector o = output(state.o);
  Vector scale(dim), moved(dim), coarse(dim);
  for (size_t i = 0; i < dim; ++i) {
    scale[i] = std::abs(o[i]);
    moved[i] = at(own, i);
  }
  for (size_t k = 0; k < dim; ++k) {
    const double step = 1e-6 * std::max(1.0, std::abs(state.o[k]));
    Vector up = state.o, down = state.o;
    up[k] += step;
    down[k] -= step;
    up = output(up);
    down = output(down);
    for (size_t i = 0; i < dim; ++i) {
      const double slope = std::abs(up[i] - down[i]) / (2 * step);
      scale[i] += slope * terms.scale[k];
      moved[i] += slope * terms.moved[k];
      coarse[i] += slope * terms.coarse[k];
    }
  }
  const auto add_moved_by_lse = [&](double error, Vector& to) {
    if (!call.hooks.use_softmax || !std::isfinite(state.lse) || error == 0) return;
    row.lse = state.lse + error;
    const Vector up = output(state.o);
    row.lse = state.lse - error;
    const Vector down = output(state.o);
    for (size_t i = 0; i < dim; ++i) to[i] += finite(std::abs(up[i] - down[i]) / 2);
  };
  add_moved_by_lse(terms.lse_error, moved);
  add_moved_by_lse(terms.coarse_lse, coarse);
  terms.scale = std::move(scale);
  terms.moved = std::move(moved);
  terms.coarse = std::move(coarse);
}

void pass_lse(const ErrorContext& call, const AttendedRow& row, Terms& terms) {
  if (!call.hooks.lse) return;
  for (double* error : {&terms.moved_lse, &terms.coarse_lse}) {
    if (*error == 0) continue;
    abi::VectorRow up = row.place.finished_row(row.state), down = up;
    up.lse += *error;
    down.lse -= *error;
    *error = finite(std::abs(call.hooks.lse(up) - call.hooks.lse(down)) / 2);
  }
}

}  // namespace weft::reference
