// Extents of 0, of 1 and of no whole vector: every ready operator in every format, over matrices without rows, without
// columns, of one of either, and of no element.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/extent_cases.h"
#include "tests/sparse/support.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::test {
namespace {

std::vector<int64_t> feats() {
  if (testing::kUnderSanitizer) return {0, 1, 7, 16};
  return {0, 1, 2, 3, 7, 16, 33};
}

class Extents : public ::testing::TestWithParam<int64_t> {};
std::string feat_name(const ::testing::TestParamInfo<int64_t>& info) { return fmt::format("Feat{}", info.param); }

// Texts for the CPU and for cards, and the schedule by the interpreter beside the program without one.
TEST_P(Extents, OfAnyNumberOfFeaturesAreScheduledAlike) {
  std::vector<Edge> all = edges();
  // The interpreter takes long over many features, whose matrices others test.
  if (GetParam() > 7) all.erase(all.begin() + 2, all.end() - 1);
  for (const ReadyCase& c : extent_cases(GetParam())) {
    const Operator op =
        compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set, .stop_after = "generate"});
    EXPECT_FALSE(op.text("cuda").empty()) << c.name;
    for (const Edge& edge : all) {
      const std::string what = fmt::format("{}, {}", c.name, edge.name);
      RunArguments given{.structures = {{c.axis, c.structure(edge.matrix)}}, .scalars = c.scalars, .reals = c.reals};
      if (c.name.starts_with("rgms")) given.scalars["m"] = edge.matrix.rows;
      const RunMemory memory(op, given, 17);
      if (interpreted_stages().empty()) continue;
      const loop::Memory want = interpret_operator(op, memory.arguments, Stage::source);
      for (const Stage stage : {Stage::two, Stage::three}) {
        if (stage == Stage::two && GetParam() > 7) continue;
        const loop::Memory got = interpret_operator(op, memory.arguments, stage);
        for (const std::string& output : outputs_of(op))
          expect_close(got.buffers.at(output), want.buffers.at(output), 1e-6, what);
      }
      ASSERT_FALSE(HasFailure()) << what << "\n" << c.ready.schedule;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Features, Extents, ::testing::ValuesIn(feats()), feat_name);

// ---------------------------------------------------------------- calls, against plain loops

// Random rows of features, and memory for results.
struct Rows {
  Rows(int64_t rows, int64_t feat, uint32_t seed)
      : count(rows), width(feat), values(random_values(static_cast<size_t>(rows * feat), seed)) {}
  TensorView view() const { return {values.data(), DType::fp32, {count, width}}; }
  TensorView of_heads(int64_t heads) const { return {values.data(), DType::fp32, {heads, count / heads, width}}; }
  double at(int64_t row, int64_t k) const { return values[static_cast<size_t>(row * width + k)]; }
  int64_t count, width;
  Values values;
};
Rows nothing(int64_t rows, int64_t feat) {
  Rows result(rows, feat, 1);
  std::fill(result.values.begin(), result.values.end(), std::nanf(""));
  return result;
}

double dot_of(const Rows& x, int64_t i, const Rows& y, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < x.width; ++k) sum += x.at(i, k) * y.at(j, k);
  return sum;
}

template <class Call>
void each_element(const Matrix& a, const Call& call) {
  for (int64_t i = 0; i < a.rows; ++i)
    for (int32_t p = a.indptr[static_cast<size_t>(i)]; p < a.indptr[static_cast<size_t>(i) + 1]; ++p)
      call(i, a.indices[static_cast<size_t>(p)], static_cast<size_t>(p));
}

class EdgeCalls : public ::testing::TestWithParam<int64_t> {};
INSTANTIATE_TEST_SUITE_P(Features, EdgeCalls, ::testing::Values(0, 1), feat_name);

