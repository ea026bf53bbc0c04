// The CUDA text of sparse operators, run by the threads of a GPU on the host: no access outside, no race, the right values.
#include "weft/sparse.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "sparse/formats/structure.h"
#include "tests/simt/machine/machine.h"

extern "C" {
void weft_spmm_csr(const int*, const int*, const float* a, const float* b, float* c, long long m, long long n,
                   long long nnz);
void weft_spmm_bound(const int*, const int*, const float* a, const float* b, float* c, long long m, long long n,
                     long long nnz, long long feat);
void weft_sddmm_0(const int*, const int*, const float* a, const float* x, const float* y, float* o, long long m,
                  long long n, long long nnz);
void weft_graph_attention_0(const int*, const int*, const float* scale, const float* q, const float* k, const float* v,
                            float* p, float* o, long long m, long long n, long long nnz);
void weft_fused_mm_0(const int*, const int*, const float* x, const float* y, float* o, long long m, long long n,
                     long long nnz);
void weft_block_spmm_0(const int*, const int*, const unsigned short* a, const unsigned short* b, unsigned short* c,
                       long long heads, long long mb, long long nb, long long nnzb);
#define WEFT_RGMS_ARGUMENTS                                                                               \
  const int *, const int *, const int *, const int *, const int *, const int *, const int *, const int *, \
      const float *a, const float *x, const float *w, float *y, long long tiles, long long stored,        \
      long long relations, long long pairs, long long m, long long rows, long long n, long long nnz
void weft_rgms_0(WEFT_RGMS_ARGUMENTS);
void weft_rgms_1(WEFT_RGMS_ARGUMENTS);
}

namespace weft::simt {
namespace {

constexpr Launch kLaunches[] = {{.ctas = 1, .threads = 32}, {.ctas = 3, .threads = 64}};

std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> values(count);
  for (float& v : values) v = std::uniform_real_distribution<float>(-1, 1)(random);
  return values;
}

// Rows of 0 to 7 elements, one of them full.
struct Graph {
  int m = 37, n = 29;
  std::vector<int> indptr{0}, indices;
  Graph() {
    std::mt19937 random(20261123);
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j)
        if (i == 11 || (i % 5 != 0 && random() % 8 == 0)) indices.push_back(j);
      indptr.push_back(static_cast<int>(indices.size()));
    }
  }
  size_t nnz() const { return indices.size(); }
  template <class Call>
  void each(const Call& call) const {
    for (size_t i = 0; i + 1 < indptr.size(); ++i)
      for (auto p = static_cast<size_t>(indptr[i]); p < static_cast<size_t>(indptr[i + 1]); ++p)
        call(i, static_cast<size_t>(indices[p]), p);
  }
};

class SimtSparse : public testing::Test {
 protected:
  // Runs in every launch and order, then compares.
  void expect(const std::function<void()>& kernel, const std::span<float>& out, const std::vector<double>& want,
              const std::function<void()>& before = {}) {
    const std::string content = memory.content();
    for (const Launch& launch : kLaunches) {
      memory.restore(content);
      if (before) run_in_all_orders(memory, launch, before);
      run_in_all_orders(memory, launch, kernel);
      ASSERT_EQ(out.size(), want.size());
      for (size_t e = 0; e < want.size(); ++e) ASSERT_NEAR(out[e], want[e], 2e-5 * (1 + std::fabs(want[e]))) << e;
    }
  }
  std::span<float> floats(const char* name, size_t count, uint32_t seed) {
    return memory.make(name, random_floats(count, seed));
  }
  double dot(const std::span<float>& x, size_t i, const std::span<float>& y, size_t j, size_t feat) const {
    double sum = 0;
    for (size_t k = 0; k < feat; ++k) sum += static_cast<double>(x[i * feat + k]) * y[j * feat + k];
    return sum;
  }
  Memory memory;
  Graph g;
  size_t m = static_cast<size_t>(g.m), n = static_cast<size_t>(g.n);
  std::span<int> indptr = memory.make("indptr", g.indptr), indices = memory.make("indices", g.indices);
};

