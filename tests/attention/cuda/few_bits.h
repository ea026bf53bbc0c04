// What tests of keys and values of few bits in the host machine have in common, for every architecture's forms.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "attention/kernel.h"
#include "host_target.h"
#include "tests/attention/kernels/problem.h"

namespace weft::testing {

// Never the plain path, which takes any strides.
inline AttentionKernel products_of(AttentionSpec spec) {
  spec.loader = Loader::cp_async;
  return build_on(host_machine(), spec);
}

inline Case few_bits_case(DType q, DType kv, KvScales scales, int dim) {
  Case c;
  c.q_dtype = c.o_dtype = q;
  c.kv_dtype = kv;
  c.kv_scales = scales;
  c.kv_heads = 2;
  c.group = 3;
  c.head_dim_qk = c.head_dim_vo = dim;
  c.mask = Mask::causal;
  c.lengths = {{1, 150}, {5, 37}, {1, 0}};
  return c;
}

// What one code or scale of request 0 makes of the outputs: what the reference says, and every bit as before in rows
// that do not see its token.
class SpecialNumbers : public ::testing::Test {
 protected:
  // `loads_apart`: by a producer, which has tiles of 128 rows.
  void make(DType kv, KvScales scales, int qo_len, DType q = DType::bf16, bool loads_apart = false) {
    Case c = few_bits_case(q, kv, scales, 128);
    c.o_dtype = DType::fp32;
    c.lengths = {{qo_len, 71}, {1, 30}};
    c.group = 2;
    problem_ = std::make_unique<Problem>(c);
    kernel_ = loads_apart ? build_on(host_machine(), problem_->spec()) : products_of(problem_->spec());
  }
  void expect_as_in_reference(int token, const std::function<void(Problem&)>& put) {
    Problem& problem = *problem_;
    const std::vector<char> cache = problem.cache_bytes();
    const Plan plan = kernel_.plan(problem.input(2));
    const AttentionTensors t = problem.tensors();
    run_on(host_machine(), kernel_, plan, t);
    const std::vector<float> before(t.o.as<float>(), t.o.as<float>() + t.o.size());
    put(problem);
    run_on(host_machine(), kernel_, plan, t);
    const ReferenceResult expected = attention_reference(problem.spec(), problem.input(1), t);
    const int64_t of_row = t.o.shape(1) * t.o.shape(2), rows_of_first = t.o.shape(0) - 1;
    for (int64_t i = 0; i < t.o.size(); ++i) {
      const auto at = static_cast<size_t>(i);
      const float got = t.o.as<float>()[i];
      const int64_t row = i / of_row;
      if (row >= rows_of_first || !problem.sees(0, static_cast<int>(row), token)) {
        ASSERT_EQ(std::memcmp(&got, &before[at], sizeof got), 0) << "row " << row << " does not see it";
      } else if (!std::isfinite(expected.o[at])) {
        ASSERT_FALSE(std::isfinite(got)) << "row " << row << " element " << i % 128;
      } else {
        ASSERT_NEAR(got, expected.o[at], 0.02 * (1 + std::abs(expected.o[at])))
            << "row " << row << " element " << i % 128;
      }
    }
    problem.put_cache_bytes(cache);
  }

  std::unique_ptr<Problem> problem_;
  AttentionKernel kernel_;
};

}  // namespace weft::testing