TEST_P(EdgeCalls, OfSpmmAndSddmmInEveryFormatArePlainLoops) {
  const int64_t feat = GetParam();
  for (const char* format : extent_formats()) {
    if (testing::kUnderSanitizer && std::string_view(format).size() > 6) continue;  // compiling takes long
    for (const Edge& edge : edges()) {
      const Matrix& a = edge.matrix;
      const std::string what = fmt::format("{}, {}", format, edge.name);
      const Rows x(a.rows, feat, 2), b(a.cols, feat, 3), c = nothing(a.rows, feat);
      Values out(a.values.size(), std::nanf(""));
      spmm(a.structure(), a.values_view(), b.view(), c.view(), {.format = format});
      expect_close(doubles(c.values), dense_spmm(a, b.values, feat), 1e-5, what);
      sddmm(a.structure(), a.values_view(), x.view(), b.view(),
            {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}}, {.format = format});
      expect_close(doubles(out), dense_sddmm(a, x.values, b.values, feat), 1e-5, what);
      ASSERT_FALSE(HasFailure()) << what;
    }
  }
}

TEST_P(EdgeCalls, OfAttentionAndFusedMmArePlainLoops) {
  const int64_t feat = GetParam();
  for (const Edge& edge : edges())
    for (const int64_t feat_v : {0, 1, 3}) {
      const Matrix& a = edge.matrix;
      const Rows q(a.rows, feat, 2), k(a.cols, feat, 3), v(a.cols, feat_v, 4), o = nothing(a.rows, feat_v);
      std::vector<double> want(o.values.size(), 0), sum(static_cast<size_t>(a.rows), 0);
      each_element(a,
                   [&](int64_t i, int64_t j, size_t) { sum[static_cast<size_t>(i)] += std::exp(dot_of(q, i, k, j)); });
      each_element(a, [&](int64_t i, int64_t j, size_t) {
        for (int64_t l = 0; l < feat_v; ++l)
          want[static_cast<size_t>(i * feat_v + l)] +=
              std::exp(dot_of(q, i, k, j)) / sum[static_cast<size_t>(i)] * v.at(j, l);
      });
      graph_attention(a.structure(), q.view(), k.view(), v.view(), o.view());
      expect_close(doubles(o.values), want, 1e-5, edge.name);
      const Rows fused = nothing(a.rows, feat);
      want.assign(fused.values.size(), 0);
      each_element(a, [&](int64_t i, int64_t j, size_t) {
        for (int64_t l = 0; l < feat; ++l)
          want[static_cast<size_t>(i * feat + l)] += k.at(j, l) / (1 + std::exp(-dot_of(q, i, k, j)));
      });
      fused_mm(a.structure(), q.view(), k.view(), fused.view());
      expect_close(doubles(fused.values), want, 1e-5, edge.name);
      ASSERT_FALSE(HasFailure());
    }
}

TEST_P(EdgeCalls, OfHeadsAndGradientsArePlainLoops) {
  const int64_t feat = GetParam();
  for (const Edge& edge : edges()) {
    const Matrix& a = edge.matrix;
    const auto nnz = static_cast<int64_t>(a.values.size());
    const Rows x(a.rows, feat, 2), y(a.cols, feat, 3), c = nothing(a.rows, feat);
    Values out(a.values.size(), std::nanf(""));
    batched_spmm(a.structure(), {a.values.data(), DType::fp32, {1, nnz}}, y.of_heads(1), c.of_heads(1));
    expect_close(doubles(c.values), dense_spmm(a, y.values, feat), 1e-5, edge.name);
    batched_sddmm(a.structure(), x.of_heads(1), y.of_heads(1), {out.data(), DType::fp32, {1, nnz}});
    std::vector<double> dots, weights;
    each_element(a, [&](int64_t i, int64_t j, size_t p) {
      dots.push_back(dot_of(x, i, y, j));
      weights.push_back(a.values[p] * dots.back());
    });
    expect_close(doubles(out), dots, 1e-5, edge.name);
    // x as the gradient of c: d_values = x . y, d_b = a^T x.
    Values d_values(a.values.size(), std::nanf(""));
    const TensorView d_view(d_values.data(), DType::fp32, {nnz});
    const Rows d_b = nothing(a.cols, feat), d_x = nothing(a.rows, feat), d_y = nothing(a.cols, feat);
    const Transposed at = transposed(a.structure());
    spmm_backward(a.structure(), at, a.values_view(), y.view(), x.view(), {.values = d_view, .b = d_b.view()});
    expect_close(doubles(d_values), dots, 1e-5, edge.name);
    std::vector<double> want_b(d_b.values.size(), 0), want_x(d_x.values.size(), 0), want_y(d_y.values.size(), 0);
    const Values d_out = random_values(a.values.size(), 5);
    each_element(a, [&](int64_t i, int64_t j, size_t p) {
      for (int64_t k = 0; k < feat; ++k) {
        want_b[static_cast<size_t>(j * feat + k)] += a.values[p] * x.at(i, k);
        want_x[static_cast<size_t>(i * feat + k)] += static_cast<double>(a.values[p]) * d_out[p] * y.at(j, k);
        want_y[static_cast<size_t>(j * feat + k)] += static_cast<double>(a.values[p]) * d_out[p] * x.at(i, k);
      }
    });
    expect_close(doubles(d_b.values), want_b, 1e-5, edge.name);
    sddmm_backward(a.structure(), at, a.values_view(), x.view(), y.view(), {d_out.data(), DType::fp32, {nnz}},
                   {.x = d_x.view(), .y = d_y.view()});
    expect_close(doubles(d_x.values), want_x, 1e-5, edge.name);
    expect_close(doubles(d_y.values), want_y, 1e-5, edge.name);
    ASSERT_FALSE(HasFailure());
  }
}

