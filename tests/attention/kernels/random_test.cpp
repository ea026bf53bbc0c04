// Random calls against the fp64 reference: any spec with any batch and any plan. A spec is refused, or what a kernel
// computes lies within its bound. tests/support/random_cases.h says how to draw others.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>

#include "attention/plan/planner.h"
#include "problem.h"
#include "tests/support/random_cases.h"
#include "tests/support/sanitizers.h"

namespace weft::test::random_calls {
namespace {

using testing::Case;
using testing::Problem;
using testing::Random;
using testing::Target;

struct RandomCall {
  Case c = {};
  std::vector<float> of_heads = {};  // a variant's tensor
  int workers = 1, split = 0;
  PlanMode mode = PlanMode::balanced;
  std::string text() const {
    return to_string(c) + " variant " + c.variant.name + " seed " + std::to_string(c.seed) + " workers " +
           std::to_string(workers) + " mode " + std::string(to_string(mode)) + " " + std::to_string(split) + "\n" +
           c.variant.text;
  }
};

class CallMaker {
 public:
  explicit CallMaker(uint64_t seed) : random_(seed) { call_.c.seed = static_cast<unsigned>(seed); }

  RandomCall made() {
    draw_cache();
    draw_heads();
    draw_mask();
    draw_lengths();
    draw_variant();
    draw_plan();
    return std::move(call_);
  }

 private:
  void draw_cache() {
    Case& c = call_.c;
    const auto real = {DType::fp32, DType::fp16, DType::bf16, DType::bf16};
    c.q_dtype = random_.pick(real);
    c.o_dtype = random_.chance(70) ? c.q_dtype : random_.pick(real);
    c.form =
        random_.pick({KvForm::padded, KvForm::ragged, KvForm::paged, KvForm::paged, KvForm::paged, KvForm::latent});
    c.layout = random_.pick({Layout::nhd, Layout::hnd});
    c.page_size = random_.pick({1, 2, 3, 8, 16, 16, 64, 128});
    c.kv_dtype = random_.chance(70) ? c.q_dtype : random_.pick(real);
    c.strided = random_.chance(25);
    c.five_d = random_.chance(25);
    if (c.form == KvForm::latent || random_.chance(65)) return;
    c.kv_dtype = random_.pick({DType::fp8_e4m3, DType::fp8_e5m2, DType::int8, DType::int4});
    const bool needs_scales = c.kv_dtype == DType::int8 || c.kv_dtype == DType::int4;
    c.kv_scales =
        random_.pick({KvScales::none, KvScales::tensor, KvScales::head, KvScales::token, KvScales::token_group});
    if (needs_scales && c.kv_scales == KvScales::none) c.kv_scales = KvScales::head;
    if (c.kv_scales != KvScales::token_group) return;
    c.kv_scale_group = random_.pick({2, 4, 8, 16});
    if (c.form == KvForm::paged && c.page_size % c.kv_scale_group != 0) c.page_size = 16;
  }

  void draw_heads() {
    Case& c = call_.c;
    c.group = random_.pick({1, 1, 2, 3, 4, 5, 7, 8, 16});
    c.kv_heads = random_.pick({1, 1, 2, 3});
    const auto dims = {8, 24, 40, 64, 64, 72, 80, 96, 128, 128, 128, 160, 192, 256, 264};
    c.head_dim_qk = random_.pick(dims);
    c.head_dim_vo = random_.chance(75) ? c.head_dim_qk : random_.pick(dims);
    if (c.form != KvForm::latent) return;
    c.kv_heads = 1;
    c.group = random_.pick({1, 3, 8, 16, 33, 64, 128});
    c.head_dim_vo = random_.pick({56, 64, 128, 256, 512});
    c.head_dim_qk = c.head_dim_vo + random_.pick({8, 16, 64});
  }

  void draw_mask() {
    Case& c = call_.c;
    c.mask = random_.pick({Mask::none, Mask::causal, Mask::causal, Mask::causal, Mask::custom, Mask::custom_packed});
    if (c.mask == Mask::custom || c.mask == Mask::custom_packed) return;
    if (random_.chance(30)) c.window = static_cast<int>(random_.pick({-1, 0, 5, 40, 150}));
    if (c.window == -2 && random_.chance(15)) c.sinks = 4;
  }

  void draw_lengths() {
    auto& lengths = call_.c.lengths;
    const auto draw = [&](int64_t most_qo, int64_t most_kv, int64_t before) {
      const int64_t qo = random_.between(most_qo > 8 ? most_qo / 3 : 0, most_qo);
      lengths.emplace_back(static_cast<int>(qo), static_cast<int>(random_.below(most_kv + 1) + (before ? qo : 0)));
    };
    const int64_t kind = random_.below(5), count = random_.between(1, 6);
    for (int64_t i = 0; i < count && kind < 2; ++i) draw(1, 600, 0);   // decode
    for (int64_t i = 0; i < count && kind == 2; ++i) draw(8, 400, 0);  // drafts, some longer than their keys
    if (kind > 2) draw(call_.c.group > 8 ? 40 : 320, random_.pick({0, 0, 200}), 1);  // a prompt, perhaps behind others
    for (int64_t i = 0; i < count && kind == 4; ++i) draw(2, 300, 0);
  }

