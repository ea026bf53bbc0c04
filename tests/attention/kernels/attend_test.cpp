// What stands beside run on the CPU: states that merge, kernels found again, attend of one request.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "attention/cpu/leaf.h"
#include "attention/kernel.h"
#include "device/cpu/cpuid.h"
#include "problem.h"

namespace weft {
namespace {

using testing::Case;
using testing::Problem;

// A sink is a key without a value: of parts that are merged, one has it.
TEST(AttentionSink, GivesAStateThatMerges) {
  const std::vector<float> sinks = {1.f, -0.5f, 2.f};
  Case c;
  c.form = KvForm::ragged;
  c.group = 3;
  c.lengths = {{4, 90}};
  Problem plain(c);
  c.variant = variants::attention_sink();
  c.tensors = {{"sinks", TensorView(sinks.data(), DType::fp32, {3})}};
  Problem sunk(c);
  sunk.reference();
  const AttentionTensors t = sunk.tensors();
  std::vector<float> o(2 * 4 * 3 * 64), lse(2 * 4 * 3);
  const TensorView states(o.data(), DType::fp32, {2, 4, 3, 64}), lses(lse.data(), DType::fp32, {2, 4, 3});
  AttentionTensors extra;
  extra.tensors = c.tensors;
  attend(sunk.spec(), t.q, t.kv.k.slice(0, 0, 40), t.kv.v.slice(0, 0, 40), states.select(0, 0), lses.select(0, 0),
         extra);
  attend(plain.spec(), t.q, t.kv.k.slice(0, 40, 90), t.kv.v.slice(0, 40, 90), states.select(0, 1), lses.select(0, 1));
  merge_states(states, lses, t.o, t.lse);
  EXPECT_EQ(sunk.compare(DType::fp32), "");
}

TEST(AttentionBuild, FindsAKernelAgainInMemory) {
  Problem problem(Case{.lengths = {{1, 40}}});
  EXPECT_EQ(&build(problem.spec(), Device::cpu()).impl(), &build(problem.spec(), Device::cpu()).impl());
}

TEST(AttendHelper, AgreesWithTheReferenceInBothLayouts) {
  for (const Layout layout : {Layout::nhd, Layout::hnd}) {
    Case c;
    c.form = KvForm::ragged;
    c.layout = layout;
    c.mask = Mask::causal;
    c.window = 10;
    c.group = 2;
    c.lengths = {{9, 50}};
    Problem problem(c);
    problem.reference();
    const AttentionTensors t = problem.tensors();
    const int token_axis = layout == Layout::nhd ? 0 : 1;
    AttentionTensors extra;
    extra.scalars = {{"window_left", 10.}};
    attend(problem.spec(), t.q, t.kv.k.slice(token_axis, 0, 50), t.kv.v.slice(token_axis, 0, 50), t.o, t.lse, extra);
    EXPECT_EQ(problem.compare(compute_type(problem.spec(), current_isa())), "");
  }
}

// Whether the thread has left the tiles of registers as it found them: a system saves what is configured.
bool tiles_are_released() {
#if defined(__x86_64__)
  alignas(64) std::array<unsigned char, 64> config{};
  if (has_bf16_tiles()) asm volatile("sttilecfg %0" : "=m"(config));
  return std::ranges::all_of(config, [](unsigned char byte) { return byte == 0; });
#else
  return true;
#endif
}

// Many rows of bf16, a last tile of few of them, dims that end inside a tile, more keys than a tile of scores has.
TEST(AttendHelper, AgreesWithTheReferenceWherePackedRowsAreInTiles) {
  for (const int dim : {64, 72}) {
    Case c;
    c.form = KvForm::ragged;
    c.q_dtype = c.kv_dtype = c.o_dtype = DType::bf16;
    c.head_dim_qk = c.head_dim_vo = dim;
    c.mask = Mask::causal;
    c.group = 1;
    c.lengths = {{53, 900}};
    Problem problem(c);
    problem.reference();
    const AttentionTensors t = problem.tensors();
    attend(problem.spec(), t.q, t.kv.k.slice(0, 0, 900), t.kv.v.slice(0, 0, 900), t.o, t.lse);
    EXPECT_EQ(problem.compare(compute_type(problem.spec(), current_isa())), "") << dim;
    EXPECT_TRUE(tiles_are_released());
  }
}

// Scales travel in `extra`, whose keys and values stay empty: those of the call are taken.
TEST(Attend, TakesTheScalesOfItsExtraTensors) {
  constexpr std::tuple<DType, KvScales, int> kCaches[] = {{DType::int8, KvScales::token, 0},
                                                          {DType::int8, KvScales::token_group, 4},
                                                          {DType::int4, KvScales::head, 0},
                                                          {DType::fp8_e4m3, KvScales::tensor, 0}};
  for (const auto& [dtype, scales, group] : kCaches)
    for (const Layout layout : {Layout::nhd, Layout::hnd}) {
      Case c;
      c.kv_dtype = dtype;
      c.kv_scales = scales;
      c.kv_scale_group = group;
      c.form = KvForm::ragged;
      c.layout = layout;
      c.group = 2;
      c.kv_heads = 2;
      c.mask = Mask::causal;
      c.lengths = {{3, 53}};
      Problem problem(c);
      problem.reference();
      const AttentionTensors t = problem.tensors();
      const int axis = layout == Layout::nhd ? 0 : 1;
      AttentionTensors extra;
      const auto rows = [&](const TensorView& scale) {
        return scales < KvScales::token ? scale
                                        : scale.slice(axis, 0, (53 + std::max(group, 1) - 1) / std::max(group, 1));
      };
      extra.kv.k_scale = rows(t.kv.k_scale);
      extra.kv.v_scale = rows(t.kv.v_scale);
      attend(problem.spec(), t.q, t.kv.k.slice(axis, 0, 53), t.kv.v.slice(axis, 0, 53), t.o, t.lse, extra);
      EXPECT_EQ(problem.compare(build(problem.spec(), Device::cpu()).impl().compute), "") << to_string(c);
    }
}

}  // namespace
}  // namespace weft
