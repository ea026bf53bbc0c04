// `weft bench attention --numerics`: the worst error of each kernel against fp64, as a share of its bound.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <random>

#include "attention/cpu/traits.h"
#include "attention/kernel.h"
#include "attention/reference/error_model/error_model.h"
#include "bench/calls.h"
#include "bench/variants.h"
#include "ops/elementwise.h"

namespace weft::bench {
namespace {

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

double value_of(const TensorView& t, int64_t index) {
  if (t.dtype() == DType::fp32) return t.as<const float>()[index];
  const uint16_t bits = t.as<const uint16_t>()[index];
  float x;
  (t.dtype() == DType::bf16 ? ops::elementwise().from_bf16 : ops::elementwise().from_fp16)(&bits, 1, &x);
  return x;
}

struct Case {
  std::string name;
  AttentionSpec spec;
  Shape shape = {4, 2, 64};
  std::vector<ScalarArg> scalars = {};
  VariantTensors tensors = {};
};

// A mask of every third key, at random, as the spec's mask takes it.
struct RandomMask {
  RandomMask(Mask form, int64_t elements) : bytes(static_cast<size_t>(elements)), indptr{0, elements} {
    std::mt19937 random(5);
    for (uint8_t& seen : bytes) seen = random() % 3 != 0;
    if (form != Mask::custom_packed) return;
    std::vector<int64_t> packed_indptr;
    bytes = pack_mask(bytes, indptr, packed_indptr);
    indptr = packed_indptr;
  }
  std::vector<TensorArg> args() const {
    return {{"mask", TensorView(bytes.data(), DType::uint8, {static_cast<int64_t>(bytes.size())})}};
  }
  std::vector<uint8_t> bytes;
  std::vector<int64_t> indptr;
};

constexpr int kPrompt = 70, kLongest = 2000;

// The worst |o - o*| / bound over a decode and a prefill shape.
double worst_error(const AttentionKernel& kernel, const Case& c, bool quick, WorkerTeam& team) {
  struct Lengths {
    int qo_len, kv_len;
  };
  const AttentionSpec& spec = kernel.spec();
  double worst = 0;
  for (const Lengths& lengths : {Lengths{1, kLongest}, {kPrompt, 300}}) {
    if (quick && lengths.qo_len > 1) continue;
    Batch batch(spec, c.shape, lengths.qo_len, {lengths.kv_len}, 16, team.num_workers());
    if (spec.sliding_window) batch.input.scalars = {{"window_left", 100}};
    batch.tensors.sm_scale = 1.f;  // sharp enough that single keys win
    batch.tensors.scalars = c.scalars;
    batch.tensors.tensors = c.tensors.args();
    const RandomMask mask(spec.mask, int64_t{lengths.qo_len} * lengths.kv_len);
    if (spec.mask == Mask::custom || spec.mask == Mask::custom_packed) {
      for (const TensorArg& arg : mask.args()) batch.tensors.tensors.push_back(arg);
      batch.input.mask_indptr = mask.indptr;
    }
    const attention::Rounding rounding = kernel.impl().backend->rounding(spec, kernel.impl().compute);
    const MeasuredReference expected = measured_reference(spec, batch.input, batch.tensors, rounding);
    const Plan plan = kernel.plan(batch.input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    kernel.run(plan, batch.tensors, workspace, Stream::cpu(team));
    const ErrorBound error_bound(spec, rounding);
    for (size_t i = 0; i < expected.o.size(); ++i) {
      const double bound = error_bound(lengths.kv_len, expected, i);
      const double error = std::abs(value_of(batch.tensors.o, static_cast<int64_t>(i)) - expected.o[i]) / bound;
      worst = std::isnan(error) ? std::numeric_limits<double>::infinity() : std::max(worst, error);
    }
  }
  return worst;
}

// What the machine multiplies such types in.
std::vector<DType> compute_types(const AttentionSpec& spec) {
  const bool integers = spec.kv_dtype == DType::int8 || spec.kv_dtype == DType::int4;
  if (integers && current_isa() >= Isa::avx512) return {DType::int8, DType::fp32};
  if (spec.q_dtype == DType::bf16 && spec.kv_dtype == DType::bf16 && current_isa() == Isa::avx512_bf16)
    return {DType::fp32, DType::bf16};
  return {DType::fp32};
}

std::vector<Case> dtype_cases() {
  std::vector<Case> cases;
  for (const DType q : kTypes)
    for (const DType kv : kTypes)
      for (const DType o : kTypes) {
        AttentionSpec spec = make_spec(q, 64, Mask::causal);
        spec.kv_dtype = kv;
        spec.o_dtype = o;
        cases.push_back({"causal", spec});
      }
  for (const DType kv : {DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4})
    for (const KvScales scales :
         {KvScales::none, KvScales::tensor, KvScales::head, KvScales::token, KvScales::token_group}) {
      if (scales == KvScales::none && (kv == DType::int8 || kv == DType::int4)) continue;  // they need some
      AttentionSpec spec = make_spec(DType::bf16, 64, Mask::causal);
      spec.kv_dtype = kv;
      spec.o_dtype = DType::fp32;
      spec.kv_scales = scales;
      spec.kv_scale_group = scales == KvScales::token_group ? 4 : 0;
      cases.push_back({fmt::format("causal, scales {}", to_string(scales)), spec});
    }
  return cases;
}

std::vector<Case> variant_cases(DType dtype) {
  std::vector<Case> cases;
  const auto add = [&](const char* name, Mask mask, const Variant& variant = {}) -> Case& {
    cases.push_back({name, make_spec(dtype, 64, mask, variant)});
    return cases.back();
  };
  const auto of_heads = [](const char* name, const std::vector<float>& numbers) {
    VariantTensors tensors;
    tensors.add(name, numbers, {4});
    return tensors;
  };
  add("no mask", Mask::none);
  add("causal window", Mask::causal).spec.sliding_window = true;
  const Variant sinks_and_window = {
      .name = "SinksAndWindow",
      .text = "struct SinksAndWindow {};\n",
      .intervals = {{.upper = {{.constant = 4}, {.q_pos = true, .constant = 1}}},
                    {.lower = {{.q_pos = true, .constant = -99}}, .upper = {{.q_pos = true, .constant = 1}}}}};
  add("first tokens and window", Mask::none, sinks_and_window);
  add("custom mask", Mask::custom);
  add("packed mask", Mask::custom_packed);
  add("soft cap", Mask::causal, variants::logits_soft_cap()).scalars = {{"cap", 5}};
  add("ALiBi", Mask::causal, variants::alibi()).tensors = of_heads("slopes", {0.5f, 0.25f, 0.125f, 0.0625f});
  add("sigmoid", Mask::causal, variants::sigmoid()).scalars = {{"bias", -3}};
  add("attention sink", Mask::causal, variants::attention_sink()).tensors = of_heads("sinks", {-1, 0, 4, 9});
  add("RoPE inside", Mask::causal, rope_inside()).tensors = rope_tables(kLongest, 64);
  VariantTensors weights;
  for (const char* name : {"q_weight", "k_weight"}) {
    std::vector<float> numbers(64);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = 0.5f + static_cast<float>(i % 5) / 8;
    weights.add(name, numbers, {64});
  }
  add("QK norm inside", Mask::causal, qk_norm_inside()).tensors = std::move(weights);
  add("linear with decay", Mask::causal, decay()).tensors = of_heads("log2_decay", {-0.2f, -0.1f, -0.05f, -0.01f});
  Case& latent = add("latent rows 512 + 64", Mask::causal);
  latent.spec.kv_form = KvForm::latent;
  latent.spec.head_dim_qk = 576;
  latent.spec.head_dim_vo = 512;
  latent.shape = {16, 1, 576};
  return cases;
}

void add_errors(AttentionBench& bench, const Case& c) {
  for (const DType compute : compute_types(c.spec)) {
    stop_if_asked();
    AttentionSpec spec = c.spec;
    spec.compute = compute;
    const std::string name = fmt::format("numerics {}, q {} kv {} o {} ({} products)", c.name, to_string(spec.q_dtype),
                                         to_string(spec.kv_dtype), to_string(spec.o_dtype), to_string(compute));
    if (!bench.wants(name)) continue;
    const AttentionKernel kernel = build(spec, Device::cpu());
    bench.report.add(
        {"attention", name, "worst error / bound", worst_error(kernel, c, bench.options.quick, bench.team), "", 1});
  }
}

}  // namespace

void measure_numerics(AttentionBench& bench) {
  for (const Case& c : dtype_cases()) add_errors(bench, c);
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const Case& c : variant_cases(dtype)) add_errors(bench, c);
}

}  // namespace weft::bench
