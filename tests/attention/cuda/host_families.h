// Problems of attention that one family solves in the host machine, against the fp64 reference.
#pragma once

#include <string>

#include "attention/cuda/family.h"
#include "attention/plan/planner.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"

namespace weft::testing {

// What is wrong with the problem; also where another family computes it, or no unit of it has tiles of this kind.
inline std::string wrong_by(const attention::cuda::Family& family, Problem& problem, const AttentionSpec& spec,
                            const PlanInput& input, attention::TileKind kind) {
  const auto& sm_90a = attention::cuda::find_architecture("sm_90a");
  if (&attention::cuda::family_of(spec, sm_90a) != &family) return "another family";
  problem.reference();
  const AttentionKernel kernel = build_on(host_machine(), spec);
  const Plan plan = kernel.plan(input);
  if ((plan.impl().header().tile_kinds & attention::cuda::bit_of(kind)) == 0) return "other tiles";
  problem.poison_outputs();
  run_on(host_machine(), kernel, plan, problem.tensors());
  return problem.compare(spec.q_dtype);
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