  void draw_variant() {
    Case& c = call_.c;
    const auto heads = static_cast<size_t>(c.group * c.kv_heads);
    const auto tensor = [&](const char* name, double factor) {
      for (size_t h = 0; h < heads; ++h)
        call_.of_heads.push_back(static_cast<float>(factor * (1 + static_cast<double>(random_.below(100)) / 50)));
      c.tensors = {{name, TensorView(call_.of_heads.data(), DType::fp32, {static_cast<int64_t>(heads)})}};
    };
    if (c.sinks > 0) return;  // its intervals are the variant
    switch (random_.below(9)) {
      case 0:
        c.variant = variants::logits_soft_cap();
        c.scalars = {{"cap", random_.pick({0.0, 2.0, 30.0})}};
        return;
      case 1: c.variant = variants::alibi(); return tensor("slopes", -0.05);
      case 2:
        c.variant = variants::sigmoid();
        c.scalars = {{"bias", random_.pick({-2.0, 0.0})}};
        return;
      case 3: c.variant = variants::attention_sink(); return tensor("sinks", 0.5);
      case 4: return draw_text();
      default: return;
    }
  }

  // Hooks of a class of one's own.
  void draw_text() {
    static constexpr const char* kMembers[] = {
        "  real query_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.25) * weft::pair(x, i) * real(r.pos % "
        "3); }\n",
        "  real key_transform(P p, Vec x, int i, Row r) { return x[i] * weft::rsqrt(weft::dot(x, x) / real(x.size()) + "
        "real(0.1)); }\n",
        "  real value_transform(P p, Vec x, int i, Row r) { return x[i] + real(0.5) * real(r.head) + real(0.001) * "
        "real(r.pos); }\n",
        "  real logits_transform(P p, Score c, real s) { return real(3) * weft::tanh(s * real(0.3)); }\n",
        "  bool logits_mask(P p, Score c) { return (c.q_pos + c.kv_pos) % 3 != 0; }\n",
        "  real output_transform(P p, Vec x, int i, Row r) { return x[i] * real(0.5) + real(i); }\n"};
    std::string hooks;
    for (const char* hook : kMembers)
      if (random_.chance(30)) hooks += hook;
    if (hooks.empty()) return;
    call_.c.variant.name = "Own";
    call_.c.variant.text = "struct Own {\n" + hooks + "};\n";
  }

  void draw_plan() {
    call_.workers = random_.pick({1, 2, 3, 5, 17});
    call_.mode = random_.pick({PlanMode::balanced, PlanMode::balanced, PlanMode::balanced, PlanMode::fixed_split,
                               PlanMode::no_split, PlanMode::paper});
    if (call_.mode == PlanMode::fixed_split) call_.split = static_cast<int>(random_.pick({64, 128}));
  }

  Random random_;
  RandomCall call_ = {};
};

// "" where it is right, or refused.
std::string problem_of(Problem& problem, const RandomCall& call, const Target& target, DType compute, bool& refused) {
  AttentionSpec spec = problem.spec();
  spec.compute = compute;
  try {
    const AttentionKernel kernel = build_on(target, spec);
    const Plan plan = kernel.plan(problem.input(call.workers, call.mode, call.split));
    verify(plan);
    problem.poison_outputs();
    run_on(target, kernel, plan, problem.tensors());
    return problem.compare(compute, target);
  } catch (const Error& error) {
    refused = error.code() == ErrorCode::unsupported;
    return refused ? "" : error.what();
  }
}

// In parts, which run beside each other.
constexpr int kParts = 4;
class RandomCalls : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Part, RandomCalls, ::testing::Range(0, kParts));

TEST_P(RandomCalls, AgreeWithTheReferenceWithinTheirBounds) {
  const bool is_card = testing::targets().front()->device() == Device::cuda();  // compiles for seconds
  const std::vector<uint64_t> seeds = testing::case_seeds(testing::kUnderSanitizer ? 8 : is_card ? 24 : 60);
  size_t failures = 0, num_refused = 0, num_run = 0;
  for (size_t i = static_cast<size_t>(GetParam()); i < seeds.size() && failures < testing::most_failures();
       i += kParts) {
    const RandomCall call = CallMaker(seeds[i]).made();
    Problem problem(call.c);
    problem.reference();
    for (const Target* target : testing::targets_of_case(static_cast<unsigned>(i)))
      for (const DType compute : target->compute_types(problem.spec())) {
        bool refused = false;
        const std::string wrong = problem_of(problem, call, *target, compute, refused);
        ++(refused ? num_refused : num_run);
        if (wrong.empty()) continue;
        ++failures;
        ADD_FAILURE() << target->name() << ", products in " << to_string(compute) << ": " << wrong << call.text()
                      << testing::only_case(i);
      }
  }
  std::cout << num_run << " calls ran, " << num_refused << " are refused\n";
  if (seeds.size() >= 8) {
    EXPECT_LE(num_refused, num_run / 4);
  }
}

}  // namespace
}  // namespace weft::test::random_calls
