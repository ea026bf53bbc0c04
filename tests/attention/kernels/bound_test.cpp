// The error bound where variants make large numbers: it holds for a kernel, and is broken by a value that is lost.
#include <gtest/gtest.h>

#include <cmath>

#include "attention/cpu/leaf.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

// Runs one case on every instruction set and in every type of product; what is wrong.
std::string wrong(const Case& c, Problem& problem) {
  for (const Target* target : testing::targets_of_case(0)) {
    AttentionSpec spec = problem.spec();
    for (const DType compute : target->compute_types(problem.spec())) {
      spec.compute = compute;
      const AttentionKernel kernel = build_on(*target, spec);
      const Plan plan = kernel.plan(problem.input(7));
      problem.poison_outputs();
      run_on(*target, kernel, plan, problem.tensors());
      const std::string report = problem.compare(compute);
      if (!report.empty())
        return to_string(c) + " " + target->name() + " " + std::string(to_string(compute)) + "\n" + report;
    }
  }
  return "";
}
std::string wrong(const Case& c) {
  Problem problem(c);
  (void)problem.reference();
  return wrong(c, problem);
}

// The same with one value in `every` lost after the reference was computed: the bound must say so.
bool finds_a_lost_value(const Case& c, int every) {
  Problem problem(c);
  (void)problem.reference();
  const TensorView v = problem.tensors().kv.v;
  for (int64_t page = 0; page < v.shape(0); ++page)
    for (int64_t slot = page % every; slot < v.shape(1); slot += every)
      for (int64_t d = 0; d < v.shape(3); ++d)
        testing::put(v.data(), c.kv_dtype, page * v.stride(0) + slot * v.stride(1) + d, 0);
  return !wrong(c, problem).empty();
}

// Pairs of elements are turned by position * freq, an angle in float.
Variant rotation(const char* angle) {
  std::string text = R"(struct Rotation {
  real angle(P p, int i, Row r) { return ANGLE; }
  real query_transform(P p, Vec x, int i, Row r) {
    const real a = angle(p, i, r);
    return x[i] * weft::cos(a) + weft::pair_halves(x, i) * weft::sin(a);
  }
  real key_transform(P p, Vec x, int i, Row r) {
    const real a = angle(p, i, r);
    return x[i] * weft::cos(a) + weft::pair_halves(x, i) * weft::sin(a);
  }
};
)";
  text.replace(text.find("ANGLE"), 5, angle);
  return {.name = "Rotation", .text = text, .tensors = {{.name = "freq"}}};
}

std::vector<float> frequencies(int dim, float base) {
  std::vector<float> freq;
  for (int i = 0; i < dim; ++i)
    freq.push_back(std::pow(base, -2.f * static_cast<float>(i % (dim / 2)) / static_cast<float>(dim)));
  return freq;
}
TensorArg tensor_of(const char* name, const std::vector<float>& numbers) {
  return {name, TensorView(numbers.data(), DType::fp32, {static_cast<int64_t>(numbers.size())})};
}

const std::vector<std::pair<DType, DType>> kBoundTypes = {
    {DType::fp32, DType::fp32}, {DType::bf16, DType::bf16}, {DType::bf16, DType::int8}};
Case of_types(std::pair<DType, DType> types) {
  return {.q_dtype = types.first,
          .kv_dtype = types.second,
          .kv_scales = types.second == DType::int8 ? KvScales::head : KvScales::none};
}

TEST(BoundOfKernels, HoldsForAlibisOfLargeDistances) {
  for (const auto& types : kBoundTypes)
    for (const float slope : {-0.5f, -0.0371f}) {
      const std::vector<float> slopes(2, slope);
      Case c = of_types(types);
      c.group = 2;
      c.lengths = {{1, 32768}, {3, 900}};
      c.variant = variants::alibi();
      c.tensors = {tensor_of("slopes", slopes)};
      EXPECT_EQ(wrong(c), "") << slope;
    }
}