TEST_F(SimtSparse, SpmmOfRowsAndOfBoundThreads) {
  for (const size_t feat : {128u, 19u}) {
    const auto a = floats("a", g.nnz(), 1), b = floats("b", n * feat, 2);
    const auto c = memory.make<float>("c", m * feat);
    std::vector<double> want(m * feat, 0);
    g.each([&](size_t i, size_t j, size_t p) {
      for (size_t k = 0; k < feat; ++k) want[i * feat + k] += static_cast<double>(a[p]) * b[j * feat + k];
    });
    if (feat == 128)
      expect(
          [&] {
            weft_spmm_csr(indptr.data(), indices.data(), a.data(), b.data(), c.data(), g.m, g.n,
                          static_cast<long long>(g.nnz()));
          },
          c, want);
    expect(
        [&] {
          weft_spmm_bound(indptr.data(), indices.data(), a.data(), b.data(), c.data(), g.m, g.n,
                          static_cast<long long>(g.nnz()), static_cast<long long>(feat));
        },
        c, want);
  }
}

TEST_F(SimtSparse, Sddmm) {
  const auto a = floats("a", g.nnz(), 1), x = floats("x", m * 64, 2), y = floats("y", n * 64, 3);
  const auto o = memory.make<float>("o", g.nnz());
  std::vector<double> want(g.nnz());
  g.each([&](size_t i, size_t j, size_t p) { want[p] = a[p] * dot(x, i, y, j, 64); });
  expect(
      [&] {
        weft_sddmm_0(indptr.data(), indices.data(), a.data(), x.data(), y.data(), o.data(), g.m, g.n,
                     static_cast<long long>(g.nnz()));
      },
      o, want);
}

TEST_F(SimtSparse, GraphAttentionAndFusedMm) {
  const auto scale = memory.make("scale", std::vector<float>{0.5f});
  const auto q = floats("q", m * 32, 1), k = floats("k", n * 32, 2), v = floats("v", n * 32, 3);
  const auto p = memory.make<float>("p", g.nnz()), o = memory.make<float>("o", m * 32),
             f = memory.make<float>("f", m * 32);
  std::vector<double> sum(m, 0), attention(m * 32, 0), fused(m * 32, 0);
  g.each([&](size_t i, size_t j, size_t) {
    const double score = dot(q, i, k, j, 32), weight = std::exp(0.5 * score);
    sum[i] += weight;
    for (size_t e = 0; e < 32; ++e) {
      attention[i * 32 + e] += weight * v[j * 32 + e];
      fused[i * 32 + e] += k[j * 32 + e] / (1 + std::exp(-score));
    }
  });
  for (size_t e = 0; e < attention.size(); ++e) attention[e] = sum[e / 32] == 0 ? 0 : attention[e] / sum[e / 32];
  expect(
      [&] {
        weft_graph_attention_0(indptr.data(), indices.data(), scale.data(), q.data(), k.data(), v.data(), p.data(),
                               o.data(), g.m, g.n, static_cast<long long>(g.nnz()));
      },
      o, attention);
  expect(
      [&] {
        weft_fused_mm_0(indptr.data(), indices.data(), q.data(), k.data(), f.data(), g.m, g.n,
                        static_cast<long long>(g.nnz()));
      },
      f, fused);
}