// Rows of c over whole blocks, or strips: what the matrix has, and zeros behind.
std::vector<double> padded(std::vector<double> rows, int64_t count, int64_t feat) {
  rows.resize(static_cast<size_t>(count * feat), 0);
  return rows;
}
Values stored_values(const Matrix& a, const std::vector<int64_t>& order) {
  Values values;
  for (const int64_t e : order) values.push_back(e < 0 ? 0 : a.values[static_cast<size_t>(e)]);
  return values;
}

TEST_P(EdgeCalls, OfBlocksAndStripsArePlainLoops) {
  const int64_t feat = GetParam();
  for (const Edge& edge : edges())
    for (const int64_t block : {1, 2}) {
      const Matrix& a = edge.matrix;
      const auto up = [&](int64_t n) { return (n + block - 1) / block * block; };
      Rows b(a.cols, feat, 3);
      b.values = random_values(static_cast<size_t>(a.cols * feat), 3);
      const std::vector<double> product = dense_spmm(a, b.values, feat);
      b.count = up(a.cols);
      b.values.resize(static_cast<size_t>(b.count * feat), 1);
      const std::vector<double> want = padded(product, up(a.rows), feat);
      for (const bool only_full : {false, true}) {
        const Converted blocks = only_full ? dbsr_from_coo(a.coo(), block) : bsr_from_coo(a.coo(), block);
        const Values values = stored_values(a, blocks.order);
        const auto count = static_cast<int64_t>(values.size()) / (block * block);
        const TensorView view(values.data(), DType::fp32, {count, block, block});
        const Rows c = nothing(up(a.rows), feat);
        (only_full ? dbsr_spmm : block_spmm)(blocks.structure, view, b.view(), c.view(), {});
        expect_close(doubles(c.values), want, 1e-5, fmt::format("{}, block {}", edge.name, block));
      }
      for (const int64_t g : {1, 3}) {
        const Converted strips = sr_bcrs_from_coo(a.coo(), block, g);
        const Values values = stored_values(a, strips.order);
        const TensorView view(values.data(), DType::fp32,
                              {static_cast<int64_t>(values.size()) / (block * g), g, block});
        const Rows c = nothing(up(a.rows), feat);
        sr_bcrs_spmm(strips.structure, view, {b.values.data(), DType::fp32, {a.cols, feat}}, c.view());
        expect_close(doubles(c.values), want, 1e-5, fmt::format("{}, strips of {}, groups of {}", edge.name, block, g));
      }
      ASSERT_FALSE(HasFailure());
    }
}

