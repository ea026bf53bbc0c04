// A small call for tests of the reference.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attention/reference/error_model/error_model.h"
#include "weft/attention.h"

namespace weft::testing {

inline constexpr int kHeads = 4, kKvHeads = 2, kDim = 16, kDimVo = 8;

// Two requests, 3 of 9 and 2 of 5 tokens, in any form; poison wherever no token lies.
struct Batch {
  std::vector<int32_t> qo_indptr = {0, 3, 5}, kv_indptr = {0, 9, 14}, kv_len = {9, 5};
  std::vector<int32_t> page_indptr = {0, 3, 5}, page_indices = {4, 1, 6, 0, 3}, last_page_len = {1, 1};
  std::vector<float> q, k, v;  // ragged, NHD
  std::vector<float> k_other, v_other;
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDimVo, .kv_form = KvForm::ragged};
  std::vector<int64_t> mask_indptr;  // of a custom mask
  std::vector<float> slopes = {0.5f, 0.25f, 0.125f, 0.0625f};

  Batch() {
    std::mt19937 random(31);
    std::normal_distribution<float> normal;
    for (auto [to, count] :
         {std::pair{&q, 5 * kHeads * kDim}, {&k, 14 * kKvHeads * kDim}, {&v, 14 * kKvHeads * kDimVo}})
      for (int i = 0; i < count; ++i)
        to->push_back(std::bit_cast<float>(std::bit_cast<uint32_t>(normal(random)) & 0xffff0000u));
  }
  PlanInput input() const {
    PlanInput in{.num_qo_heads = kHeads, .num_kv_heads = kKvHeads, .qo_indptr = qo_indptr};
    if (spec.kv_form == KvForm::ragged) in.kv_indptr = kv_indptr;
    if (spec.kv_form == KvForm::padded) {
      in.kv_len = kv_len;
      in.max_kv_len = 12;
    }
    if (spec.kv_form == KvForm::paged) {
      in.pages.page_size = 4;
      in.pages.num_pages = 7;
      in.pages.kv_page_indptr = page_indptr;
      in.pages.kv_page_indices = page_indices;
      in.pages.kv_last_page_len = last_page_len;
    }
    in.mask_indptr = mask_indptr;
    in.scalars = {{"window_left", 2}};
    return in;
  }
  TensorView stored(const std::vector<float>& ragged, int dim, std::vector<float>& to) {
    const bool nhd = spec.layout == Layout::nhd;
    const int outer = spec.kv_form == KvForm::padded ? 2 : spec.kv_form == KvForm::paged ? 7 : 1;
    const int inner = spec.kv_form == KvForm::padded ? 12 : spec.kv_form == KvForm::paged ? 4 : 14;
    to.assign(static_cast<size_t>(outer * inner * kKvHeads * dim), std::nanf(""));
    for (int r = 0; r < 2; ++r)
      for (int t = 0; t < kv_len[static_cast<size_t>(r)]; ++t)
        for (int h = 0; h < kKvHeads; ++h)
          for (int d = 0; d < dim; ++d) {
            const int row = kv_indptr[static_cast<size_t>(r)] + t;
            int o = 0, i = row;
            if (spec.kv_form == KvForm::padded) {
              o = r;
              i = t;
            }
            if (spec.kv_form == KvForm::paged) {
              o = page_indices[static_cast<size_t>(page_indptr[static_cast<size_t>(r)] + t / 4)];
              i = t % 4;
            }
            const int place = nhd ? (o * inner + i) * kKvHeads + h : (o * kKvHeads + h) * inner + i;
            to[static_cast<size_t>(place * dim + d)] = ragged[static_cast<size_t>((row * kKvHeads + h) * dim + d)];
          }
    std::vector<int64_t> shape;
    if (spec.kv_form != KvForm::ragged) shape.push_back(outer);
    shape.push_back(nhd ? inner : kKvHeads);
    shape.push_back(nhd ? kKvHeads : inner);
    shape.push_back(dim);
    return TensorView(to.data(), DType::fp32, shape);
  }
  AttentionTensors tensors() {
    AttentionTensors t;
    t.q = TensorView(q.data(), DType::fp32, {5, kHeads, kDim});
    t.kv = KvCache(stored(k, kDim, k_other), stored(v, kDimVo, v_other));
    return t;
  }
  ReferenceResult run(std::vector<ScalarArg> scalars = {}, std::vector<TensorArg> more = {}) {
    AttentionTensors t = tensors();
    t.scalars = std::move(scalars);
    t.tensors = std::move(more);
    return attention_reference(spec, input(), t);
  }
  // Of kernels in fp32 whose functors are exact.
  MeasuredReference measure(std::vector<ScalarArg> scalars = {}, std::vector<TensorArg> more = {},
                            const attention::Rounding& rounding = {}) {
    AttentionTensors t = tensors();
    t.scalars = std::move(scalars);
    t.tensors = std::move(more);
    return measured_reference(spec, input(), t, rounding);
  }
  // The variant's own text, as a user's: under another name it is nobody's built-in, and is compiled.
  void rename_variant(const std::string& name) {
    Variant& own = spec.variant;
    for (size_t at = 0; (at = own.text.find(own.name, at)) != std::string::npos; at += name.size())
      own.text.replace(at, own.name.size(), name);
    own.name = name;
  }
  // Row i of request r, head h, over the keys that `sees` keeps, from the formula.
  std::vector<double> by_hand(int r, int i, int h, const std::function<bool(int)>& sees, double* lse) const {
    double sum = 0;
    std::vector<double> o(kDimVo);
    for (int t = 0; t < kv_len[static_cast<size_t>(r)]; ++t) {
      if (!sees(t)) continue;
      const size_t row = static_cast<size_t>((kv_indptr[static_cast<size_t>(r)] + t) * kKvHeads + h / 2);
      const size_t q_row = static_cast<size_t>((qo_indptr[static_cast<size_t>(r)] + i) * kHeads + h);
      double s = 0;
      for (size_t d = 0; d < kDim; ++d)
        s += static_cast<double>(q[q_row * kDim + d]) * static_cast<double>(k[row * kDim + d]);
      const double p = std::exp(s / 4);
      sum += p;
      for (size_t d = 0; d < kDimVo; ++d) o[d] += p * static_cast<double>(v[row * kDimVo + d]);
    }
    for (double& x : o) x /= sum;
    *lse = std::log(sum);
    return o;
  }
};

inline void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i] != b[i]) {
      ASSERT_NEAR(a[i], b[i], tolerance) << i;
    }
}

}  // namespace weft::testing
