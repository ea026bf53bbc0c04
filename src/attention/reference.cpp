#include "attention/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "attention/reference_hooks.h"
#include "base/check.h"

namespace weft {
namespace {

using Vector = std::vector<double>;
using reference::Hooks;
using reference::Score;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kSlopeStep = 1e-4;  // of a logit, to either side

Vector vector_at(const TensorView& t, int64_t i, int64_t j, int64_t k) {  // rank 3: (i, j); rank 4: (i, j, k)
  const bool rank4 = t.rank() == 4;
  const int64_t start = i * t.stride(0) + j * t.stride(1) + (rank4 ? k * t.stride(2) : 0);
  Vector v(static_cast<size_t>(t.shape(t.rank() - 1)));
  for (size_t d = 0; d < v.size(); ++d) v[d] = element(t, start + static_cast<int64_t>(d) * t.stride(t.rank() - 1));
  return v;
}

// Where a token lies: in a slot of a page, or of a request, or in a row of the token axis.
struct Place {
  int64_t outer, inner;
};

Vector kv_vector(const AttentionSpec& spec, const TensorView& kv, const Place& at, int h) {
  const bool nhd = spec.layout == Layout::nhd;
  if (spec.kv_form == KvForm::ragged) return nhd ? vector_at(kv, at.inner, h, 0) : vector_at(kv, h, at.inner, 0);
  return nhd ? vector_at(kv, at.outer, at.inner, h) : vector_at(kv, at.outer, h, at.inner);
}

void add_pages(const PageTableView& pages, size_t entry, std::vector<Place>& tokens) {
  for (int page = pages.kv_page_indptr[entry]; page < pages.kv_page_indptr[entry + 1]; ++page) {
    const bool last = page + 1 == pages.kv_page_indptr[entry + 1];
    for (int slot = 0; slot < (last ? pages.kv_last_page_len[entry] : pages.page_size); ++slot)
      tokens.push_back({pages.kv_page_indices[static_cast<size_t>(page)], slot});
  }
}

// The tokens of each request, in the order of their positions.
std::vector<std::vector<Place>> places(const AttentionSpec& spec, const PlanInput& in,
                                       std::span<const int32_t> qo_indptr) {
  const size_t batch = qo_indptr.size() - 1;
  std::vector<std::vector<Place>> tokens(batch);
  if (spec.kv_form != KvForm::paged) {
    const bool ragged = spec.kv_form == KvForm::ragged;
    for (size_t r = 0; r < batch; ++r)
      for (int t = 0; t < (ragged ? in.kv_indptr[r + 1] - in.kv_indptr[r] : in.kv_len[r]); ++t)
        tokens[r].push_back({static_cast<int64_t>(r), ragged ? in.kv_indptr[r] + t : t});
    return tokens;
  }
  if (in.levels.empty())
    for (size_t r = 0; r < batch; ++r) add_pages(in.pages, r, tokens[r]);
  for (const Level& level : in.levels) {
    int row = 0;
    for (size_t place = 0; place < batch; ++place) {
      const size_t r = in.request_order.empty() ? place : static_cast<size_t>(in.request_order[place]);
      const int qo_len = qo_indptr[r + 1] - qo_indptr[r];
      for (size_t entry = 0; qo_len > 0 && entry + 1 < level.qo_indptr.size(); ++entry)
        if (level.qo_indptr[entry] <= row && row < level.qo_indptr[entry + 1]) add_pages(level.pages, entry, tokens[r]);
      row += qo_len;
    }
  }
  return tokens;
}

Vector transformed(const reference::VectorHook& hook, const abi::VectorRow& row, Vector x) {
  if (!hook) return x;
  Vector y(x.size());
  hook(row, x.data(), y.data(), static_cast<int>(x.size()));
  return y;
}

// o and what errors of o are measured against, after the output transform: errors pass through its derivative.
void transform_output(const Hooks& hooks, const abi::VectorRow& row, Vector& o, Vector& scale) {
  if (!hooks.output) return;
  const Vector before = o;
  o = transformed(hooks.output, row, before);
  Vector after(o.size());
  for (size_t i = 0; i < o.size(); ++i) after[i] = std::abs(o[i]);
  for (size_t k = 0; k < before.size(); ++k) {
    const double step = 1e-6 * std::max(1.0, std::abs(before[k]));
    Vector up = before, down = before;
    up[k] += step;
    down[k] -= step;
    up = transformed(hooks.output, row, up);
    down = transformed(hooks.output, row, down);
    for (size_t i = 0; i < o.size(); ++i) after[i] += std::abs(up[i] - down[i]) / (2 * step) * scale[k];
  }
  scale = after;
}

// One query row and head against the keys and values of its request: o, lse and scale.
struct RowState {
  Vector o, scale;
  double lse = -kInfinity;
};
RowState attend_row(const Hooks& hooks, const Vector& q, const std::vector<Vector>& keys,
                    const std::vector<Vector>& values, Score c, double sm_scale, size_t dim) {
  RowState out{Vector(dim), Vector(dim)};
  std::vector<double> logits(keys.size(), -kInfinity), weights(keys.size());  // -inf: hidden
  double top = -kInfinity, stretch = 1;
  std::vector<bool> seen(keys.size());
  for (size_t j = 0; j < keys.size(); ++j) {
    c.kv_idx = c.kv_pos = static_cast<int>(j);
    seen[j] = std::all_of(hooks.visible.begin(), hooks.visible.end(), [&](const auto& f) { return f(c); });
    if (!seen[j]) continue;
    double dot = 0, size = 0;
    for (size_t d = 0; d < q.size(); ++d) {
      dot += q[d] * keys[j][d];
      size += std::abs(q[d] * keys[j][d]);
    }
    const double s = dot * sm_scale;
    size *= std::abs(sm_scale) / kReferenceLogit;
    logits[j] = hooks.logits ? hooks.logits(c, s) : s;
    top = std::max(top, logits[j]);
    // The error of s, times the slope of what becomes of it.
    const double slope =
        hooks.logits ? std::abs(hooks.logits(c, s + kSlopeStep) - hooks.logits(c, s - kSlopeStep)) / (2 * kSlopeStep)
                     : 1;
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
    const double weight = hooks.use_softmax ? p * stretch : weights[j];
    for (size_t d = 0; d < dim; ++d) {
      out.o[d] += p * values[j][d];
      out.scale[d] += weight * std::abs(values[j][d]);
    }
  }
  if (top != -kInfinity) out.lse = top + std::log(sum);
  return out;
}

}  // namespace

double element(const TensorView& t, int64_t offset) {
  if (t.dtype() == DType::fp32) return static_cast<double>(t.as<const float>()[offset]);
  const uint16_t bits = t.as<const uint16_t>()[offset];
  if (t.dtype() == DType::bf16) return static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits) << 16));
  check(t.dtype() == DType::fp16, ErrorCode::invalid_dtype, "the reference reads fp32, fp16 and bf16, not {}",
        to_string(t.dtype()));
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * kInfinity;
  return exponent == 0 ? sign * std::ldexp(mantissa, -24) : sign * std::ldexp(1024 + mantissa, exponent - 25);
}

