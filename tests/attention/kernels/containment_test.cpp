// A NaN or Inf in a value, or in its scale, reaches the rows whose intervals hold its slot, and no others: those keep
// every bit.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "attention/kernel.h"
#include "problem.h"
#include "tests/support/sanitizers.h"

namespace weft {
namespace {

using testing::Case;
using testing::get;
using testing::Problem;
using testing::Target;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInf = std::numeric_limits<double>::infinity();

class Containment : public ::testing::TestWithParam<const Target*> {
 protected:
  // Whether a value, or the scale of a token's values, is put in place.
  enum class Spoil { value, scale };

  void expect_contained(const Case& c, const std::vector<double>& values, Spoil spoil = Spoil::value) {
    Problem problem(c);
    problem.reference();
    const std::vector<char> cache = problem.cache_bytes();
    for (const DType compute : GetParam()->compute_types(problem.spec()))
      for (const PlanMode mode : {PlanMode::balanced, PlanMode::fixed_split}) {
        AttentionSpec spec = problem.spec();
        spec.compute = compute;
        const AttentionKernel kernel = build_on(*GetParam(), spec);
        const Plan plan = kernel.plan(problem.input(2, mode, mode == PlanMode::fixed_split ? 128 : 0));
        const auto outputs = [&] {
          problem.poison_outputs();
          run_on(*GetParam(), kernel, plan, problem.tensors());
          return problem.outputs();
        };
        const std::string clean = outputs();
        for (size_t request = 0; request < c.lengths.size(); ++request) {
          for (const auto& [token, value] : spoilt(problem, c, request, values)) {
            SCOPED_TRACE(fmt::format("{} in {}, {} at token {} of request {}", to_string(c), to_string(compute), value,
                                     token, request));
            if (spoil == Spoil::value)
              problem.put_value(request, token, value);
            else
              problem.put_value_scale(request, token, value);
            outputs();
            compare(problem, clean, c, request, token, compute, spoil);
            problem.put_cache_bytes(cache);
            if (HasFatalFailure()) return;
          }
        }
      }
  }

 private:
  // Tokens of a request that can be seen, and what is put there. Which it is changes numbers and no access: a sanitizer
  // watches the first and the last, one of threads one.
  static std::vector<std::pair<int, double>> spoilt(const Problem& problem, const Case& c, size_t request,
                                                    const std::vector<double>& values) {
    const auto [qo_len, kv_len] = c.lengths[request];
    std::vector<std::pair<int, double>> all;
    for (const int token : {kv_len - 1, kv_len - qo_len, kv_len - qo_len / 2 - 1, kv_len / 3})
      for (const double value : values)
        if (!problem.hidden(request, token)) all.emplace_back(token, value);
    if (testing::kUnderSanitizer && all.size() > 2) all.erase(all.begin() + 1, all.end() - 1);
    return all;
  }

  static void compare(Problem& problem, const std::string& clean, const Case& c, size_t request, int token,
                      DType compute, Spoil spoil) {
    const MeasuredReference& reference = problem.reference();
    const ErrorBound bound(problem.spec(), testing::rounding(problem.spec(), compute));
    const AttentionTensors t = problem.tensors();
    const int64_t heads = t.o.shape(1), dim = t.o.shape(2);
    const bool mixes_elements = c.variant.text.find("weft::dot") != std::string::npos;
    const bool whole_row = spoil == Spoil::scale || c.form == KvForm::latent || mixes_elements;
    int64_t row = 0;
    for (size_t r = 0; r < c.lengths.size(); ++r)
      for (int i = 0; i < c.lengths[r].first; ++i, ++row)
        for (int64_t at = row * heads * dim; at < (row + 1) * heads * dim; ++at) {
          const double got = get(t.o.data(), c.o_dtype, at), before = get(clean.data(), c.o_dtype, at);
          if (r == request && c.mask == Mask::custom) continue;  // what a mask hides may reach the request's own rows
          if (r != request || !problem.sees(r, i, token)) {
            ASSERT_EQ(got, before) << "row " << row << " does not see it, element " << at % dim;
          } else if (whole_row || at % dim == 0) {
            ASSERT_FALSE(std::isfinite(got)) << "row " << row << " sees it, element " << at % dim;
          } else {
            const auto e = static_cast<size_t>(at);
            ASSERT_LE(std::abs(got - reference.o[e]), bound(c.lengths[r].second, reference, e))
                << "row " << row << " sees it elsewhere, " << at % dim;
          }
        }
  }

