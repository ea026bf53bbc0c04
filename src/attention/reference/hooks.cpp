// A variant's own text in double, for the reference.
#include "attention/reference/hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/params.h"
#include "attention/spec.h"
#include "attention/variant/text.h"
#include "base/check.h"
#include "jit/host/module.h"

namespace weft::reference {
namespace {

constexpr double kMostRounding = 0.25;  // of a logit, or a share of a probability where there is no softmax

// The interval of keys, from its definition. A scalar of -1 switches its bound off.
std::optional<int64_t> value_of(const Bound& bound, const PlanInput& plan, const Score& c) {
  int64_t value = bound.constant;
  if (bound.q_pos) value += c.q_pos;
  if (bound.kv_len) value += c.kv_len;
  if (bound.scalar.empty()) return value;
  for (const ScalarArg& s : plan.scalars)
    if (s.name == bound.scalar) {
      if (s.value == -1) return {};
      return value + bound.scalar_sign * static_cast<int64_t>(s.value);
    }
  fail(ErrorCode::invalid_argument, "scalar '{}' is missing; an interval names it: add it to PlanInput::scalars",
       bound.scalar);
}

bool inside(const std::vector<Interval>& intervals, const PlanInput& plan, const Score& c) {
  if (intervals.empty()) return true;
  for (const Interval& interval : intervals) {
    bool in = true;
    for (const Bound& b : interval.lower) in = in && c.kv_pos >= value_of(b, plan, c).value_or(c.kv_pos);
    for (const Bound& b : interval.upper) in = in && c.kv_pos < value_of(b, plan, c).value_or(c.kv_pos + int64_t{1});
    if (in) return true;
  }
  return false;
}

// -O1: nothing here is worth vectorising, and the compiler is waited for.
const abi::ReferenceLeaf* compile(Hooks& hooks, const AttentionSpec& spec, TextFor purpose) {
  std::vector<std::string> flags = leaf_flags();
  flags.push_back("-O1");
  hooks.modules.push_back(jit::host_module({.name = fmt::format("reference {}", spec.variant.name),
                                            .text = reference_text(spec, purpose),
                                            .target = jit::host_target(Isa::plain),
                                            .flags = std::move(flags)})
                              .module);
  const auto* leaf = static_cast<const abi::ReferenceLeaf*>(hooks.modules.back()->symbol("weft_reference_leaf"));
  ensure(leaf != nullptr && leaf->version == abi::kLeafVersion, "the reference of '{}' has another version",
         spec.variant.name);
  static const abi::ReferenceMath math{std::exp, std::exp2, std::log, std::tanh, std::sin, std::cos};
  leaf->set_math(&math);
  return leaf;
}

}  // namespace

Hooks hooks(const AttentionSpec& spec, const PlanInput& given, const AttentionTensors& tensors) {
  Hooks h;
  PlanInput plan = given;
  for (const ScalarDecl& scalar : spec.variant.scalars) {
    const auto same = [&](const ScalarArg& arg) { return arg.name == scalar.name; };
    if (scalar.default_value && std::none_of(given.scalars.begin(), given.scalars.end(), same))
      plan.scalars.push_back({scalar.name, *scalar.default_value});
  }
  if (add_closed_forms(h, spec, plan, tensors)) return h;
  if (const auto& intervals = spec.variant.intervals; !intervals.empty())
    h.visible.push_back([intervals, plan](const Score& c) { return inside(intervals, plan, c); });
  h.use_softmax = spec.variant.use_softmax;
  if (spec.variant.text.empty()) return h;

  const abi::ReferenceLeaf *leaf = compile(h, spec, TextFor::reference),
                           *in_float = compile(h, spec, TextFor::reference_in_float);
  const float sm_scale = tensors.sm_scale.value_or(1.f / std::sqrt(static_cast<float>(spec.head_dim_qk)));
  // The text reads what plan was given, too.
  std::vector<ScalarArg> scalars = tensors.scalars;
  for (const ScalarDecl& declared : spec.variant.scalars) {
    const auto same = [&](const ScalarArg& arg) { return arg.name == declared.name; };
    const auto planned = std::find_if(plan.scalars.begin(), plan.scalars.end(), same);
    if (planned != plan.scalars.end() && std::none_of(scalars.begin(), scalars.end(), same))
      scalars.push_back(*planned);
  }
  const auto slots = pack_params(spec, sm_scale, scalars, tensors.tensors);
  if (leaf->logits != nullptr) {
    h.logits = [=](const Score& c, double s) { return leaf->logits(slots.data(), &c, s); };
    // Twice the most that evaluations around s show: at one s roundings may happen to be small, and another order of the
    // same operations rounds elsewhere. What is more than kMostRounding is no rounding, but a text that says something
    // else in float.
    h.logits_rounding = [=, softmax = h.use_softmax](const Score& c, double s) {
      double most = 0;
      for (const double step : {0., -0.43, -0.11, 0.17, 0.37}) {
        const double at = s + step, error = in_float->logits(slots.data(), &c, at) - leaf->logits(slots.data(), &c, at);
        if (std::isfinite(error)) most = std::max(most, std::abs(error));
      }
      return std::min(2 * most,
                      kMostRounding * (softmax ? 1 : std::max(1., std::abs(leaf->logits(slots.data(), &c, s)))));
    };
  }
  if (leaf->mask != nullptr) h.visible.push_back([=](const Score& c) { return leaf->mask(slots.data(), &c) != 0; });
  const auto vector_hook = [&](auto f) -> VectorHook {
    if (f == nullptr) return {};
    return [=](const abi::VectorRow& row, const double* x, double* y, int dim) { f(slots.data(), &row, x, y, dim); };
  };
  const auto both = [&](auto hook) { return VectorHooks{vector_hook(leaf->*hook), vector_hook(in_float->*hook)}; };
  h.query = both(&abi::ReferenceLeaf::query);
  h.key = both(&abi::ReferenceLeaf::key);
  h.value = both(&abi::ReferenceLeaf::value);
  h.output = both(&abi::ReferenceLeaf::output);
  if (leaf->lse != nullptr) h.lse = [=](const abi::VectorRow& row) { return leaf->lse(slots.data(), &row); };
  return h;
}

}  // namespace weft::reference
