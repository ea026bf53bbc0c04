#include "tests/attention/kernels/states.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

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

void expect_levels_merge(const Target& target, Case c, double most_error) {
  SCOPED_TRACE(target.name());
  c.lengths = {{2, 100}, {3, 60}};
  Problem problem(c);
  PlanInput input = problem.input(3);
  std::vector<int32_t> ids(input.pages.kv_page_indices.begin(), input.pages.kv_page_indices.end());
  ids[7] = ids[0];
  ids[8] = ids[1];
  input.pages.kv_page_indices = ids;
  const ReferenceResult flat = attention_reference(problem.spec(), input, problem.tensors());
  const std::vector<int32_t> shared_rows{0, 5}, own_rows{0, 2, 5}, shared_indptr{0, 2}, own_indptr{0, 5, 7};
  const std::vector<int32_t> shared_last{16}, own_last{4, 12};
  std::vector<int32_t> own_ids(ids.begin() + 2, ids.begin() + 7);
  own_ids.insert(own_ids.end(), ids.begin() + 9, ids.begin() + 11);
  const PageTableView table = input.pages;
  const Level levels[] = {{shared_rows, {16, table.num_pages, shared_indptr, std::span(ids).first(2), shared_last}},
                          {own_rows, {16, table.num_pages, own_indptr, own_ids, own_last}}};
  input.pages = {};
  input.levels = levels;
  const AttentionKernel kernel = build_on(target, problem.spec());
  const Plan plan = kernel.plan(input);
  ASSERT_GT(plan.num_partials(), 0);
  run_on(target, kernel, plan, problem.tensors());
  const TensorView o = problem.tensors().o;
  for (size_t i = 0; i < flat.o.size(); ++i)
    ASSERT_NEAR(get(o.data(), o.dtype(), static_cast<int64_t>(i)), flat.o[i], most_error) << i;
}

void expect_parts_merge(const Target& target, int head_dim) {
  SCOPED_TRACE(target.name());
  constexpr int kRows = 3, kHeads = 2, kKeys = 50, kFirst = 20;
  const size_t row = static_cast<size_t>(kHeads * head_dim);
  std::vector<float> q(kRows * row), k(kKeys * row), v(k.size());
  for (size_t i = 0; i < k.size(); ++i) {
    k[i] = std::sin(static_cast<float>(i));
    v[i] = std::cos(static_cast<float>(i));
    if (i < q.size()) q[i] = std::sin(static_cast<float>(7 * i));
  }
  const AttentionSpec spec{.head_dim_qk = head_dim, .head_dim_vo = head_dim, .kv_form = KvForm::ragged};
  const auto attend_keys = [&](int begin, int end, char* o, float* lse) {
    AttentionTensors tensors;
    tensors.q = TensorView(q.data(), DType::fp32, {kRows, kHeads, head_dim});
    tensors.kv = {
        TensorView(k.data() + static_cast<size_t>(begin) * row, DType::fp32, {end - begin, kHeads, head_dim}),
        TensorView(v.data() + static_cast<size_t>(begin) * row, DType::fp32, {end - begin, kHeads, head_dim})};
    tensors.o = TensorView(o, DType::fp32, {kRows, kHeads, head_dim});
    tensors.lse = TensorView(lse, DType::fp32, {kRows, kHeads});
    const Placed placed(target, tensors);
    const AttentionTensors& t = placed.tensors();
    attend(spec, t.q, t.kv.k, t.kv.v, t.o, t.lse);
    placed.fetch();
  };
  const auto states = [&](int n) {
    return States{n,
                  kRows,
                  kHeads,
                  head_dim,
                  DType::fp32,
                  std::vector<char>(static_cast<size_t>(n) * kRows * row * 4),
                  std::vector<float>(static_cast<size_t>(n) * kRows * kHeads)};
  };
  States whole = states(1), parts = states(2);
  attend_keys(0, kKeys, whole.o.data(), whole.lse.data());
  attend_keys(0, kFirst, parts.o.data(), parts.lse.data());
  attend_keys(kFirst, kKeys, parts.o.data() + parts.o.size() / 2, parts.lse.data() + kRows * kHeads);

  const Merged merged = merge_on(target, parts, DType::fp32);
  const auto at = [](const std::vector<char>& o, size_t i) {
    return get(o.data(), DType::fp32, static_cast<int64_t>(i));
  };
  for (size_t i = 0; i < q.size(); ++i) EXPECT_NEAR(at(merged.o, i), at(whole.o, i), 1e-5) << i;
  for (size_t i = 0; i < whole.lse.size(); ++i) EXPECT_NEAR(merged.lse[i], whole.lse[i], 1e-5) << i;

  const std::vector<int32_t> indptr{0, 0, 1, 2 * kRows};
  const Merged list = merge_list_on(target, parts, indptr, DType::fp32);
  for (size_t i = 0; i < row; ++i) {
    EXPECT_EQ(at(list.o, i), 0);
    EXPECT_NEAR(at(list.o, row + i), at(parts.o, i), 1e-6);
  }
  EXPECT_EQ(list.lse[0], -INFINITY);
}

}  // namespace weft::testing
