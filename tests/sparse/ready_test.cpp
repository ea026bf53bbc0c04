// Ready operators against dense arithmetic in double, on every shape of matrix, in fp32 and bf16.
#include "sparse/operators/ready.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

#include "device/cpu/cpuid.h"
#include "jit/host/module.h"
#include "sparse/machine.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/programs.h"
#include "sparse/operators/vector_unit.h"
#include "tests/sparse/ready_programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"
#include "tests/support/sanitizers.h"

namespace weft::sparse::test {
namespace {

// Values of one type, and what they are in double.
struct Typed {
  std::vector<uint16_t> halves = {};
  Values floats = {};
  std::vector<double> exact = {};
  std::vector<int64_t> shape = {};
  DType dtype = DType::fp32;
  TensorView view() const {
    return {dtype == DType::fp32 ? static_cast<const void*>(floats.data()) : halves.data(), dtype, shape};
  }
};

Typed typed(const Values& values, std::vector<int64_t> shape, DType dtype) {
  Typed t{.floats = values, .shape = std::move(shape), .dtype = dtype};
  for (const float v : values) {
    const uint32_t bits = std::bit_cast<uint32_t>(v);
    const auto half = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
    t.halves.push_back(half);
    t.exact.push_back(dtype == DType::fp32 ? v : std::bit_cast<float>(static_cast<uint32_t>(half) << 16));
  }
  return t;
}

Typed random_typed(std::vector<int64_t> shape, uint32_t seed, DType dtype) {
  const int64_t size = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  return typed(random_values(static_cast<size_t>(size), seed), std::move(shape), dtype);
}

// What is written begins as NaN.
Typed poisoned(std::vector<int64_t> shape, DType dtype) {
  Typed t = random_typed(std::move(shape), 1, dtype);
  std::fill(t.floats.begin(), t.floats.end(), std::nanf(""));
  std::fill(t.halves.begin(), t.halves.end(), static_cast<uint16_t>(0x7fc0));
  return t;
}

void expect_result(const Typed& got, const std::vector<double>& want, const std::string& what) {
  expect_close(values_of(got.view()), want, got.dtype == DType::fp32 ? 2e-5 : 1. / 128, what);
}

// Every (row, column) that is stored, and its position.
template <class Call>
void each_stored(const Matrix& a, const Call& call) {
  for (size_t r = 0; r + 1 < a.indptr.size(); ++r)
    for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p)
      call(r, static_cast<size_t>(a.indices[static_cast<size_t>(p)]), static_cast<size_t>(p));
}

double dot(const Typed& x, size_t row, const Typed& y, size_t other, int64_t feat) {
  double sum = 0;
  for (size_t k = 0; k < static_cast<size_t>(feat); ++k)
    sum += x.exact[row * static_cast<size_t>(feat) + k] * y.exact[other * static_cast<size_t>(feat) + k];
  return sum;
}

constexpr DType kTypes[] = {DType::fp32, DType::bf16};

class Ready : public ::testing::TestWithParam<Shape> {};
std::string shape_name(const ::testing::TestParamInfo<Shape>& info) { return name_of(info.param); }
INSTANTIATE_TEST_SUITE_P(Shapes, Ready, ::testing::ValuesIn(kShapes), shape_name);

TEST_P(Ready, GraphAttentionIsSoftmaxOverEachRow) {
  const Matrix a = random_matrix(GetParam(), 201);
  for (const DType dtype : kTypes)
    for (const auto& [feat, feat_v] : {std::pair<int64_t, int64_t>{5, 3}, {32, 80}}) {
      const Typed q = random_typed({a.rows, feat}, 2, dtype), k = random_typed({a.cols, feat}, 3, dtype);
      const Typed v = random_typed({a.cols, feat_v}, 4, dtype), o = poisoned({a.rows, feat_v}, dtype);
      std::vector<double> sum(static_cast<size_t>(a.rows), 0), want(o.floats.size(), 0);
      const auto width = static_cast<size_t>(feat_v);
      each_stored(a, [&](size_t i, size_t j, size_t) {
        const double weight = std::exp(0.5 * dot(q, i, k, j, feat));
        sum[i] += weight;
        for (size_t l = 0; l < width; ++l) want[i * width + l] += weight * v.exact[j * width + l];
      });
      for (size_t e = 0; e < want.size(); ++e) want[e] = want[e] == 0 ? 0 : want[e] / sum[e / width];
      graph_attention(a.structure(), q.view(), k.view(), v.view(), o.view(), 0.5f);
      expect_result(o, want, "feat " + std::to_string(feat));
      // In one nest, and one operator after another.
      for (const bool is_apart : {false, true}) {
        const Typed again = poisoned({a.rows, feat_v}, dtype);
        kept_operator(attention_program(feat, feat_v, dtype, vector_unit(current_isa()), {.is_apart = is_apart}))
            .run({.structures = {{"J", a.structure()}},
                  .buffers = {{"Q", q.view()}, {"Keys", k.view()}, {"V", v.view()}, {"O", again.view()}},
                  .reals = {{"scale", 0.5}}});
        expect_result(again, want, is_apart ? "apart" : "one nest");
      }
    }
}

// Scores far beyond what an exponential holds, all alike within a row: their products with the scale are rounded once.
TEST(GraphAttention, WeighsHugeScoresByTheirDifferences) {
  const Matrix a = random_matrix(Shape::uniform, 202);
  const auto rows = static_cast<size_t>(a.rows), cols = static_cast<size_t>(a.cols);
  constexpr int64_t kFeat = 32;
  Typed q = random_typed({a.rows, kFeat}, 2, DType::fp32), k = random_typed({a.cols, kFeat}, 3, DType::fp32);
  std::fill(q.floats.begin(), q.floats.end(), 0.f);
  std::fill(k.floats.begin(), k.floats.end(), 0.f);
  for (size_t i = 0; i < rows; ++i)
    q.floats[i * kFeat] = (i % 2 == 0 ? 1.f : -1.f) * (1e10f + 1.7e8f * static_cast<float>(i));
  for (size_t j = 0; j < cols; ++j) k.floats[j * kFeat] = 1.1e10f;
  const Typed v = random_typed({a.cols, kFeat}, 4, DType::fp32);
  std::vector<double> want(rows * kFeat, 0), count(rows, 0);
  each_stored(a, [&](size_t i, size_t j, size_t) {
    ++count[i];
    for (size_t l = 0; l < kFeat; ++l) want[i * kFeat + l] += v.exact[j * kFeat + l];
  });
  for (size_t e = 0; e < want.size(); ++e) want[e] = want[e] == 0 ? 0 : want[e] / count[e / kFeat];
  for (const bool is_apart : {false, true}) {
    const Typed o = poisoned({a.rows, kFeat}, DType::fp32);
    kept_operator(attention_program(kFeat, kFeat, DType::fp32, vector_unit(current_isa()), {.is_apart = is_apart}))
        .run({.structures = {{"J", a.structure()}},
              .buffers = {{"Q", q.view()}, {"Keys", k.view()}, {"V", v.view()}, {"O", o.view()}},
              .reals = {{"scale", 0.7}}});
    expect_result(o, want, is_apart ? "apart" : "one nest");
  }
}

TEST(GraphAttention, FetchesAsFarAheadAsItIsTold) {
  const auto schedule = [](const AttentionForm& form) {
    return attention_program(64, 128, DType::fp32, {}, form).schedule;
  };
  const std::string apart = schedule({.is_apart = true, .keys_ahead = 7, .values_ahead = 0});
  EXPECT_NE(apart.find("annotate(largest.j, prefetch, 7)"), std::string::npos) << apart;
  EXPECT_EQ(apart.find("annotate(values.j"), std::string::npos) << apart;
  EXPECT_EQ(apart.find("values_lo, "), std::string::npos) << apart;  // a row of values is one tile
  const std::string nest = schedule({});
  EXPECT_NE(nest.find(fmt::format("annotate(values.j, prefetch, {})", default_prefetch(128))), std::string::npos);
  EXPECT_NE(nest.find("values_lo, "), std::string::npos) << nest;
}

TEST(GraphAttention, IsOneNestWhereKeysAreValuesBeyondTheSecondCache) {
  const int64_t l2 = machine().l2_bytes;
  EXPECT_TRUE(attention_runs_apart(l2, true));
  EXPECT_FALSE(attention_runs_apart(l2 + 1, true));
  EXPECT_TRUE(attention_runs_apart(l2, false));
  EXPECT_TRUE(attention_runs_apart(64 * l2, false));
}

// The parallel loops of a schedule: a team meets behind each.
TEST(GraphAttention, HasOneParallelLoopOrThree) {
  for (const bool is_apart : {false, true}) {
    const ReadyProgram ready = attention_program(64, 64, DType::fp32, {}, {.is_apart = is_apart});
    const std::string text =
        compile(parse(ready.text), ready.schedule, Device::cpu(), {.set = ready.set, .stop_after = "generate"})
            .text("stage3");
    int loops = 0;
    for (size_t at = 0; (at = text.find("[parallel", at)) != text.npos; ++at) ++loops;
    EXPECT_EQ(loops, is_apart ? 3 : 1);
  }
}

TEST_P(Ready, FusedMmWeighsByTheSigmoidOfTheScore) {
  const Matrix a = random_matrix(GetParam(), 202);
  for (const DType dtype : kTypes)
    for (const int64_t feat : {7, 32}) {
      const Typed x = random_typed({a.rows, feat}, 2, dtype), y = random_typed({a.cols, feat}, 3, dtype);
      const Typed o = poisoned({a.rows, feat}, dtype);
      std::vector<double> want(o.floats.size(), 0);
      const auto width = static_cast<size_t>(feat);
      each_stored(a, [&](size_t i, size_t j, size_t) {
        const double weight = 1 / (1 + std::exp(-dot(x, i, y, j, feat)));
        for (size_t k = 0; k < width; ++k) want[i * width + k] += weight * y.exact[j * width + k];
      });
      fused_mm(a.structure(), x.view(), y.view(), o.view());
      expect_result(o, want, "feat " + std::to_string(feat));
    }
}

TEST_P(Ready, SpmmAndSddmmSumInFp32) {
  const Matrix a = random_matrix(GetParam(), 203);
  const auto nnz = static_cast<int64_t>(a.values.size());
  const DType dtype = DType::bf16;
  for (const int64_t feat : {5, 16, 48}) {
    const Typed values = typed(a.values, {nnz}, dtype), b = random_typed({a.cols, feat}, 3, dtype);
    const Typed x = random_typed({a.rows, feat}, 4, dtype), out = poisoned({nnz}, dtype);
    const auto width = static_cast<size_t>(feat);
    std::vector<double> product(static_cast<size_t>(a.rows * feat), 0), dots(static_cast<size_t>(nnz));
    each_stored(a, [&](size_t i, size_t j, size_t p) {
      for (size_t k = 0; k < width; ++k) product[i * width + k] += values.exact[p] * b.exact[j * width + k];
      dots[p] = values.exact[p] * dot(x, i, b, j, feat);
    });
    // Rounded once, also where several formats add to a row.
    for (const char* format : {"csr", "hyb(1, 2)", "hyb(4, 0)", "bsr(4)", "csc()", "bsr(2), coo()"}) {
      const Typed c = poisoned({a.rows, feat}, dtype);
      spmm(a.structure(), values.view(), b.view(), c.view(), {.format = format});
      expect_close(values_of(c.view()), product, 1. / 256 + 2e-5, format);
    }
    for (const char* format : {"auto", "hyb(1, 1)", "coo()"}) {
      sddmm(a.structure(), values.view(), x.view(), b.view(), out.view(), {.format = format});
      expect_result(out, dots, std::string("sddmm in ") + format);
    }
  }
}

TEST_P(Ready, BatchedOperatorsShareOneStructure) {
  const Matrix a = random_matrix(GetParam(), 204);
  const int64_t heads = 3, nnz = static_cast<int64_t>(a.values.size());
  for (const DType dtype : kTypes)
    for (const int64_t feat : {6, 64}) {
      const Typed values = random_typed({heads, nnz}, 2, dtype), b = random_typed({heads, a.cols, feat}, 3, dtype);
      const Typed x = random_typed({heads, a.rows, feat}, 4, dtype);
      const Typed c = poisoned({heads, a.rows, feat}, dtype), out = poisoned({heads, nnz}, dtype);
      std::vector<double> product(c.floats.size(), 0), dots(out.floats.size());
      const auto width = static_cast<size_t>(feat);
      for (size_t h = 0; h < static_cast<size_t>(heads); ++h)
        each_stored(a, [&](size_t i, size_t j, size_t p) {
          const size_t row = h * static_cast<size_t>(a.rows) + i, col = h * static_cast<size_t>(a.cols) + j;
          const size_t place = h * static_cast<size_t>(nnz) + p;
          for (size_t k = 0; k < width; ++k) product[row * width + k] += values.exact[place] * b.exact[col * width + k];
          dots[place] = dot(x, row, b, col, feat);
        });
      batched_spmm(a.structure(), values.view(), b.view(), c.view());
      expect_result(c, product, "spmm, feat " + std::to_string(feat));
      batched_sddmm(a.structure(), x.view(), b.view(), out.view());
      expect_result(out, dots, "sddmm, feat " + std::to_string(feat));
    }
}

// Blocks of a pattern, or of a matrix: every block is dense.
void expect_blocks(const Structure& blocks, int64_t heads, int64_t block, int64_t feat, DType dtype) {
  const int64_t m = blocks.num_rows() * block, n = blocks.num_cols() * block, nnzb = blocks.nnz();
  const auto shape = [&](std::vector<int64_t> rest) {
    if (heads > 1) rest.insert(rest.begin(), heads);
    return rest;
  };
  const Typed values = random_typed(shape({nnzb, block, block}), 5, dtype),
              b = random_typed(shape({n, feat}), 6, dtype);
  const Typed x = random_typed(shape({m, feat}), 7, dtype);
  const Typed c = poisoned(shape({m, feat}), dtype), out = poisoned(shape({nnzb, block, block}), dtype);
  std::vector<double> product(c.floats.size(), 0), dots(out.floats.size());
  const Matrix pattern = [&] {
    Matrix p{.rows = blocks.num_rows(), .cols = blocks.num_cols()};
    for (const int32_t v : csr_arrays(blocks).first) p.indptr.push_back(v);
    p.indices = csr_arrays(blocks).second;
    return p;
  }();
  const auto width = static_cast<size_t>(feat), side = static_cast<size_t>(block);
  for (size_t h = 0; h < static_cast<size_t>(heads); ++h)
    each_stored(pattern, [&](size_t io, size_t jo, size_t p) {
      for (size_t ii = 0; ii < side; ++ii)
        for (size_t ji = 0; ji < side; ++ji) {
          const size_t row = h * static_cast<size_t>(m) + io * side + ii;
          const size_t col = h * static_cast<size_t>(n) + jo * side + ji;
          const size_t place = ((h * static_cast<size_t>(nnzb) + p) * side + ii) * side + ji;
          for (size_t k = 0; k < width; ++k) product[row * width + k] += values.exact[place] * b.exact[col * width + k];
          dots[place] = dot(x, row, b, col, feat);
        }
    });
  const std::string what = fmt::format("{} heads, block {}, feat {}", heads, block, feat);
  block_spmm(blocks, values.view(), b.view(), c.view());
  expect_result(c, product, "spmm, " + what);
  block_sddmm(blocks, x.view(), b.view(), out.view());
  expect_result(out, dots, "sddmm, " + what);
  if (dtype == DType::fp32) return;
  // Both forms of bf16, whichever this machine takes.
  const VectorUnit unit = vector_unit(current_isa());
  const auto rows = [&](const Typed& t, int64_t count) {
    return TensorView(t.view().data(), dtype, {heads, count, feat});
  };
  const auto places = [&](const Typed& t) { return TensorView(t.view().data(), dtype, {heads, nnzb, block, block}); };
  for (const bool in_dots : {false, true}) {
    const Typed c2 = poisoned(shape({m, feat}), dtype), out2 = poisoned(shape({nnzb, block, block}), dtype);
    kept_operator(block_spmm_program(heads, block, feat, dtype, in_dots, unit))
        .run({.structures = {{"JO", blocks}},
              .buffers = {{"A", places(values)}, {"B", rows(b, n)}, {"C", rows(c2, m)}}});
    expect_result(c2, product, fmt::format("spmm, {}, dots {}", what, in_dots));
    kept_operator(block_sddmm_program(heads, block, feat, dtype, in_dots, unit))
        .run({.structures = {{"JO", blocks}}, .buffers = {{"X", rows(x, m)}, {"Y", rows(b, n)}, {"O", places(out2)}}});
    expect_result(out2, dots, fmt::format("sddmm, {}, dots {}", what, in_dots));
  }
}

TEST(ReadyBlocks, SparseAttentionAndWeightsAreDenseInBlocks) {
  for (const DType dtype : kTypes) {
    expect_blocks(band(6, 2), 3, 8, 64, dtype);
    expect_blocks(band(4, 1), 2, 32, 64, dtype);
    expect_blocks(band(3, 1), 2, 16, 80, dtype);
    expect_blocks(band(2, 0), 1, 48, 24, dtype);
    expect_blocks(butterfly(8, 4), 2, 4, 16, dtype);
    expect_blocks(band(3, 0), 1, 3, 5, dtype);
    expect_blocks(band(0, 1), 2, 8, 64, dtype);
    expect_blocks(random_matrix(Shape::empty_rows, 6).structure(), 1, 2, 32, dtype);
    expect_blocks(random_matrix(Shape::one_dense_row, 7).structure(), 1, 16, 128, dtype);
  }
}

TEST(ReadyBlocks, PatternsHoldWhatTheySay) {
  EXPECT_EQ(csr_arrays(band(3, 1)).second, (std::vector<int32_t>{0, 1, 0, 1, 2, 1, 2}));
  EXPECT_EQ(csr_arrays(butterfly(4, 2)).second, (std::vector<int32_t>{0, 1, 2, 0, 1, 3, 0, 2, 3, 1, 2, 3}));
  EXPECT_EQ(csr_arrays(butterfly(3, 1)).second, (std::vector<int32_t>{0, 1, 0, 1, 2}));
  expect_contains(refusal([] { butterfly(4, 3); }), "stride: is 3; powers of two are allowed", "butterfly");
  expect_contains(refusal([] { band(4, -1); }), "reach: is -1", "band");
}

TEST_P(Ready, PrunedWeightsInTheirFormats) {
  Matrix a = random_matrix(GetParam(), 205);
  for (const DType dtype : kTypes)
    for (const int64_t feat : {5, 64}) {
      const auto padded = [](int64_t n, int64_t by) { return (n + by - 1) / by * by; };
      const auto expect = [&](const Converted& format, std::vector<int64_t> shape, int64_t rows, int64_t cols,
                              const auto& call, const std::string& what) {
        Values stored;
        for (const int64_t e : format.order) stored.push_back(e < 0 ? 0 : a.values[static_cast<size_t>(e)]);
        const Typed values = typed(stored, std::move(shape), dtype), b = random_typed({cols, feat}, 8, dtype);
        const Typed c = poisoned({rows, feat}, dtype), exact = typed(a.values, {}, dtype);
        std::vector<double> want(static_cast<size_t>(rows * feat), 0);
        const auto width = static_cast<size_t>(feat);
        each_stored(a, [&](size_t i, size_t j, size_t p) {
          for (size_t k = 0; k < width; ++k) want[i * width + k] += exact.exact[p] * b.exact[j * width + k];
        });
        call(format.structure, values.view(), b.view(), c.view(), Stream{});
        expect_result(c, want, what);
      };
      for (const int64_t block : {4, 32}) {
        if (block == 32 && GetParam() != Shape::blocks) continue;  // compiling is most of the time
        const Converted dbsr = dbsr_from_coo(a.coo(), block);
        expect(dbsr, {dbsr.structure.nnz(), block, block}, padded(a.rows, block), padded(a.cols, block), dbsr_spmm,
               "dbsr of " + std::to_string(block));
      }
      const Converted strips = sr_bcrs_from_coo(a.coo(), 8, 32);
      expect(strips, {strips.structure.nnz() / 32, 32, 8}, padded(a.rows, 8), a.cols, sr_bcrs_spmm, "sr_bcrs");
    }
}

// Edges (relation, row, column), none twice, in any order.
CooTensor random_edges(int64_t relations, int64_t m, int64_t n, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::set<std::array<int32_t, 3>> places;
  const auto below = [&](int64_t x) { return static_cast<int32_t>(random() % static_cast<uint32_t>(x)); };
  while (places.size() < count) places.insert({below(relations), below(m), below(n)});
  std::vector<std::array<int32_t, 3>> shuffled(places.begin(), places.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  CooTensor coo{.extents = {relations, m, n}, .coordinates = std::vector<std::vector<int32_t>>(3)};
  for (const auto& place : shuffled)
    for (size_t d = 0; d < 3; ++d) coo.coordinates[d].push_back(place[d]);
  return coo;
}

std::vector<double> dense_rgms(const CooTensor& edges, const std::vector<double>& weights, const Typed& x,
                               const Typed& w, int64_t in, int64_t out) {
  const auto from = static_cast<size_t>(in), to = static_cast<size_t>(out);
  std::vector<double> y(static_cast<size_t>(edges.extents[1]) * to, 0);
  for (size_t e = 0; e < edges.coordinates[0].size(); ++e) {
    const auto at = [&](size_t d) { return static_cast<size_t>(edges.coordinates[d][e]); };
    for (size_t l = 0; l < from; ++l)
      for (size_t k = 0; k < to; ++k)
        y[at(1) * to + k] += weights[e] * x.exact[at(2) * from + l] * w.exact[(at(0) * from + l) * to + k];
  }
  return y;
}

TEST(ReadyRgms, IsDenseArithmeticForEveryRelation) {
  for (const DType dtype : kTypes)
    for (const auto& [m, count, tile] :
         {std::tuple<int64_t, size_t, int64_t>{0, 0, 4}, {70, 0, 64}, {70, 300, 64}, {13, 40, 4}, {3, 1, 1}})
      for (const auto& [in, out] : {std::pair<int64_t, int64_t>{3, 5}, {16, 48}}) {
        const int64_t relations = 5, n = 29;  // some have no edge
        const CooTensor edges = random_edges(relations, std::max<int64_t>(m, 1), n, count, 81);
        CooTensor given = edges;
        given.extents[1] = m;
        const Converted format = relational_from_coo(given, tile);
        const Typed list = random_typed({static_cast<int64_t>(count)}, 82, dtype);
        Values stored;
        for (const int64_t e : format.order) stored.push_back(list.floats[static_cast<size_t>(e)]);
        const Typed values = typed(stored, {static_cast<int64_t>(count)}, dtype);
        const Typed x = random_typed({n, in}, 83, dtype), w = random_typed({relations, in, out}, 84, dtype);
        const Typed y = poisoned({m, out}, dtype), ones = poisoned({m, out}, dtype);
        std::vector<double> want = dense_rgms(edges, list.exact, x, w, in, out);
        want.resize(static_cast<size_t>(m * out));
        rgms(format.structure, values.view(), x.view(), w.view(), y.view());
        expect_result(y, want, "weighted");
        want = dense_rgms(edges, std::vector<double>(count, 1), x, w, in, out);
        want.resize(static_cast<size_t>(m * out));
        rgms(format.structure, {}, x.view(), w.view(), ones.view());
        expect_result(ones, want, "not weighted");
      }
}

TEST(ReadyConvolution, IsTheDenseConvolutionWhereVoxelsAre) {
  std::mt19937 random(90);
  for (const int32_t stride : {1, 2})
    for (const int32_t kernel : {3, 2})
      for (const size_t count : {0, 1, 60}) {
        constexpr int32_t kSide = 7;
        std::set<std::array<int32_t, 3>> chosen;
        const auto below = [&] { return static_cast<int32_t>(random() % kSide) - 3; };
        while (chosen.size() < count) chosen.insert({below(), below(), below()});
        std::vector<std::array<int32_t, 3>> voxels(chosen.begin(), chosen.end());
        std::shuffle(voxels.begin(), voxels.end(), random);
        const KernelMap map = kernel_map(voxels, {kernel, kernel, kernel}, {stride, stride, stride});
        const int64_t in = 3, out = 16, offsets = int64_t{kernel} * kernel * kernel;
        const Typed x = random_typed({static_cast<int64_t>(count), in}, 91, DType::fp32);
        const Typed w = random_typed({offsets, in, out}, 92, DType::fp32);
        const Typed y = poisoned({static_cast<int64_t>(map.outputs.size()), out}, DType::fp32);
        // Every pair of an output and an input, asked for its offset.
        std::vector<double> want(y.floats.size(), 0);
        for (size_t u = 0; u < map.outputs.size(); ++u)
          for (size_t v = 0; v < voxels.size(); ++v) {
            int64_t offset = 0;
            for (size_t d = 0; d < 3 && offset >= 0; ++d) {
              const int32_t o = voxels[v][d] - map.outputs[u][d] * stride + (kernel - 1) / 2;
              offset = o >= 0 && o < kernel ? offset * kernel + o : -1;
            }
            if (offset < 0) continue;
            for (size_t l = 0; l < 3; ++l)
              for (size_t k = 0; k < 16; ++k)
                want[u * 16 + k] += x.exact[v * 3 + l] * w.exact[(static_cast<size_t>(offset) * 3 + l) * 16 + k];
          }
        if (stride == 1) {
          EXPECT_EQ(map.outputs, voxels);
        }
        sparse_convolution(map, x.view(), w.view(), y.view());
        expect_result(y, want, fmt::format("stride {}, kernel {}, {} voxels", stride, kernel, count));
      }
  expect_contains(refusal([] { kernel_map({{0, 0, 1}, {0, 0, 1}}); }), "voxel 1 at (0, 0, 1) stands twice", "twice");
  expect_contains(refusal([] { kernel_map({}, {3, 0, 3}); }), "kernel: is 0 wide in dimension 1", "kernel");
  expect_contains(refusal([] { kernel_map({}, {3, 3, 3}, {1, 1, 99}); }), "stride: is 99 in dimension 2", "stride");
}

// Gradients are those of dense arithmetic.
TEST_P(Ready, GradientsOfSpmmAndSddmm) {
  const Matrix a = random_matrix(GetParam(), 206);
  const auto nnz = static_cast<int64_t>(a.values.size());
  const Transposed at = transposed(a.structure());
  for (const int64_t feat : {5, 32}) {
    const DType fp32 = DType::fp32;
    const auto width = static_cast<size_t>(feat);
    const Typed values = typed(a.values, {nnz}, fp32), b = random_typed({a.cols, feat}, 2, fp32);
    const Typed d_c = random_typed({a.rows, feat}, 3, fp32), d_out = random_typed({nnz}, 4, fp32);
    const Typed d_values = poisoned({nnz}, fp32), d_b = poisoned({a.cols, feat}, fp32);
    std::vector<double> want_values(static_cast<size_t>(nnz)), want_b(b.floats.size(), 0);
    std::vector<double> want_s(static_cast<size_t>(nnz)), want_x(d_c.floats.size(), 0), want_y(b.floats.size(), 0);
    each_stored(a, [&](size_t i, size_t j, size_t p) {
      want_values[p] = dot(d_c, i, b, j, feat);
      want_s[p] = d_out.exact[p] * want_values[p];
      for (size_t k = 0; k < width; ++k) {
        want_b[j * width + k] += values.exact[p] * d_c.exact[i * width + k];
        want_x[i * width + k] += values.exact[p] * d_out.exact[p] * b.exact[j * width + k];
        want_y[j * width + k] += values.exact[p] * d_out.exact[p] * d_c.exact[i * width + k];
      }
    });
    spmm_backward(a.structure(), at, values.view(), b.view(), d_c.view(), {.values = d_values.view(), .b = d_b.view()});
    expect_result(d_values, want_values, "spmm, values");
    expect_result(d_b, want_b, "spmm, b");
    // x in the place of d_c, which has its shape.
    const Typed d_s = poisoned({nnz}, fp32), d_x = poisoned({a.rows, feat}, fp32), d_y = poisoned({a.cols, feat}, fp32);
    sddmm_backward(a.structure(), at, values.view(), d_c.view(), b.view(), d_out.view(),
                   {.values = d_s.view(), .x = d_x.view(), .y = d_y.view()});
    expect_result(d_s, want_s, "sddmm, values");
    expect_result(d_x, want_x, "sddmm, x");
    expect_result(d_y, want_y, "sddmm, y");
  }
}

// One operator over several matrices: each stage by the interpreter, and the code.
void expect_same_at_every_stage(const ReadyCase& c, std::initializer_list<Shape> shapes) {
  const Operator op = kept_operator(c.ready);
  uint32_t seed = 500;
  for (const Shape shape : shapes) {
    const Matrix a = random_matrix(shape, seed);
    RunMemory run(op, {.structures = {{c.axis, c.structure(a)}}, .scalars = c.scalars, .reals = c.reals}, seed++);
    const std::string what = c.name + ", " + name_of(shape);
    const std::vector<std::string> outputs = outputs_of(op);
    const loop::Memory want = interpret_operator(op, run.arguments, Stage::source);
    for (const Stage stage : interpreted_stages()) {
      const loop::Memory got = interpret_operator(op, run.arguments, stage);
      for (const std::string& name : outputs)
        expect_close(got.buffers.at(name), want.buffers.at(name), 1e-9, fmt::format("{}, stage {}", what, int(stage)));
    }
    op.run(run.arguments);
    for (const std::string& name : outputs) {
      const TensorView& tensor = run.arguments.buffers.at(name);
      expect_close(values_of(tensor), want.buffers.at(name), tensor.dtype() == DType::fp32 ? 2e-5 : 1. / 64,
                   what + ", compiled");
    }
    if (::testing::Test::HasFatalFailure()) return;
  }
}

// Each program as it is scheduled, at every stage, computes what it says without its schedule. Under a sanitizer the
// shapes take turns.
TEST(ReadyStages, ComputeTheSameAtEveryStage) {
  size_t turn = 0;
  for (const ReadyCase& c : ready_cases()) {
    constexpr Shape kShapes[] = {Shape::empty_rows, Shape::one_dense_row, Shape::empty, Shape::no_rows};
    if (weft::testing::kUnderSanitizer)
      expect_same_at_every_stage(c, {kShapes[turn++ % std::size(kShapes)]});
    else
      expect_same_at_every_stage(c, {kShapes[0], kShapes[1], kShapes[2], kShapes[3]});
  }
}

// Of AVX2: eight lanes, and half of sixteen registers for sums.
TEST(ReadyStages, VectorsAreAsWideAsTheMachines) {
  for (const ReadyCase& c : ready_cases({.lanes = 8, .registers = 16})) {
    const std::string code =
        compile(parse(c.ready.text), c.ready.schedule, Device::cpu(), {.set = c.ready.set, .stop_after = "generate"})
            .text("code");
    const std::string own = code.substr(code.find("extern \"C\""));
    EXPECT_NE(own.find("floatx8"), own.npos) << c.name;
    EXPECT_EQ(own.find("floatx16"), own.npos) << c.name;
    if (c.name == "block_sddmm_transposed" || c.name == "graph_attention" || c.name == "rgms")
      expect_same_at_every_stage(c, {Shape::one_dense_row});
  }
}

// What is not in an instruction set comes from the text, and from no library: every function of it, rounding too.
TEST(ReadyStages, BuildForEveryInstructionSet) {
  for (const Isa isa : supported_isas())
    for (const ReadyCase& c : ready_cases(vector_unit(isa)))
      if (c.name == "graph_attention" || c.name == "fused_mm" || c.name.starts_with("block_spmm_")) {
        const Operator op = compile(parse(c.ready.text), c.ready.schedule, Device::cpu(),
                                    {.set = c.ready.set, .stop_after = "generate"});
        EXPECT_NE(jit::host_module({.name = fmt::format("{} {}", c.name, to_string(isa)),
                                    .text = op.text("code"),
                                    .target = jit::host_target(isa)})
                      .module,
                  nullptr);
      }
}

TEST(ReadyRefusals, NameWhatIsWrong) {
  const Matrix a = random_matrix(Shape::uniform, 207);
  const auto nnz = static_cast<int64_t>(a.values.size());
  const Typed b = random_typed({a.cols, 16}, 1, DType::fp32), c = poisoned({a.rows, 16}, DType::fp32);
  const Typed halves = random_typed({a.cols, 16}, 1, DType::bf16), values = typed(a.values, {nnz}, DType::fp32);
  const auto says = [](const std::string& part, const auto& call) { expect_contains(refusal(call), part, part); };
  says("b: is of bf16 and values of fp32; both have one type",
       [&] { spmm(a.structure(), values.view(), halves.view(), c.view()); });
  says("'csb()' is no format; allowed are csr(), csc(), coo()",
       [&] { spmm(a.structure(), values.view(), b.view(), c.view(), {.format = "csb()"}); });
  says("b: has shape [", [&] { batched_spmm(a.structure(), values.view(), b.view(), c.view()); });
  says("values: has shape [", [&] { block_spmm(a.structure(), values.view(), b.view(), c.view()); });
  says("values: blocks are 257 wide; 1 to 256 are allowed", [&] {
    const Typed one = random_typed({1, 257, 257}, 1, DType::fp32);
    block_spmm(a.structure(), one.view(), b.view(), c.view());
  });
  says("edges: the structure has 2 levels; relational_from_coo makes", [&] {
    const Typed w = random_typed({2, 16, 16}, 1, DType::fp32);
    rgms(a.structure(), {}, b.view(), w.view(), c.view());
  });
  says("y: has 9 rows; the structure has 2 tiles of 4", [&] {
    const Typed w = random_typed({2, 16, 16}, 1, DType::fp32), y = poisoned({9, 16}, DType::fp32);
    rgms(relational_from_coo({.extents = {2, 8, a.cols}, .coordinates = {{}, {}, {}}}, 4).structure, {}, b.view(),
         w.view(), y.view());
  });
  says("edges: there are 2 dimensions; three are expected", [] {
    relational_from_coo({.extents = {2, 2}, .coordinates = {{}, {}}});
  });
  says("edges: element 0 is of row 5, outside of 5", [] {
    relational_from_coo({.extents = {2, 5, 5}, .coordinates = {{0}, {5}, {0}}});
  });
  says("d_c: is of bf16; gradients are of fp32", [&] {
    const Typed d_c = random_typed({a.rows, 16}, 1, DType::bf16);
    spmm_backward(a.structure(), transposed(a.structure()), values.view(), b.view(), d_c.view(), {});
  });
}

}  // namespace
}  // namespace weft::sparse::test
