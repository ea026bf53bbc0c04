// The hooks of a call: closed forms, or the variant's own text in double.
#include "attention/reference/hooks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attention/params.h"
#include "attention/reference/text.h"
#include "attention/spec.h"
#include "attention/variant/text.h"
#include "base/check.h"
#include "jit/host/module.h"

namespace weft::reference {
namespace {

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
const abi::ReferenceLeaf* compile(Hooks& hooks, const AttentionSpec& spec, const std::string& text) {
  std::vector<std::string> flags = jit::standalone_flags(jit::host_compiler());
  flags.push_back("-O1");
  hooks.code = jit::host_module({.name = fmt::format("reference {}", spec.variant.name),
                                 .text = text,
                                 .target = jit::host_target(Isa::plain),
                                 .flags = std::move(flags)})
                   .module;
  const auto* leaf = static_cast<const abi::ReferenceLeaf*>(hooks.code->symbol("weft_reference_leaf"));
  ensure(leaf != nullptr && leaf->version == abi::kLeafVersion, "the reference of '{}' has another version",
         spec.variant.name);
  static const abi::ReferenceMath math{std::exp, std::exp2, std::log, std::tanh, std::sin, std::cos};
  leaf->set_math(&math);
  return leaf;
}

bool has(const std::vector<ScalarArg>& scalars, const std::string& name) {
  return std::any_of(scalars.begin(), scalars.end(), [&](const ScalarArg& arg) { return arg.name == name; });
}

PlanInput with_defaults(const AttentionSpec& spec, PlanInput plan) {
  for (const ScalarDecl& scalar : spec.variant.scalars)
    if (scalar.default_value && !has(plan.scalars, scalar.name))
      plan.scalars.push_back({scalar.name, *scalar.default_value});
  return plan;
}

}  // namespace

Vector transformed(const VectorHook& hook, const abi::VectorRow& row, Vector x) {
  if (!hook) return x;
  Vector y(x.size());
  hook(row, x.data(), y.data(), static_cast<int>(x.size()));
  return y;
}

Hooks compiled_hooks(const AttentionSpec& spec, const PlanInput& given, const AttentionTensors& tensors,
                     const std::string& text) {
  // The text reads what plan was given, too.
  std::vector<ScalarArg> scalars = tensors.scalars;
  const PlanInput plan = with_defaults(spec, given);
  for (const ScalarDecl& declared : spec.variant.scalars) {
    const auto planned = std::find_if(plan.scalars.begin(), plan.scalars.end(),
                                      [&](const ScalarArg& arg) { return arg.name == declared.name; });
    if (planned != plan.scalars.end() && !has(scalars, declared.name)) scalars.push_back(*planned);
  }
  const float sm_scale = tensors.sm_scale.value_or(1.f / std::sqrt(static_cast<float>(spec.head_dim_qk)));
  std::vector<TensorArg> tensor_args = tensors.tensors;
  if (leaf_parts(spec).mask != Mask::none)
    tensor_args.push_back({"mask_indptr", TensorView(const_cast<int64_t*>(plan.mask_indptr.data()), DType::int64,
                                                     {static_cast<int64_t>(plan.mask_indptr.size())})});
  const auto slots = pack_params(spec, sm_scale, scalars, tensor_args);

  Hooks h;
  h.use_softmax = spec.variant.use_softmax;
  const abi::ReferenceLeaf* leaf = compile(h, spec, text);
  if (leaf->logits != nullptr) h.logits = [=](const Score& c, double s) { return leaf->logits(slots.data(), &c, s); };
  if (leaf->mask != nullptr) h.visible.push_back([=](const Score& c) { return leaf->mask(slots.data(), &c) != 0; });
  const auto vector_hook = [&](auto f) -> VectorHook {
    if (f == nullptr) return {};
    return [=](const abi::VectorRow& row, const double* x, double* y, int dim) { f(slots.data(), &row, x, y, dim); };
  };
  h.query = vector_hook(leaf->query);
  h.key = vector_hook(leaf->key);
  h.value = vector_hook(leaf->value);
  h.output = vector_hook(leaf->output);
  if (leaf->lse != nullptr) h.lse = [=](const abi::VectorRow& row) { return leaf->lse(slots.data(), &row); };
  return h;
}

Hooks hooks(const AttentionSpec& spec, const PlanInput& given, const AttentionTensors& tensors,
            const ReferenceScope& scope) {
  const PlanInput plan = with_defaults(spec, given);
  Hooks h;
  if (!add_closed_form(h, spec.variant, plan, tensors)) {
    if (!spec.variant.text.empty()) h = compiled_hooks(spec, given, tensors, text_in_double(spec));
    h.use_softmax = spec.variant.use_softmax;
    if (const auto& intervals = spec.variant.intervals; !intervals.empty())
      h.visible.push_back([intervals, plan](const Score& c) { return inside(intervals, plan, c); });
  }
  add_masks(h, spec, plan, tensors);
  if (scope.partial) {
    h.output = {};
    h.lse = {};
  }
  h.visible.push_back([scope](const Score& c) { return c.kv_pos >= scope.key_begin && c.kv_pos < scope.key_end; });
  return h;
}

}  // namespace weft::reference
