// Softmax is the same whatever is added to all logits of a row: rows whose finite logits are all very large, against
// the fp64 reference of the same rows without it.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <span>

#include "attention/cpu/leaf.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;
using testing::Target;

constexpr float kMost = std::numeric_limits<float>::max();
// The last ones lie where kernels begin to subtract before they scale, and where float stops to tell integers apart.
constexpr float kOffsets[] = {-kMost, 1e20f, 1e10f, kMost, -1e12f, -1e20f, 100000, -3e7f};

// The host machine of CUDA kernels, to which a kernel is seconds of compilation and a run a good part of one, has the
// first ones of everything.
bool is_slow() { return testing::targets().front()->name() == "host_machine"; }
template <class T, size_t n>
std::span<const T> some(const T (&all)[n], size_t first) {
  return std::span(all).first(is_slow() ? first : n);
}

// The next number nearer to 0 is one step away: logits that differ by so many.
float step_at(float offset) { return std::abs(offset) - std::nextafter(std::abs(offset), 0.f); }

// `step` more for each 32 tokens.
Variant shifted() {
  return {.name = "Shifted",
          .text =
              "struct Shifted {\n  real logits_transform(P p, Score c, real s) {\n    return s + (p.offset + "
              "real(c.kv_pos / 32) * p.step);\n  }\n};\n",
          .scalars = {{.name = "offset"}, {.name = "step"}}};
}

class Rows {
 public:
  explicit Rows(const Case& c) : case_(c), problem_(c) {
    zero_queries();
    (void)problem_.reference();
  }

  Problem& problem() { return problem_; }

  void zero_queries() {
    const TensorView q = problem_.tensors().q;
    for (int64_t i = 0; i < q.size(); ++i) testing::put(q.data(), q.dtype(), i, 0);
  }
  // Every query is (x, 0, 0, ...), every key (1, ...).
  void multiply_first_elements(double x) {
    zero_queries();
    const TensorView q = problem_.tensors().q, k = problem_.tensors().kv.k;
    const int64_t dim = case_.head_dim_qk;
    for (int64_t i = 0; i < q.size(); i += dim) testing::put(q.data(), q.dtype(), i, x);
    for (int64_t i = 0; i < k.size(); i += dim) testing::put(k.data(), k.dtype(), i, 1);
  }

  // Runs every plan in every type, with lse to come out as `lse_of` that of the reference; what is wrong.
  template <class LseOf>
  std::string wrong(const AttentionTensors& tensors, const LseOf& lse_of) {
    for (const Target* target : testing::targets_of_case(case_.seed))
      for (const DType compute : target->compute_types(problem_.spec())) {
        AttentionSpec spec = problem_.spec();
        spec.compute = compute;
        const AttentionKernel kernel = build_on(*target, spec);
        constexpr PlanMode kChosen[] = {PlanMode::fixed_split, PlanMode::no_split};
        for (const PlanMode mode : some(kChosen, 1)) {
          problem_.poison_outputs();
          run_on(*target, kernel, kernel.plan(problem_.input(3, mode, mode == PlanMode::no_split ? 0 : 64)), tensors);
          std::string report = take_back_lse(tensors.lse, lse_of);
          report += problem_.compare(compute, *target);
          if (!report.empty())
            return target->name() + " products in " + std::string(to_string(compute)) + " mode " +
                   std::string(to_string(mode)) + ": " + to_string(case_) + "\n" + report;
        }
      }
    return "";
  }

 private:
  // What is as it should be becomes the reference's.
  template <class LseOf>
  std::string take_back_lse(const TensorView& view, const LseOf& lse_of) {
    std::string report;
    for (int64_t i = 0; i < view.size(); ++i) {
      float& lse = const_cast<float*>(view.as<float>())[i];
      const double reference = problem_.reference().lse[static_cast<size_t>(i)];
      const double expected = std::isinf(reference) ? reference : lse_of(reference);
      if (lse == expected || std::abs(lse - expected) <= 2e-5 * (1 + std::abs(expected)))
        lse = static_cast<float>(reference);
      else if (report.empty())
        report = "lse[" + std::to_string(i) + "] = " + std::to_string(lse) + ", not " + std::to_string(expected) + "\n";
    }
    return report;
  }

  Case case_;
  Problem problem_;
};

struct Kind {
  const char* name;
  DType q, kv;
  Mask mask = Mask::none;
  int sinks = 0;
};
constexpr Kind kKinds[] = {
    {"fp32", DType::fp32, DType::fp32, Mask::causal},
    {"bf16", DType::bf16, DType::bf16, Mask::none, 5},
    {"bf16_masked", DType::bf16, DType::bf16, Mask::custom},
    {"fp32_two_intervals", DType::fp32, DType::fp32, Mask::none, 5},
    {"bf16_all", DType::bf16, DType::bf16},
    {"fp16", DType::fp16, DType::fp16, Mask::custom_packed},
    {"int8", DType::bf16, DType::int8, Mask::causal},
};
std::span<const Kind> kinds() { return some(kKinds, 2); }

Case case_of(const Kind& kind) {
  Case c;
  c.q_dtype = kind.q;
  c.kv_dtype = kind.kv;
  if (kind.kv == DType::int8) c.kv_scales = KvScales::head;
  c.group = 2;
  c.kv_heads = 2;
  c.head_dim_qk = c.head_dim_vo = 32;
  c.mask = kind.mask;
  c.sinks = kind.sinks;
  if (is_slow())
    c.lengths = {{1, 100}, {2, 40}};
  else
    c.lengths = {{1, 150}, {3, 70}, {20, 100}, {1, 0}};
  return c;
}

class LargeLogits : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(Kind, LargeLogits, ::testing::ValuesIn(kinds().begin(), kinds().end()),
                         [](const auto& kind) { return std::string(kind.param.name); });