TEST_F(SimtSparse, BlocksOfBf16) {
  constexpr size_t kHeads = 2, kBlock = 4, kFeat = 32;
  const auto halves = [&](const char* name, size_t count, uint32_t seed) {
    std::vector<unsigned short> bits;
    for (const float x : random_floats(count, seed))
      bits.push_back(static_cast<unsigned short>(std::bit_cast<unsigned>(x) >> 16));
    return memory.make(name, bits);
  };
  const auto number = [](unsigned short bits) { return double{std::bit_cast<float>(unsigned{bits} << 16)}; };
  const auto a = halves("a", kHeads * g.nnz() * kBlock * kBlock, 1), b = halves("b", kHeads * n * kBlock * kFeat, 2);
  const auto c = memory.make<unsigned short>("c", kHeads * m * kBlock * kFeat);
  std::vector<double> want(c.size(), 0);
  for (size_t h = 0; h < kHeads; ++h)
    g.each([&](size_t io, size_t jo, size_t p) {
      for (size_t ii = 0; ii < kBlock; ++ii)
        for (size_t ji = 0; ji < kBlock; ++ji)
          for (size_t k = 0; k < kFeat; ++k)
            want[((h * m + io) * kBlock + ii) * kFeat + k] +=
                number(a[((h * g.nnz() + p) * kBlock + ii) * kBlock + ji]) *
                number(b[((h * n + jo) * kBlock + ji) * kFeat + k]);
    });
  run_in_all_orders(memory, {.ctas = 2, .threads = 64}, [&] {
    weft_block_spmm_0(indptr.data(), indices.data(), a.data(), b.data(), c.data(), kHeads, g.m, g.n,
                      static_cast<long long>(g.nnz()));
  });
  for (size_t e = 0; e < want.size(); ++e) ASSERT_NEAR(number(c[e]), want[e], (1 + std::fabs(want[e])) / 128) << e;
}

TEST_F(SimtSparse, RelationalGatherMatmulScatter) {
  constexpr size_t kIn = 16, kOut = 32, kRelations = 3;
  sparse::CooTensor edges{.extents = {kRelations, g.m, g.n}, .coordinates = std::vector<std::vector<int32_t>>(3)};
  g.each([&](size_t i, size_t j, size_t p) {
    edges.coordinates[0].push_back(static_cast<int32_t>(p % 2) * 2);
    edges.coordinates[1].push_back(static_cast<int32_t>(i));
    edges.coordinates[2].push_back(static_cast<int32_t>(j));
  });
  const sparse::Converted tiles = sparse::relational_from_coo(edges, 64);
  std::vector<const int*> arrays;
  const auto& levels = tiles.structure.data()->levels;
  for (size_t l = 1; l < levels.size(); ++l) {
    arrays.push_back(memory.make("indptr of a level", levels[l].indptr).data());
    arrays.push_back(memory.make("indices of a level", levels[l].indices).data());
  }
  const auto a = floats("a", g.nnz(), 1), x = floats("x", n * kIn, 2), w = floats("w", kRelations * kIn * kOut, 3);
  const auto y = memory.make<float>("y", m * kOut);
  std::vector<double> want(y.size(), 0);
  for (size_t p = 0; p < tiles.order.size(); ++p) {
    const auto at = [&](size_t d) {
      return static_cast<size_t>(edges.coordinates[d][static_cast<size_t>(tiles.order[p])]);
    };
    for (size_t l = 0; l < kIn; ++l)
      for (size_t k = 0; k < kOut; ++k)
        want[at(1) * kOut + k] += static_cast<double>(a[p]) * x[at(2) * kIn + l] * w[(at(0) * kIn + l) * kOut + k];
  }
  const auto launch = [&](void (*kernel)(WEFT_RGMS_ARGUMENTS)) {
    kernel(arrays[0], arrays[1], arrays[2], arrays[3], arrays[4], arrays[5], arrays[6], arrays[7], a.data(), x.data(),
           w.data(), y.data(), levels[1].length, levels[1].num_positions, kRelations, levels[2].num_positions, g.m,
           levels[3].num_positions, g.n, static_cast<long long>(g.nnz()));
  };
  expect([&] { launch(weft_rgms_1); }, y, want, [&] { launch(weft_rgms_0); });
}

}  // namespace
}  // namespace weft::simt