TEST_P(EdgeCalls, OfRelationsArePlainLoops) {
  const int64_t feat = GetParam();
  for (const Edge& edge : edges())
    for (const int64_t tile : {1, 4})
      for (const int64_t feat_out : {0, 1, 3}) {
        const Matrix& a = edge.matrix;
        const CooTensor relations = in_relations(a);
        const Converted edges_of = relational_from_coo(relations, tile);
        const Values values = stored_values(a, edges_of.order);
        const Rows x(a.cols, feat, 2), w(3 * feat, feat_out, 3), y = nothing(a.rows, feat_out);
        std::vector<double> want(y.values.size(), 0);
        each_element(a, [&](int64_t i, int64_t j, size_t p) {
          for (int64_t l = 0; l < feat; ++l)
            for (int64_t k = 0; k < feat_out; ++k)
              want[static_cast<size_t>(i * feat_out + k)] +=
                  a.values[p] * x.at(j, l) * w.at(relations.coordinates[0][p] * feat + l, k);
        });
        rgms(edges_of.structure, {values.data(), DType::fp32, {static_cast<int64_t>(values.size())}}, x.view(),
             {w.values.data(), DType::fp32, {3, feat, feat_out}}, y.view());
        expect_close(doubles(y.values), want, 1e-5, fmt::format("{}, tile {}, out {}", edge.name, tile, feat_out));
        ASSERT_FALSE(HasFailure());
      }
}

// A schedule is written for any number of features: lines that name loops of one iteration, or of none, are kept.
TEST(NamedLoops, MayHaveOneIterationOrNone) {
  const Matrix a = random_matrix(Shape::power_law, 23);
  for (const char* schedule :
       {"lower()\nko, ki = split(csrmm.k, 16)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\ncache_write(ko, register)\n"
        "annotate(csrmm.j, prefetch)\nparallel(csrmm.i)\n",
        "lower()\nvectorize(csrmm.k)\nparallel(csrmm.i)\n", "lower()\nreorder(csrmm.k, csrmm.j)\nunroll(csrmm.k)\n",
        "lower()\nreorder(csrmm.k, csrmm.i, csrmm.j)\nparallel(csrmm.k)\n",
        "decompose_format(csrmm, A, hyb(1, 2))\nlower()\nko, ki = split(csrmm.k, "
        "4)\nvectorize(ki)\nparallel(csrmm.i)\n",
        "decompose_format(csrmm, A, bsr(1))\nlower()\nreorder(csrmm.ji, csrmm.ii)\nunroll(csrmm.ii)\n",
        "decompose_format(csrmm, A, ell(40))\nlower()\nunroll(csrmm.k)\nparallel(csrmm.i)\n"})
    for (const int64_t feat : {0, 1}) {
      const Operator op = compile(parse(kSpmmProgram), schedule, Device::cpu(), {.set = {{"feat", feat}}});
      Values b = random_values(static_cast<size_t>(a.cols * feat), 3), c(static_cast<size_t>(a.rows * feat));
      expect_everywhere(op,
                        {.structures = {{"J", a.structure()}},
                         .buffers = {{"A", a.values_view()},
                                     {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                                     {"C", {c.data(), DType::fp32, {a.rows, feat}}}}},
                        "C", dense_spmm(a, b, feat), schedule);
    }
}

// What a nest of iterations shares may be an axis of one position.
TEST(NamedLoops, OfNestsMayHaveOneIteration) {
  const char* text = R"(program nest(m, n):
  I = dense_fixed(m)
  N = dense_fixed(n)
  X = buffer(I, N): fp32
  S = temporary(I): fp32
  Y = buffer(I, N): fp32
  iterate rows(I) "S" as (i):
    iterate sums(N) "R" as (j):
      init:
        S[i] = 0.0
      S[i] = S[i] + X[i, j]
    iterate rest(N) "S" as (j):
      Y[i, j] = X[i, j] - S[i]
)";
  for (const char* schedule : {"", "lower()\nparallel(rest.i)\nset_scope(S, register)\n"})
    for (const int64_t m : {1, 3}) {
      const Operator op = compile(parse(text), schedule, Device::cpu(), {.set = {{"m", m}}});
      Values x = random_values(static_cast<size_t>(m * 4), 3), y(x.size());
      std::vector<double> want;
      for (int64_t i = 0; i < m; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < 4; ++j) sum += x[static_cast<size_t>(i * 4 + j)];
        for (int64_t j = 0; j < 4; ++j) want.push_back(x[static_cast<size_t>(i * 4 + j)] - sum);
      }
      expect_everywhere(op,
                        {.buffers = {{"X", {x.data(), DType::fp32, {m, 4}}}, {"Y", {y.data(), DType::fp32, {m, 4}}}}},
                        "Y", want, schedule);
    }
}

}  // namespace
}  // namespace weft::sparse::test
