#include "attention/reference/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/reference/hooks.h"
#include "attention/reference/keys.h"
#include "base/check.h"

namespace weft {
namespace {

using Vector = std::vector<double>;
using reference::Hooks;
using reference::Keys;
using reference::Score;
using reference::Token;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlopeStep = 1e-4;  // of a logit, to either side
constexpr double kUnit = 0x1p-24;    // of fp32

Vector vector_at(const TensorView& t, int64_t i, int64_t j, int64_t k) {  // rank 3: (i, j); rank 4: (i, j, k)
  const bool rank4 = t.rank() == 4;
  const int64_t start = i * t.stride(0) + j * t.stride(1) + (rank4 ? k * t.stride(2) : 0);
  Vector v(static_cast<size_t>(t.shape(t.rank() - 1)));
  for (size_t d = 0; d < v.size(); ++d) v[d] = element(t, start + static_cast<int64_t>(d) * t.stride(t.rank() - 1));
  return v;
}

Vector kv_vector(const AttentionSpec& spec, const TensorView& kv, const Token& at, int h) {
  const bool nhd = spec.layout == Layout::nhd;
  if (spec.kv_form == KvForm::ragged) return nhd ? vector_at(kv, at.inner, h, 0) : vector_at(kv, h, at.inner, 0);
  return nhd ? vector_at(kv, at.outer, at.inner, h) : vector_at(kv, at.outer, h, at.inner);
}

// Of the scale of token t, counted along its axis.
int64_t scale_row(const AttentionSpec& spec, int64_t t) {
  return spec.kv_scales < KvScales::token ? 0 : spec.kv_scales == KvScales::token ? t : t / spec.kv_scale_group;
}

double scale_of(const AttentionSpec& spec, const TensorView& scales, const Token& at, int h) {
  if (spec.kv_scales == KvScales::none) return 1;
  const bool by_token = spec.kv_scales >= KvScales::token;
  const Token scale{by_token ? at.outer : 0, scale_row(spec, at.inner), 0};
  return kv_vector(spec, scales, scale, spec.kv_scales == KvScales::tensor ? 0 : h)[0];
}

// The stored numbers times their scale.
Vector dequantised(const AttentionSpec& spec, const TensorView& kv, const TensorView& scales, const Token& at, int h) {
  Vector v = kv_vector(spec, kv, at, h);
  const double scale = scale_of(spec, scales, at, h);
  for (double& x : v) x *= scale;
  return v;
}

Vector key_vector(const AttentionSpec& spec, const KvCache& kv, const Token& at, int h) {
  if (spec.kv_form != KvForm::latent) return dequantised(spec, kv.k, kv.k_scale, at, h);
  Vector key = vector_at(kv.k, at.outer, at.inner, 0);
  if (!kv.v) return key;
  const Vector rotated = vector_at(kv.v, at.outer, at.inner, 0);
  key.insert(key.end(), rotated.begin(), rotated.end());
  return key;
}

Vector value_vector(const AttentionSpec& spec, const KvCache& kv, const Token& at, int h) {
  if (spec.kv_form != KvForm::latent) return dequantised(spec, kv.v, kv.v_scale, at, h);
  Vector value = vector_at(kv.k, at.outer, at.inner, 0);
  value.resize(static_cast<size_t>(spec.head_dim_vo));
  return value;
}

Vector transformed(const reference::VectorHook& hook, const abi::VectorRow& row, Vector x) {
  if (!hook) return x;
  Vector y(x.size());
  hook(row, x.data(), y.data(), static_cast<int>(x.size()));
  return y;
}

double finite(double x) { return std::isfinite(x) ? x : 0; }

// A vector after its hook, and how far the kernels' float moves its elements; empty: not at all.
struct Hooked {
  Vector x, error;
  double error_at(size_t i) const { return error.empty() ? 0 : error[i]; }
};

Hooked hooked(const reference::VectorHooks& hook, const abi::VectorRow& row, const Vector& x) {
  Hooked y{transformed(hook.exact, row, x), {}};
  if (!hook.rounded) return y;
  y.error = transformed(hook.rounded, row, x);
  for (size_t i = 0; i < y.x.size(); ++i) y.error[i] = finite(std::abs(y.error[i] - y.x[i]));
  return y;
}

// The keys of a KV head as its rows attend them.
struct KvSide {
  std::vector<Hooked> keys, values;
  Vector value_scales;  // of each token; empty where KV are no integers
};

// One query row and head against the keys and values of its request: o, lse and what errors of them are measured
// against, as ReferenceResult has them. `lse_error`: what lse may be off by before its hook.
struct RowState {
  Vector o, scale, moved, coarse;
  double lse = -kInfinity, moved_lse = 0, coarse_lse = 0, lse_error = 0;
};

// Errors of o pass through the derivative of the output transform, and those of the lse that it reads.
void transform_output(const Hooks& hooks, abi::VectorRow row, RowState& state) {
  if (!hooks.output) return;
  const size_t dim = state.o.size();
  const Vector before = state.o;
  const auto output = [&](const Vector& x) { return transformed(hooks.output.exact, row, x); };
  const Hooked result = hooked(hooks.output, row, before);
  state.o = result.x;
  Vector scale(dim), moved(dim), coarse(dim);
  for (size_t i = 0; i < dim; ++i) {
    scale[i] = std::abs(state.o[i]);
    moved[i] = result.error_at(i);
  }
  for (size_t k = 0; k < dim; ++k) {
    const double step = 1e-6 * std::max(1.0, std::abs(before[k]));
    Vector up = before, down = before;
    up[k] += step;
    down[k] -= step;
    up = output(up);
    down = output(down);
    for (size_t i = 0; i < dim; ++i) {
      const double slope = std::abs(up[i] - down[i]) / (2 * step);
      scale[i] += slope * state.scale[k];
      moved[i] += slope * state.moved[k];
      coarse[i] += slope * state.coarse[k];
    }
  }
  const auto add_moved_by_lse = [&](double error, Vector& to) {
    if (!std::isfinite(state.lse) || error == 0) return;
    row.lse = state.lse + error;
    const Vector up = output(before);
    row.lse = state.lse - error;
    const Vector down = output(before);
    for (size_t i = 0; i < dim; ++i) to[i] += finite(std::abs(up[i] - down[i]) / 2);
  };
  add_moved_by_lse(state.lse_error, moved);
  add_moved_by_lse(state.coarse_lse, coarse);
  state.scale = scale;
  state.moved = moved;
  state.coarse = coarse;
}

void transform_lse(const Hooks& hooks, abi::VectorRow row, RowState& state) {
  if (!hooks.lse) return;
  state.lse = hooks.lse(row);
  for (double* error : {&state.moved_lse, &state.coarse_lse}) {
    if (*error == 0) continue;
    abi::VectorRow up = row, down = row;
    up.lse += *error;
    down.lse -= *error;
    *error = finite(std::abs(hooks.lse(up) - hooks.lse(down)) / 2);
  }
}

// How far q . k moves by what their hooks round.
double product_error(const Hooked& q, const Hooked& k) {
  if (q.error.empty() && k.error.empty()) return 0;
  double sum = 0;
  for (size_t d = 0; d < q.x.size(); ++d)
    sum += q.error_at(d) * (std::abs(k.x[d]) + k.error_at(d)) + std::abs(q.x[d]) * k.error_at(d);
  return sum;
}

// What a variant's arithmetic rounds of a logit, and what rounding it once more does, as exponents and states do: they
// are relative to the numbers themselves, which a transform may make as large as it likes.
double transform_error(const Hooks& hooks, const Score& c, double s, double logit) {
  if (!hooks.logits_rounding) return 0;
  return finite(hooks.logits_rounding(c, s)) + (hooks.use_softmax ? finite(2 * kUnit * std::abs(logit)) : 0);
}

// With softmax a probability moves by the error of its logit and, through the sum, by the mean of all.
void add_moved(RowState& out, const Vector& weights, const Vector& errors, const std::vector<Hooked>& values,
               bool use_softmax) {
  if (use_softmax)
    for (size_t j = 0; j < errors.size(); ++j) out.moved_lse += weights[j] * errors[j];
  for (size_t j = 0; j < errors.size(); ++j) {
    const double moved = use_softmax ? weights[j] * std::expm1(std::min(errors[j] + out.moved_lse, 100.)) : errors[j];
    if (moved == 0 && values[j].error.empty()) continue;  // hidden ones' numbers mean nothing
    for (size_t d = 0; d < out.moved.size(); ++d)
      if (weights[j] != 0 || moved != 0)
        out.moved[d] += moved * std::abs(values[j].x[d]) + weights[j] * values[j].error_at(d);
  }
}

// What rounding to 16 bits can do, at most: a query by half a step of its largest element, weights by half a step of the
// largest of their tile of 256 tokens or fewer, which lies within two blocks of as many.
void add_coarse(RowState& out, const Vector& weights, const Vector& logit_errors, const std::vector<Hooked>& values,
                const Vector& value_scales, bool use_softmax) {
  constexpr size_t kBlock = 256;
  constexpr double kStep = 1 / (2. * 32512);
  if (values.empty()) return;
  const double worst = *std::max_element(logit_errors.begin(), logit_errors.end());
  Vector tops((values.size() + kBlock - 1) / kBlock + 2);
  for (size_t j = 0; j < values.size(); ++j)
    if (weights[j] != 0) tops[j / kBlock + 1] = std::max(tops[j / kBlock + 1], std::abs(weights[j] * value_scales[j]));
  for (size_t j = 0; j < values.size(); ++j) {
    if (weights[j] == 0) continue;  // hidden: its numbers mean nothing
    const size_t b = j / kBlock + 1;
    const double top = std::max({tops[b - 1], tops[b], tops[b + 1]});
    const double moved = use_softmax ? 2 * worst * weights[j] : logit_errors[j];
    const double rounded = value_scales[j] == 0 ? 0 : kStep * top / std::abs(value_scales[j]);
    for (size_t d = 0; d < out.coarse.size(); ++d) out.coarse[d] += (moved + rounded) * std::abs(values[j].x[d]);
  }
  out.coarse_lse = worst;
}

RowState attend_row(const Hooks& hooks, const Hooked& query, const Keys& list, int row, const KvSide& kv, Score c,
                    double sm_scale, size_t dim) {
  RowState out{Vector(dim), Vector(dim), Vector(dim), Vector(dim)};
  const std::vector<Hooked>&keys = kv.keys, &values = kv.values;
  const Vector& q = query.x;
  Vector coarse_errors(keys.size()), errors(keys.size()), shown(keys.size());  // of logits
  const double dims = static_cast<double>(q.size());
  double q_step = 0;
  for (const double x : q) q_step = std::max(q_step, std::abs(x) / (2 * std::min(32512., 0x1p24 / dims)));
  std::vector<double> logits(keys.size(), -kInfinity), weights(keys.size());  // -inf: hidden
  double top = -kInfinity, stretch = 1;
  std::vector<bool> seen(keys.size());
  for (size_t j = 0; j < keys.size(); ++j) {
    c.kv_idx = static_cast<int>(j);
    c.kv_pos = list.tokens[j].position;
    seen[j] = (!list.shown || list.shown(row, c.kv_idx)) &&
              std::all_of(hooks.visible.begin(), hooks.visible.end(), [&](const auto& f) { return f(c); });
    if (!seen[j]) continue;
    double dot = 0, size = 0, length = 0;
    for (size_t d = 0; d < q.size(); ++d) {
      const double k = keys[j].x[d];
      dot += q[d] * k;
      length += std::abs(k);
      size += std::abs(q[d] * k);
    }
    const double s = dot * sm_scale;
    size *= std::abs(sm_scale) / kReferenceLogit;
    logits[j] = hooks.logits ? hooks.logits(c, s) : s;
    top = std::max(top, logits[j]);
    // The error of s, times the slope of what becomes of it.
    const double slope =
        hooks.logits ? std::abs(hooks.logits(c, s + kSlopeStep) - hooks.logits(c, s - kSlopeStep)) / (2 * kSlopeStep)
                     : 1;
    const double passed_on = std::abs(sm_scale) * (std::isfinite(slope) ? slope : 1);
    coarse_errors[j] = q_step * length * passed_on;
    errors[j] = product_error(query, keys[j]) * passed_on + transform_error(hooks, c, s, logits[j]);
    if (std::isfinite(slope)) size *= slope;  // not at the edge of what a transform hides with -inf
    stretch = std::max(stretch, size);
    weights[j] = std::abs(logits[j]) + size;  // without softmax: p itself, and how it moves with s
  }
  double sum = 0;
  if (hooks.use_softmax)
    for (size_t j = 0; j < keys.size(); ++j)
      if (seen[j] && top != -kInfinity) sum += std::exp(logits[j] - top);
  for (size_t j = 0; j < keys.size(); ++j) {
    if (!seen[j] || (hooks.use_softmax && top == -kInfinity)) continue;
    const double p = hooks.use_softmax ? std::exp(logits[j] - top) / sum : logits[j];
    shown[j] = std::abs(p);
    const double weight = hooks.use_softmax ? p * stretch : weights[j];
    for (size_t d = 0; d < dim; ++d) {
      out.o[d] += p * values[j].x[d];
      out.scale[d] += weight * std::abs(values[j].x[d]);
    }
  }
  add_moved(out, shown, errors, values, hooks.use_softmax);
  if (!kv.value_scales.empty()) add_coarse(out, shown, coarse_errors, values, kv.value_scales, hooks.use_softmax);
  if (top != -kInfinity) out.lse = top + std::log(sum);
  const double n = static_cast<double>(keys.size());
  // As in the error of o: logits, sums over keys, the logarithm.
  out.lse_error =
      out.moved_lse + (kReferenceLogit * (std::sqrt(dims) + 6) * stretch + 24 + std::min(n, 4 * std::sqrt(n))) * kUnit;
  return out;
}

}  // namespace

double element(const TensorView& t, int64_t offset) {
  if (t.dtype() == DType::fp32) return static_cast<double>(t.as<const float>()[offset]);
  switch (t.dtype()) {
    case DType::int8: return t.as<const int8_t>()[offset];
    case DType::int4: return static_cast<int8_t>(t.as<const uint8_t>()[offset / 2] << (offset % 2 == 0 ? 4 : 0)) >> 4;
    case DType::fp8_e4m3: {
      const int code = t.as<const uint8_t>()[offset], exponent = code >> 3 & 15, mantissa = code & 7;
      if ((code & 127) == 127) return std::numeric_limits<double>::quiet_NaN();
      const double x = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      return code < 128 ? x : -x;
    }
    default: break;
  }
  const bool e5m2 = t.dtype() == DType::fp8_e5m2;  // an fp16 without its low byte
  const uint16_t bits =
      e5m2 ? static_cast<uint16_t>(t.as<const uint8_t>()[offset] << 8) : t.as<const uint16_t>()[offset];
  if (t.dtype() == DType::bf16) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  check(t.dtype() == DType::fp16 || e5m2, ErrorCode::invalid_dtype, "the reference reads no {}", to_string(t.dtype()));
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * kInfinity;
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

ReferenceResult attention_reference(const AttentionSpec& spec, const PlanInput& in, const AttentionTensors& tensors,
                                    const ReferencePart& part) {
  const std::vector<Keys> lists = reference::keys(spec, in);
  Hooks hooks = reference::hooks(spec, in, tensors);
  if (part.partial) {
    hooks.output = {};
    hooks.lse = {};
  }
  hooks.visible.push_back([&](const Score& c) { return c.kv_pos >= part.key_begin && c.kv_pos < part.key_end; });
  const size_t dim = static_cast<size_t>(spec.head_dim_vo);
  const double sm_scale = tensors.sm_scale ? static_cast<double>(*tensors.sm_scale) : 1 / std::sqrt(spec.head_dim_qk);
  const size_t rows = lists.empty() ? 0 : static_cast<size_t>(lists.back().row_end * in.num_qo_heads);
  const bool integers = spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4;
  const size_t lse_rows = hooks.use_softmax ? rows : 0;
  ReferenceResult result{Vector(rows * dim),
                         Vector(lse_rows),
                         Vector(rows * dim),
                         Vector(rows * dim),
                         Vector(lse_rows),
                         Vector(integers ? rows * dim : 0),
                         Vector(integers ? lse_rows : 0)};
  const int group = in.num_qo_heads / in.num_kv_heads;

  for (const Keys& list : lists)
    for (int kv_head = list.kv_head_begin; kv_head < list.kv_head_end; ++kv_head) {
      if (list.row_begin >= part.row_end || list.row_end <= part.row_begin) continue;
      KvSide kv;
      for (int t = 0; t < static_cast<int>(list.tokens.size()); ++t) {
        const Token& token = list.tokens[static_cast<size_t>(t)];
        const abi::VectorRow row{list.request, t, token.position, kv_head};
        kv.keys.push_back(hooked(hooks.key, row, key_vector(spec, tensors.kv, token, kv_head)));
        if (integers) kv.value_scales.push_back(scale_of(spec, tensors.kv.v_scale, token, kv_head));
        kv.values.push_back(hooked(hooks.value, row, value_vector(spec, tensors.kv, token, kv_head)));
      }
      for (int64_t q_row = list.row_begin; q_row < list.row_end; ++q_row) {
        if (q_row < part.row_begin || q_row >= part.row_end) continue;
        const int i = static_cast<int>(q_row - list.row_begin);
        for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          abi::VectorRow row{list.request, list.first_idx + i, list.q_pos[static_cast<size_t>(i)], head};
          const Hooked q = hooked(hooks.query, row, vector_at(tensors.q, q_row, head, 0));
          RowState state = attend_row(hooks, q, list, i, kv,
                                      {list.request, row.idx, 0, head, kv_head, row.pos, 0, list.qo_len, list.kv_len},
                                      sm_scale, dim);
          if (hooks.use_softmax) row.lse = state.lse;
          transform_output(hooks, row, state);
          transform_lse(hooks, row, state);
          const size_t at = static_cast<size_t>(q_row * in.num_qo_heads + head);
          const auto keep = [&](const Vector& from, Vector& to) {
            std::copy(from.begin(), from.end(), to.begin() + static_cast<std::ptrdiff_t>(at * dim));
          };
          keep(state.o, result.o);
          keep(state.scale, result.scale);
          keep(state.moved, result.moved);
          if (integers) keep(state.coarse, result.coarse);
          if (!hooks.use_softmax) continue;
          result.lse[at] = state.lse;
          result.moved_lse[at] = state.moved_lse;
          if (integers) result.coarse_lse[at] = state.coarse_lse;
        }
      }
    }
  return result;
}

}  // namespace weft
