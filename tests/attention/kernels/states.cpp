#include "tests/attention/kernels/states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/attention/kernels/problem.h"

namespace weft::testing {
namespace {

// merge(o, lse, o_out, lse_out, stream) between tensors on the target. The attention's tensors say which are placed.
template <class Merge>
Merged merged_on(const Target& target, const TensorView& o, const TensorView& lse, int rows, DType out_dtype,
                 const Merge& merge) {
  const int64_t heads = lse.shape(lse.rank() - 1), dim = o.shape(o.rank() - 1), size = rows * heads * dim;
  Merged merged{std::vector<char>(static_cast<size_t>(size * bits_of(out_dtype) / 8)),
                std::vector<float>(static_cast<size_t>(rows * heads), NAN)};
  for (int64_t i = 0; i < size; ++i) put(merged.o.data(), out_dtype, i, NAN);
  AttentionTensors tensors;
  tensors.q = o;
  tensors.kv.k_scale = lse;
  tensors.o = TensorView(merged.o.data(), out_dtype, {rows, heads, dim});
  tensors.lse = TensorView(merged.lse.data(), DType::fp32, {rows, heads});
  WorkerTeam team(2);
  const Placed placed(target, tensors);
  const AttentionTensors& t = placed.tensors();
  merge(t.q, t.kv.k_scale, t.o, t.lse, target.stream(team));
  placed.fetch();
  return merged;
}

}  // namespace

States random_states(int n, int rows, int heads, int dim, DType dtype, unsigned seed) {
  States s{n, rows, heads, dim, dtype, {}, {}};
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const int64_t states = int64_t{n} * rows * heads;
  s.o.resize(static_cast<size_t>(states * dim * bits_of(dtype) / 8));
  for (int64_t i = 0; i < states * dim; ++i) put(s.o.data(), dtype, i, normal(random));
  for (int64_t i = 0; i < states; ++i) s.lse.push_back(5 * normal(random));
  return s;
}

Merged merge_on(const Target& target, States& s, DType out_dtype) {
  return merged_on(target, TensorView(s.o.data(), s.dtype, {s.n, s.rows, s.heads, s.dim}),
                   TensorView(s.lse.data(), DType::fp32, {s.n, s.rows, s.heads}), s.rows, out_dtype,
                   [](const TensorView& o, const TensorView& lse, const TensorView& o_out, const TensorView& lse_out,
                      Stream stream) { merge_states(o, lse, o_out, lse_out, stream); });
}

Merged merge_list_on(const Target& target, States& list, std::span<const int32_t> indptr, DType out_dtype) {
  const int64_t nnz = int64_t{list.n} * list.rows;
  return merged_on(target, TensorView(list.o.data(), list.dtype, {nnz, list.heads, list.dim}),
                   TensorView(list.lse.data(), DType::fp32, {nnz, list.heads}), static_cast<int>(indptr.size()) - 1,
                   out_dtype,
                   [&](const TensorView& o, const TensorView& lse, const TensorView& o_out, const TensorView& lse_out,
                       Stream stream) { merge_states(o, lse, indptr, o_out, lse_out, stream); });
}

void expect_merged(const Target& target, States& s, DType out_dtype, bool by_indptr) {
  SCOPED_TRACE(target.name());
  Merged merged;
  if (by_indptr) {
    // State i of row r stands at r * n + i: the same numbers in another order.
    std::vector<int32_t> indptr;
    for (int r = 0; r <= s.rows; ++r) indptr.push_back(r * s.n);
    States list{s.n, s.rows, s.heads, s.dim, s.dtype, std::vector<char>(s.o.size()), {}};
    int64_t at = 0;
    for (int r = 0; r < s.rows; ++r)
      for (int i = 0; i < s.n; ++i)
        for (int h = 0; h < s.heads; ++h) {
          const int64_t from = (int64_t{i} * s.rows + r) * s.heads + h;
          list.lse.push_back(s.lse[static_cast<size_t>(from)]);
          for (int d = 0; d < s.dim; ++d) put(list.o.data(), s.dtype, at++, get(s.o.data(), s.dtype, from * s.dim + d));
        }
    merged = merge_list_on(target, list, indptr, out_dtype);
  } else {
    merged = merge_on(target, s, out_dtype);
  }
  const double unit = out_dtype == DType::fp32 ? 1e-6 : out_dtype == DType::fp16 ? 6e-4 : 5e-3;
  for (int r = 0; r < s.rows; ++r)
    for (int h = 0; h < s.heads; ++h) {
      double max = -INFINITY, sum = 0;
      const auto lse = [&](int i) {
        return static_cast<double>(s.lse[static_cast<size_t>((i * s.rows + r) * s.heads + h)]);
      };
      for (int i = 0; i < s.n; ++i) max = std::max(max, lse(i));
      for (int i = 0; i < s.n; ++i) sum += max == -INFINITY ? 0 : std::exp(lse(i) - max);
      const double expected_lse = max == -INFINITY ? -INFINITY : max + std::log(sum);
      const double got_lse = static_cast<double>(merged.lse[static_cast<size_t>(r * s.heads + h)]);
      EXPECT_TRUE(got_lse == expected_lse || std::abs(got_lse - expected_lse) < 1e-5) << got_lse << " " << expected_lse;
      for (int d = 0; d < s.dim; ++d) {
        double expected = 0, scale = 0;
        for (int i = 0; i < s.n; ++i) {
          if (lse(i) == -INFINITY) continue;
          const double x = get(s.o.data(), s.dtype, ((int64_t{i} * s.rows + r) * s.heads + h) * s.dim + d);
          expected += std::exp(lse(i) - max) / sum * x;
          scale += std::exp(lse(i) - max) / sum * std::abs(x);
        }
        const double got = get(merged.o.data(), out_dtype, (int64_t{r} * s.heads + h) * s.dim + d);
        EXPECT_NEAR(got, expected, unit * scale + 1e-7);
      }
    }
}

}  // namespace weft::testing