// The last tokens that a row sees win, the first ones, or none.
TEST_P(LargeLogits, OfATransform) {
  Case c = case_of(GetParam());
  c.variant = shifted();
  constexpr float kRises[] = {0, 1, -1};
  for (const float rises : some(kRises, 2)) {
    constexpr double kStep = 1e4;
    c.scalars = {{"offset", 0.}, {"step", rises * kStep}};
    Rows rows(c);
    for (const float offset : some(kOffsets, 2)) {
      if (rises * offset == kMost || (rises != 0 && std::abs(offset) < 1e9f)) continue;
      AttentionTensors tensors = rows.problem().tensors();
      const double step = rises * step_at(offset);
      tensors.scalars = {{"offset", offset}, {"step", step}};
      const auto lse_of = [&](double reference) {
        const double steps = std::floor(reference / kStep);
        return rises == 0 ? offset + reference : offset + rises * steps * step + reference - steps * kStep;
      };
      ASSERT_EQ(rows.wrong(tensors, lse_of), "") << offset << " rising by " << step;
    }
  }
}

// Rows whose maximum crosses the place where kernels begin, or stop, to do so. Logits there are rounded by 0.004.
TEST_P(LargeLogits, OnBothSidesOfTheBorder) {
  Case c = case_of(GetParam());
  c.variant = shifted();
  for (const double step : {-2., 2.}) {
    c.scalars = {{"offset", 0.}, {"step", step}};
    Rows rows(c);
    const ReferenceResult& expected = rows.problem().reference();
    constexpr double kBorders[] = {45422, 65532, -65532, -45422};  // by 2, and by e
    for (const double offset : some(kBorders, 1)) {
      AttentionTensors tensors = rows.problem().tensors();
      tensors.scalars = {{"offset", offset}, {"step", step}};
      for (const Target* target : testing::targets_of_case(1)) {
        const AttentionKernel kernel = build_on(*target, rows.problem().spec());
        run_on(*target, kernel, kernel.plan(rows.problem().input(3, PlanMode::fixed_split, 64)), tensors);
        for (size_t i = 0; i < expected.o.size(); ++i)
          ASSERT_NEAR(testing::get(tensors.o.data(), DType::fp32, static_cast<int64_t>(i)), expected.o[i], 0.03)
              << target->name() << " " << offset << " step " << step << " " << i;
      }
    }
  }
}

// Of queries and keys themselves, by scales of either sign.
TEST_P(LargeLogits, OfProducts) {
  if (GetParam().kv == DType::int8) return;  // its codes are no keys
  const DType type = GetParam().q;
  Rows rows(case_of(GetParam()));
  constexpr float kScales[] = {1, 0.125f, -1, 1e20f, kMost};
  for (const float offset : some(kOffsets, 3))
    for (const float sm_scale : some(kScales, 2)) {
      double x = offset / static_cast<double>(sm_scale);
      if (std::abs(x) > 3.38e38 || (type == DType::fp16 && std::abs(x) > 65000)) continue;
      rows.multiply_first_elements(x);
      AttentionTensors tensors = rows.problem().tensors();
      tensors.sm_scale = sm_scale;
      x = testing::get(tensors.q.data(), type, 0);
      if (std::abs(x * sm_scale) > kMost) continue;
      ASSERT_EQ(rows.wrong(tensors, [&](double reference) { return x * sm_scale + reference; }), "")
          << offset << " scale " << sm_scale;
    }
}

TEST(LargeLogitsOf, ASoftCapThatHidesThem) {
  Case c = case_of(kKinds[0]);
  c.variant = variants::logits_soft_cap();
  for (const double cap : {30., 1e10}) {
    c.scalars = {{"cap", cap}};
    for (const float offset : {1e20f, -1e20f}) {
      Rows rows(c);
      rows.multiply_first_elements(offset);
      AttentionTensors tensors = rows.problem().tensors();
      tensors.sm_scale = 1.f;
      ASSERT_EQ(rows.wrong(tensors, [&](double reference) { return (offset > 0 ? cap : -cap) + reference; }), "")
          << cap << " " << offset;
    }
  }
}

// Beside a sink at 0 such rows are all or nothing.
TEST(LargeLogitsOf, RowsWithASink) {
  const std::vector<float> sinks(4, 0.f);
  Case c = case_of(kKinds[0]);
  c.variant = variants::attention_sink();
  c.tensors = {{"sinks", TensorView(sinks.data(), DType::fp32, {4})}};
  for (const float offset : {kMost, 1e20f, -1e20f, -kMost}) {
    Rows rows(c);
    rows.multiply_first_elements(offset);
    AttentionTensors tensors = rows.problem().tensors();
    tensors.sm_scale = 1.f;
    const ReferenceResult expected = attention_reference(rows.problem().spec(), rows.problem().input(1), tensors);
    for (const Target* target : testing::targets_of_case(0)) {
      const AttentionKernel kernel = build_on(*target, rows.problem().spec());
      run_on(*target, kernel, kernel.plan(rows.problem().input(2, PlanMode::fixed_split, 64)), tensors);
      for (size_t i = 0; i < expected.o.size(); ++i)
        ASSERT_NEAR(testing::get(tensors.o.data(), DType::fp32, static_cast<int64_t>(i)), expected.o[i], 1e-4)
            << target->name() << " " << offset << " " << i;
      for (size_t i = 0; i < expected.lse.size(); ++i)
        ASSERT_TRUE(tensors.lse.as<float>()[i] == static_cast<float>(expected.lse[i]))
            << target->name() << " " << offset << " lse " << tensors.lse.as<float>()[i] << " not " << expected.lse[i];
    }
  }
}

}  // namespace
}  // namespace weft