ReferenceResult attention_reference(const AttentionSpec& spec, const PlanInput& in, const AttentionTensors& tensors,
                                    const ReferencePart& part) {
  const std::span<const int32_t> qo_indptr = in.qo_indptr.empty() ? in.levels.back().qo_indptr : in.qo_indptr;
  const std::vector<std::vector<Place>> tokens = places(spec, in, qo_indptr);
  Hooks hooks = reference::hooks(spec, in, tensors);
  if (part.partial) hooks.output = {};
  hooks.visible.push_back([&](const Score& c) { return c.kv_pos >= part.key_begin && c.kv_pos < part.key_end; });
  const size_t dim = static_cast<size_t>(spec.head_dim_vo);
  const double sm_scale = tensors.sm_scale ? static_cast<double>(*tensors.sm_scale) : 1 / std::sqrt(spec.head_dim_qk);
  const size_t rows = static_cast<size_t>(qo_indptr.back()) * static_cast<size_t>(in.num_qo_heads);
  ReferenceResult result{Vector(rows * dim), Vector(hooks.use_softmax ? rows : 0), Vector(rows * dim)};
  const int group = in.num_qo_heads / in.num_kv_heads;

  for (int r = 0; r + 1 < static_cast<int>(qo_indptr.size()); ++r)
    for (int kv_head = 0; kv_head < in.num_kv_heads; ++kv_head) {
      const std::vector<Place>& own = tokens[static_cast<size_t>(r)];
      const int first = qo_indptr[static_cast<size_t>(r)], kv_len = static_cast<int>(own.size());
      const int qo_len = qo_indptr[static_cast<size_t>(r) + 1] - first;
      if (first >= part.row_end || first + qo_len <= part.row_begin) continue;
      std::vector<Vector> keys, values;
      for (int t = 0; t < kv_len; ++t) {
        const abi::VectorRow row{r, t, t, kv_head};
        keys.push_back(
            transformed(hooks.key, row, kv_vector(spec, tensors.kv.k, own[static_cast<size_t>(t)], kv_head)));
        values.push_back(
            transformed(hooks.value, row, kv_vector(spec, tensors.kv.v, own[static_cast<size_t>(t)], kv_head)));
      }
      for (int i = 0; i < qo_len; ++i) {
        if (first + i < part.row_begin || first + i >= part.row_end) continue;
        for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
          const abi::VectorRow row{r, i, kv_len - qo_len + i, head};
          const Vector q = transformed(hooks.query, row, vector_at(tensors.q, first + i, head, 0));
          RowState state =
              attend_row(hooks, q, keys, values, {r, i, 0, head, kv_head, row.pos, 0, qo_len, kv_len}, sm_scale, dim);
          transform_output(hooks, row, state.o, state.scale);
          const size_t at =
              static_cast<size_t>(first + i) * static_cast<size_t>(in.num_qo_heads) + static_cast<size_t>(head);
          std::copy(state.o.begin(), state.o.end(), result.o.begin() + static_cast<std::ptrdiff_t>(at * dim));
          std::copy(state.scale.begin(), state.scale.end(),
                    result.scale.begin() + static_cast<std::ptrdiff_t>(at * dim));
          if (hooks.use_softmax) result.lse[at] = state.lse;
        }
      }
    }
  return result;
}

}  // namespace weft
