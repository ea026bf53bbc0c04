// Built-in variants and masks as formulas, from their definitions and not from their texts.
#include <algorithm>
#include <cmath>

#include "attention/reference/hooks.h"
#include "base/check.h"

namespace weft::reference {
namespace {

double scalar(const std::vector<ScalarArg>& given, std::string_view name, std::optional<double> otherwise = {}) {
  for (const ScalarArg& s : given)
    if (s.name == name) return s.value;
  check(otherwise.has_value(), ErrorCode::invalid_argument, "scalar '{}' is missing; the reference needs it", name);
  return *otherwise;
}

TensorView tensor(const std::vector<TensorArg>& given, std::string_view name) {
  for (const TensorArg& t : given)
    if (t.name == name) return t.value;
  fail(ErrorCode::invalid_argument, "tensor '{}' is missing; the reference needs it", name);
}

void add_causal(Hooks& hooks) {
  hooks.visible.push_back([](const Score& c) { return c.kv_pos <= c.q_pos; });
}

void add_window(Hooks& hooks, const PlanInput& plan) {
  const double left = scalar(plan.scalars, "window_left");
  if (left == -1) return;
  hooks.visible.push_back([left](const Score& c) { return c.kv_pos >= c.q_pos - left; });
}

void add_mask(Hooks& hooks, bool packed, const PlanInput& plan, const AttentionTensors& tensors) {
  const auto* mask = tensor(tensors.tensors, "mask").as<const uint8_t>();
  const std::vector<int64_t> indptr(plan.mask_indptr.begin(), plan.mask_indptr.end());
  hooks.visible.push_back([=](const Score& c) {
    const int64_t element = int64_t{c.qo_idx} * c.kv_len + c.kv_idx;
    if (packed) return ((mask[indptr[c.batch] + element / 8] >> (element % 8)) & 1) == 1;
    return mask[indptr[c.batch] + element] != 0;
  });
}

}  // namespace

void add_masks(Hooks& hooks, const AttentionSpec& spec, const PlanInput& plan, const AttentionTensors& tensors) {
  if (spec.mask == Mask::causal) add_causal(hooks);
  if (spec.sliding_window) add_window(hooks, plan);
  if (spec.mask == Mask::custom || spec.mask == Mask::custom_packed)
    add_mask(hooks, spec.mask == Mask::custom_packed, plan, tensors);
}

bool add_closed_form(Hooks& hooks, const Variant& v, const PlanInput& plan, const AttentionTensors& tensors) {
  if (v == variants::plain()) return true;
  if (v == variants::causal()) {
    add_causal(hooks);
  } else if (v == variants::sliding_window()) {
    add_window(hooks, plan);
  } else if (v == variants::custom_mask() || v == variants::custom_mask_packed()) {
    add_mask(hooks, v == variants::custom_mask_packed(), plan, tensors);
  } else if (v == variants::logits_soft_cap()) {
    const double cap = scalar(tensors.scalars, "cap");
    if (cap > 0 && std::isfinite(cap))
      hooks.logits = [cap](const Score&, double s) { return cap * std::tanh(s / cap); };
  } else if (v == variants::alibi()) {
    const TensorView slopes = tensor(tensors.tensors, "slopes");
    hooks.logits = [slopes](const Score& c, double s) {
      const double distance = c.q_pos - c.kv_pos;  // back to the key
      return s - static_cast<double>(slopes.as<const float>()[c.qo_head * slopes.stride(0)]) * distance;
    };
  } else if (v == variants::sigmoid()) {
    const double bias = scalar(tensors.scalars, "bias", 0.0);
    hooks.use_softmax = false;
    hooks.logits = [bias](const Score&, double s) { return 0.5 + 0.5 * std::tanh((s + bias) / 2); };
  } else if (v == variants::attention_sink()) {
    // One more key: exp(sink) in the sum, nothing in the output.
    const TensorView sinks = tensor(tensors.tensors, "sinks");
    const auto sink = [sinks](const abi::VectorRow& row) {
      return double{sinks.as<const float>()[row.head * sinks.stride(0)]};
    };
    hooks.output = [sink](const abi::VectorRow& row, const double* x, double* y, int dim) {
      const double share = std::isinf(row.lse) ? 0 : 1 / (1 + std::exp(sink(row) - row.lse));
      for (int i = 0; i < dim; ++i) y[i] = x[i] * share;
    };
    hooks.lse = [sink](const abi::VectorRow& row) {
      const double more = std::max(sink(row), row.lse), less = std::min(sink(row), row.lse);
      return std::isinf(less) ? more : more + std::log1p(std::exp(less - more));
    };
  } else {
    return false;
  }
  return true;
}

}  // namespace weft::reference