TEST(BoundOfKernels, HoldsForTransformsWithLargeIntermediates) {
  // Far terms that cancel, and a logit that is large itself.
  const Variant far{.name = "Far",
                    .text =
                        "struct Far {\n  real logits_transform(P p, Score c, real s) {\n    return (s + "
                        "real(c.kv_pos) * p.step) - real(c.q_pos) * p.step;\n  }\n};\n",
                    .scalars = {{.name = "step"}}};
  const Variant steep{.name = "Steep",
                      .text =
                          "struct Steep {\n  real logits_transform(P p, Score, real s) { return s * p.step * "
                          "weft::tanh(s); }\n};\n",
                      .scalars = {{.name = "step"}}};
  for (const auto& types : kBoundTypes)
    for (const Variant& variant : {far, steep}) {
      Case c = of_types(types);
      c.lengths = {{2, 5000}, {1, 700}};
      c.mask = Mask::causal;
      c.variant = variant;
      c.scalars = {{"step", 0.37}};
      EXPECT_EQ(wrong(c), "") << variant.name;
      c.scalars = {{"step", 30.1}};
      EXPECT_EQ(wrong(c), "") << variant.name;
    }
}

TEST(BoundOfKernels, HoldsForSoftCapsThatLogitsReach) {
  for (const auto& [cap, query_scale] : {std::pair{30., 200.}, {700., 200.}, {700., 1500.}, {5000., 9000.}}) {
    Case c;
    c.lengths = {{1, 600}, {4, 90}};
    c.query_scale = query_scale;
    c.variant = variants::logits_soft_cap();
    c.scalars = {{"cap", cap}};
    EXPECT_EQ(wrong(c), "") << cap;
  }
}

TEST(BoundOfKernels, HoldsForRotationsWithAnglesInFloat) {
  const std::vector<float> freq = frequencies(64, 10000);
  for (const auto& types : kBoundTypes)
    for (const char* angle : {"real(r.pos) * p.freq(i)", "real(r.pos) * weft::exp(real(i % 32) * real(-0.2878231366))"})
      for (const int kv_len : {2000, 16000}) {
        Case c = of_types(types);
        c.lengths = {{1, kv_len}};
        c.query_scale = 8;  // sharp enough that few keys win
        c.variant = rotation(angle);
        c.tensors = {tensor_of("freq", freq)};
        EXPECT_EQ(wrong(c), "") << angle;
      }
}

TEST(BoundOfKernels, HoldsForValuesAndOutputsThatAreTurned) {
  const Variant values{.name = "Values",
                       .text =
                           "struct Values {\n  real value_transform(P p, Vec x, int i, Row r) {\n    return x[i] * "
                           "weft::cos(real(r.pos) * p.step);\n  }\n};\n",
                       .scalars = {{.name = "step"}}};
  const Variant outputs{.name = "Outputs",
                        .text =
                            "struct Outputs {\n  real output_transform(P p, Vec x, int i, Row r) {\n    return "
                            "x[i] * weft::cos(real(r.pos) * p.step) + weft::sin(r.lse * p.step);\n  }\n};\n",
                        .scalars = {{.name = "step"}}};
  for (const auto& types : kBoundTypes)
    for (const Variant& variant : {values, outputs}) {
      Case c = of_types(types);
      c.lengths = {{1, 4100}, {3, 900}};
      c.variant = variant;
      c.scalars = {{"step", 3.7}};
      EXPECT_EQ(wrong(c), "") << variant.name;
    }
}

TEST(BoundOfKernels, BreaksWhereAValueIsLost) {
  const std::vector<float> slopes(1, -0.5f), freq = frequencies(64, 10000);
  Case far;
  far.lengths = {{1, 32768}};
  far.variant = variants::alibi();
  far.tensors = {tensor_of("slopes", slopes)};
  EXPECT_TRUE(finds_a_lost_value(far, 16));
  Case turned;
  turned.lengths = {{1, 4100}};
  turned.variant = rotation("real(r.pos) * p.freq(i)");
  turned.tensors = {tensor_of("freq", freq)};
  EXPECT_TRUE(finds_a_lost_value(turned, 4100));
}

}  // namespace
}  // namespace weft