  WorkerTeam team_{2};
};
INSTANTIATE_TEST_SUITE_P(Targets, Containment,
                         ::testing::ValuesIn(testing::targets().begin(), testing::targets().end()),
                         [](const auto& param_info) { return param_info.param->name(); });

Case causal_case(DType dtype, int head_dim = 64) {
  Case c;
  c.form = KvForm::ragged;
  c.q_dtype = c.kv_dtype = dtype;
  c.head_dim_qk = c.head_dim_vo = head_dim;
  c.mask = Mask::causal;
  c.lengths = {{2, 2}, {25, 25}, {3, 200}, {70, 330}};
  return c;
}

TEST_P(Containment, ValuesUnderACausalMask) {
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16}) expect_contained(causal_case(dtype), {kNan, kInf});
}

TEST_P(Containment, ValuesOfPagesUnderASlidingWindow) {
  for (const Layout layout : {Layout::nhd, Layout::hnd})
    for (const DType dtype : {DType::fp32, DType::bf16}) {
      Case c = causal_case(dtype, 40);
      c.form = KvForm::paged;
      c.layout = layout;
      c.group = 3;
      c.kv_heads = 2;
      c.window = 11;
      expect_contained(c, {kNan, -kInf});
    }
}

TEST_P(Containment, ValuesUnderIntervalsOfAVariant) {
  Case c = causal_case(DType::fp32, 72);
  c.form = KvForm::padded;
  c.sinks = 4;
  c.group = 5;
  expect_contained(c, {kNan});
}

TEST_P(Containment, LatentRows) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int group : {1, 16}) {
      Case c = causal_case(dtype);
      c.form = KvForm::latent;
      c.head_dim_qk = 72;
      c.head_dim_vo = 56;
      c.group = group;
      expect_contained(c, {kNan});
    }
}

TEST_P(Containment, NarrowValuesAndScales) {
  for (const DType dtype : {DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4}) {
    Case c = causal_case(DType::fp32);
    c.q_dtype = DType::bf16;
    c.kv_dtype = dtype;
    c.kv_heads = 2;
    c.kv_scales = KvScales::token;
    if (dtype == DType::fp8_e4m3 || dtype == DType::fp8_e5m2) expect_contained(c, {0x7f});
    expect_contained(c, {kNan, kInf}, Spoil::scale);
  }
}

TEST_P(Containment, ValuesThatAHookChanges) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp8_e5m2}) {
    Case c = causal_case(dtype);
    c.q_dtype = DType::bf16;
    if (dtype == DType::fp8_e5m2) c.kv_scales = KvScales::token;
    c.variant = {
        .name = "doubled_values",
        .text = "struct doubled_values { real value_transform(P, Vec x, int i, Row) { return x[i] + x[i]; } };"};
    expect_contained(c, {dtype == DType::fp8_e5m2 ? 0x7f : kNan});
    if (dtype == DType::fp8_e5m2) expect_contained(c, {kNan}, Spoil::scale);
  }
}

// Slots that no row sees hold NaN, and their hooks would make NaN of zeros too.
TEST_P(Containment, HooksThatMakeNoNumberOfAnUnseenSlot) {
  for (const DType dtype : {DType::fp32, DType::bf16})
    for (const int qo_len : {1, 20}) {
      Case c = causal_case(dtype);
      c.variant = {.name = "unit_vectors", .text = R"(struct unit_vectors {
  real key_transform(P, Vec x, int i, Row) { return x[i] * weft::rsqrt(weft::dot(x, x)) * real(4); }
  real value_transform(P, Vec x, int i, Row) { return x[i] * weft::rsqrt(weft::dot(x, x)); }
};
)"};
      c.sinks = 4;
      c.lengths = {{qo_len, 37}, {qo_len, 290}};
      expect_contained(c, {kNan});
      Problem problem(c);
      problem.reference();
      AttentionSpec spec = problem.spec();
      const AttentionKernel kernel = build_on(*GetParam(), spec);
      run_on(*GetParam(), kernel, kernel.plan(problem.input(2)), problem.tensors());
      EXPECT_EQ(problem.compare(kernel.impl().compute), "") << to_string(c);
    }
}

TEST_P(Containment, ValuesUnderACustomMaskStayWithinTheRequest) {
  Case c = causal_case(DType::bf16);
  c.mask = Mask::custom;
  c.form = KvForm::paged;
  expect_contained(c, {kNan});
}

TEST_P(Containment, ValuesWithoutSoftmax) {
  Case c = causal_case(DType::bf16);
  c.variant = variants::sigmoid();
  c.scalars = {{"bias", -1.0}};
  expect_contained(c, {kNan, kInf});
}

}  // namespace
}  // namespace weft
