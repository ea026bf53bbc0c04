// `weft bench attention --numerics`: the worst error of each kernel against fp64, as a share of its bound.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "attention/kernel.h"
#include "attention/reference.h"
#include "cli/bench_calls.h"

namespace weft::cli {
namespace {

constexpr DType kTypes[] = {DType::fp32, DType::fp16, DType::bf16};

double value_of(const TensorView& t, int64_t index) {
  if (t.dtype() == DType::fp32) return t.as<const float>()[index];
  const uint16_t bits = t.as<const uint16_t>()[index];
  if (t.dtype() == DType::bf16) {
    const uint32_t wide = static_cast<uint32_t>(bits) << 16;
    float x;
    std::memcpy(&x, &wide, sizeof x);
    return x;
  }
  const int exponent = bits >> 10 & 31;
  const double x = exponent == 0 ? std::ldexp(bits & 1023, -24) : std::ldexp(1024 + (bits & 1023), exponent - 25);
  return bits & 0x8000 ? -x : x;
}

// The worst |o - o*| / bound over a decode and a prefill shape.
double worst_error(const AttentionKernel& kernel, const std::vector<ScalarArg>& scalars, bool quick, WorkerTeam& team) {
  struct Lengths {
    int qo_len, kv_len;
  };
  constexpr Lengths kLengths[] = {{1, 2000}, {70, 300}};
  constexpr Shape kShape = {4, 2, 64};
  const AttentionSpec& spec = kernel.spec();
  double worst = 0;
  for (const Lengths& lengths : kLengths) {
    if (quick && lengths.qo_len > 1) continue;
    Batch batch(spec, kShape, lengths.qo_len, {lengths.kv_len}, 16, team.num_workers());
    if (spec.sliding_window) batch.input.scalars = {{"window_left", 100}};
    batch.tensors.sm_scale = 1.f;  // sharp enough that single keys win
    batch.tensors.scalars = scalars;
    const std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};
    for (const TensorDecl& tensor : spec.variant.tensors)
      batch.tensors.tensors.push_back({tensor.name, TensorView(slopes.data(), DType::fp32, {kShape.qo_heads})});
    std::vector<uint8_t> mask(static_cast<size_t>(lengths.qo_len * lengths.kv_len)), packed;
    std::mt19937 random(5);
    for (uint8_t& seen : mask) seen = random() % 3 != 0;
    std::vector<int64_t> indptr = {0, static_cast<int64_t>(mask.size())}, packed_indptr;
    packed = pack_mask(mask, indptr, packed_indptr);
    if (spec.mask == Mask::custom || spec.mask == Mask::custom_packed) {
      const bool bits = spec.mask == Mask::custom_packed;
      const std::vector<uint8_t>& given = bits ? packed : mask;
      const std::vector<int64_t>& given_indptr = bits ? packed_indptr : indptr;
      batch.tensors.tensors.push_back(
          {"mask", TensorView(given.data(), DType::uint8, {static_cast<int64_t>(given.size())})});
      batch.tensors.tensors.push_back({"mask_indptr", TensorView(given_indptr.data(), DType::int64, {2})});
    }
    const ReferenceResult expected = attention_reference(spec, batch.input, batch.tensors);
    const Plan plan = kernel.plan(batch.input);
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    kernel.run(plan, batch.tensors, workspace, Stream::cpu(team));
    const ErrorBound error_bound(spec, kernel.impl().compute);
    for (size_t i = 0; i < expected.o.size(); ++i) {
      const double bound = error_bound(lengths.kv_len, expected.o[i], expected.scale[i]);
      worst = std::max(worst, std::abs(value_of(batch.tensors.o, static_cast<int64_t>(i)) - expected.o[i]) / bound);
    }
  }
  return worst;
}

void add_error(Bench& bench, const AttentionSpec& spec, const std::string& variant,
               const std::vector<ScalarArg>& scalars) {
  const AttentionKernel kernel = build(spec, Device::cpu());
  bench.report.add({"attention",
                    fmt::format("numerics {}, q {} kv {} o {} ({} products)", variant, to_string(spec.q_dtype),
                                to_string(spec.kv_dtype), to_string(spec.o_dtype), to_string(kernel.impl().compute)),
                    "worst error / bound", worst_error(kernel, scalars, bench.options.quick, bench.team), "", 1});
}

}  // namespace

void bench_numerics(Bench& bench) {
  for (const DType q : kTypes)
    for (const DType kv : kTypes)
      for (const DType o : kTypes) {
        AttentionSpec spec = make_spec(q, 64, Mask::causal);
        spec.kv_dtype = kv;
        spec.o_dtype = o;
        add_error(bench, spec, "causal", {});
      }
  struct Case {
    const char* name;
    Mask mask;
    bool window = false;
    Variant variant = {};
    std::vector<ScalarArg> scalars = {};
  };
  const Case cases[] = {{"no mask", Mask::none},
                        {"causal window", Mask::causal, true},
                        {"custom mask", Mask::custom},
                        {"packed mask", Mask::custom_packed},
                        {"soft cap", Mask::causal, false, variants::logits_soft_cap(), {{"cap", 5}}},
                        {"ALiBi", Mask::causal, false, variants::alibi()},
                        {"sigmoid", Mask::causal, false, variants::sigmoid(), {{"bias", -3}}}};
  for (const Case& c : cases)
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      AttentionSpec spec = make_spec(dtype, 64, c.mask);
      spec.sliding_window = c.window;
      spec.variant = c.variant;
      add_error(bench, spec, c.name, c.scalars);
    }
}

}  // namespace weft::cli
