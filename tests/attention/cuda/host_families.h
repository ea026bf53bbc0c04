// Problems of attention that one family solves in the host machine, against the fp64 reference, values that are no
// finite numbers, and kernels that are broken in one place.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "attention/cuda/family.h"
#include "attention/plan/planner.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"
#include "tests/simt/machine/machine.h"

namespace weft::testing {

// What is wrong with the problem; also where another family computes it, or no unit of it has tiles of this kind.
inline std::string wrong_by(const attention::cuda::Family& family, Problem& problem, const AttentionSpec& spec,
                            const PlanInput& input, std::optional<attention::TileKind> kind = {}) {
  const auto& sm_90a = attention::cuda::find_architecture("sm_90a");
  if (&attention::cuda::family_of(spec, sm_90a) != &family) return "another family";
  problem.reference();
  const AttentionKernel kernel = build_on(host_machine(), spec);
  const Plan plan = kernel.plan(input);
  if (kind && (plan.impl().header().tile_kinds & attention::cuda::bit_of(*kind)) == 0) return "other tiles";
  problem.poison_outputs();
  run_on(host_machine(), kernel, plan, problem.tensors());
  return problem.compare(spec.q_dtype);
}

// Outputs of 16 bits that begin anywhere, as do their rows and heads, have the bits that they have elsewhere, and
// nothing between them is written.
inline void expect_outputs_anywhere(Problem& problem, const AttentionSpec& spec, const PlanInput& input) {
  const AttentionKernel kernel = build_on(host_machine(), spec);
  const Plan plan = kernel.plan(input);
  AttentionTensors tensors = problem.tensors();
  run_on(host_machine(), kernel, plan, tensors);
  const TensorView o = tensors.o;
  const int64_t rows = o.shape(0), heads = o.shape(1), dim = o.shape(2);
  struct {
    int64_t first, of_row, of_head;
  } const places[] = {{1, heads * dim, dim}, {0, heads * dim + 1, dim}, {0, heads * (dim + 8), dim + 4}};
  for (const auto& [first, of_row, of_head] : places) {
    std::vector<uint16_t> got(static_cast<size_t>(first + rows * of_row), 0xffff), expected = got;
    const auto at = [&](int64_t row, int64_t head) { return first + row * of_row + head * of_head; };
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t head = 0; head < heads; ++head)
        std::copy_n(o.as<uint16_t>() + row * o.stride(0) + head * o.stride(1), dim, expected.begin() + at(row, head));
    tensors.o =
        TensorView(got.data(), spec.o_dtype, std::vector{static_cast<int64_t>(got.size())}, std::vector<int64_t>{1});
    const Placed placed(host_machine(), tensors);
    AttentionTensors there = placed.tensors();
    there.o = TensorView(static_cast<uint16_t*>(there.o.data()) + first, spec.o_dtype, std::vector{rows, heads, dim},
                         std::vector<int64_t>{of_row, of_head, 1}, host_machine().device());
    Workspace workspace(host_machine().device(), plan.workspace_bytes());
    plan.upload(workspace);
    kernel.run(workspace, there);
    placed.fetch();
    EXPECT_EQ(got, expected) << first << ", " << of_row << ", " << of_head;
  }
}

// A value's first element becomes `value`, which is no finite number: so do the first elements of the first request's
// rows that see its token, or what a hook makes of them, and everything else keeps every bit. Of latent rows, which are
// keys too, nothing is said of rows that see it.
inline void expect_to_reach_who_sees_it(Problem& problem, const AttentionSpec& spec, const PlanInput& input, int token,
                                        double value, std::optional<double> hooked = {}) {
  const AttentionKernel kernel = build_on(host_machine(), spec);
  const Plan plan = kernel.plan(input);
  const auto outputs = [&] {
    run_on(host_machine(), kernel, plan, problem.tensors());
    return problem.outputs();
  };
  const std::string clean = outputs();
  problem.put_value(0, token, value);
  const std::string spoilt = outputs();
  const TensorView o = problem.tensors().o;
  const int64_t dim = spec.head_dim_vo, of_query = o.shape(1) * dim;
  const auto bits = static_cast<size_t>(bits_of(spec.o_dtype)) / 8;
  int reached = 0;
  for (int64_t i = 0; i < o.size(); ++i) {
    const auto query = static_cast<int>(i / of_query);
    const bool sees = query < input.qo_indptr[1] && problem.sees(0, query, token);
    if (sees && i % dim == 0) {
      const double got = testing::get(o.data(), spec.o_dtype, i);
      ASSERT_TRUE(std::isnan(value) || spec.kv_form == KvForm::latent ? !std::isfinite(got)
                                                                      : got == hooked.value_or(value))
          << i;
      ++reached;
    } else if (!sees || spec.kv_form != KvForm::latent) {
      const size_t at = static_cast<size_t>(i) * bits;
      ASSERT_EQ(clean.substr(at, bits), spoilt.substr(at, bits)) << i;
    }
  }
  EXPECT_GT(reached, 0);
}

// What is broken in attention/cuda/kernels is found as the problem is solved, by a fault that says so; of empty words
// by outputs that are wrong.
inline void expect_to_be_found(Problem& problem, const simt::Breakage& what, const std::string& says,
                               const std::function<void()>& solve) {
  problem.reference();
  problem.poison_outputs();
  simt::break_kernels({"attention/cuda/kernels/" + what.file, what.from, what.to});
  std::string found;
  try {
    solve();
    if (problem.compare(problem.spec().q_dtype).empty()) found = "nothing is wrong";
  } catch (const simt::Fault& fault) {
    found = fault.what();
  }
  simt::break_kernels({});
  EXPECT_NE(found.find(says), std::string::npos) << found;
  EXPECT_EQ(found.empty(), says.empty()) << found;
}

inline Case case_of(DType type, int dim_qk, int dim_vo) {
  Case c;
  c.q_dtype = c.kv_dtype = c.o_dtype = type;
  c.group = 5;
  c.kv_heads = 1;
  c.head_dim_qk = dim_qk;
  c.head_dim_vo = dim_vo;
  c.mask = Mask::causal;
  c.lengths = {{26, 140}, {1, 70}};  // 130 fused rows, three tiles of 64 keys
  return c;
}

}  // namespace weft::testing
