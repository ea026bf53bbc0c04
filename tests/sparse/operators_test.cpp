// Every program of examples/sparse, at every stage and compiled, against dense arithmetic in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

#include "tests/sparse/support.h"

namespace weft::sparse::test::operators {
namespace {

constexpr int64_t kFeatures = 5;

// One format of SpMM on all shapes of matrices.
void expect_spmm(const std::string& name, const std::string& axis,
                 const std::function<Converted(const Coo&)>& convert) {
  const Operator op = compile(parse(example(name)));
  uint32_t seed = 300;
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, seed++);
    const Converted converted = convert(a.coo());
    Values values = placed(a.values, converted.order), b = random_values(static_cast<size_t>(a.cols * kFeatures), seed);
    Values c(static_cast<size_t>(a.rows * kFeatures));
    const RunArguments arguments{
        .structures = {{axis, converted.structure}},
        .buffers = {{"A", flat(values)}, {"B", view(b, {a.cols, kFeatures})}, {"C", view(c, {a.rows, kFeatures})}}};
    expect_everywhere(op, arguments, "C", dense_spmm(a, b, kFeatures), name + ", " + name_of(shape));
    if (::testing::Test::HasFatalFailure()) return;
  }
}

TEST(Operators, SpmmInEll) {
  expect_spmm("spmm_ell", "J", [](const Coo& a) { return ell_from_coo(a); });
}
TEST(Operators, SpmmInBsr) {
  expect_spmm("spmm_bsr", "JO", [](const Coo& a) { return bsr_from_coo(a, 4); });
}
TEST(Operators, SpmmInDcsr) {
  expect_spmm("spmm_dcsr", "J", [](const Coo& a) { return dcsr_from_coo(a); });
}
TEST(Operators, SpmmInDbsr) {
  expect_spmm("spmm_dbsr", "JO", [](const Coo& a) { return dbsr_from_coo(a, 4); });
}
TEST(Operators, SpmmInSrBcrs) {
  expect_spmm("spmm_sr_bcrs", "J", [](const Coo& a) { return sr_bcrs_from_coo(a, 8, 4); });
}

TEST(Operators, SpmmInAFormatThatTheTextDefines) {
  expect_spmm("spmm_own_format", "J", [](const Coo& a) { return csr_from_coo(a); });
}

TEST(Operators, SpmmInDiagonals) {
  const Operator op = compile(parse(example("spmm_dia")));
  uint32_t seed = 400;
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, seed++);
    Diagonals dia = dia_from_coo(a.coo());
    Values values = placed(a.values, dia.order), b = random_values(static_cast<size_t>(a.cols * kFeatures), seed);
    Values c(static_cast<size_t>(a.rows * kFeatures));
    expect_everywhere(op,
                      {.buffers = {{"A", view(values, {static_cast<int64_t>(dia.offsets.size()), a.rows})},
                                   {"Offset", flat(dia.offsets)},
                                   {"B", view(b, {a.cols, kFeatures})},
                                   {"C", view(c, {a.rows, kFeatures})}}},
                      "C", dense_spmm(a, b, kFeatures), name_of(shape));
  }
}

TEST(Operators, SpmmOfAListInAnyOrder) {
  const Operator op = compile(parse(example("spmm_coo")));
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 17);
    Coo coo = a.coo();
    Values values = a.values;
    for (size_t e = 0; e < values.size(); e += 3) {  // another order
      std::swap(values[e], values[values.size() - 1 - e]);
      std::swap(coo.rows[e], coo.rows[values.size() - 1 - e]);
      std::swap(coo.cols[e], coo.cols[values.size() - 1 - e]);
    }
    Values b = random_values(static_cast<size_t>(a.cols * kFeatures), 18), c(static_cast<size_t>(a.rows * kFeatures));
    expect_everywhere(op,
                      {.buffers = {{"A", flat(values)},
                                   {"Row", flat(coo.rows)},
                                   {"Col", flat(coo.cols)},
                                   {"B", view(b, {a.cols, kFeatures})},
                                   {"C", view(c, {a.rows, kFeatures})}}},
                      "C", dense_spmm(a, b, kFeatures), name_of(shape));
  }
}

TEST(Operators, RaggedSoftmax) {
  const Operator op = compile(parse(example("ragged_softmax")));
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 21);
    Values x = random_values(a.values.size(), 22), y(x.size()), largest(static_cast<size_t>(a.rows)), sum = largest;
    std::vector<double> want;
    for (size_t r = 0; r + 1 < a.indptr.size(); ++r) {
      double top = -1e30, total = 0;
      for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p) top = std::max<double>(top, x[static_cast<size_t>(p)]);
      for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p) total += std::exp(x[static_cast<size_t>(p)] - top);
      for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p)
        want.push_back(std::exp(x[static_cast<size_t>(p)] - top) / total);
    }
    expect_everywhere(op,
                      {.structures = {{"J", ragged(a.rows, 64, a.indptr)}},
                       .buffers = {{"X", flat(x)}, {"Y", flat(y)}, {"Largest", flat(largest)}, {"Sum", flat(sum)}}},
                      "Y", want, name_of(shape));
  }
}

TEST(Operators, GraphAttention) {
  const Operator op = compile(parse(example("graph_attention")));
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 31);
    const auto rows = static_cast<size_t>(a.rows), cols = static_cast<size_t>(a.cols),
               feat = static_cast<size_t>(kFeatures);
    Values q = random_values(rows * feat, 32), k = random_values(cols * feat, 33), v = random_values(cols * feat, 34);
    Values p(a.values.size()), largest(rows), sum(rows), o(rows * feat);
    std::vector<double> want(rows * feat, 0);
    for (size_t r = 0; r < rows; ++r) {
      std::vector<double> weights;
      double total = 0;
      for (int32_t e = a.indptr[r]; e < a.indptr[r + 1]; ++e) {
        double dot = 0;
        for (size_t x = 0; x < feat; ++x)
          dot += static_cast<double>(q[r * feat + x]) *
                 k[static_cast<size_t>(a.indices[static_cast<size_t>(e)]) * feat + x];
        weights.push_back(std::exp(dot));
        total += weights.back();
      }
      for (int32_t e = a.indptr[r]; e < a.indptr[r + 1]; ++e)
        for (size_t x = 0; x < feat; ++x)
          want[r * feat + x] += weights[static_cast<size_t>(e - a.indptr[r])] / total *
                                v[static_cast<size_t>(a.indices[static_cast<size_t>(e)]) * feat + x];
    }
    expect_everywhere(op,
                      {.structures = {{"J", a.structure()}},
                       .buffers = {{"Q", view(q, {a.rows, kFeatures})},
                                   {"Keys", view(k, {a.cols, kFeatures})},
                                   {"V", view(v, {a.cols, kFeatures})},
                                   {"P", flat(p)},
                                   {"Largest", flat(largest)},
                                   {"Sum", flat(sum)},
                                   {"O", view(o, {a.rows, kFeatures})}}},
                      "O", want, name_of(shape));
  }
}

TEST(Operators, BatchedSpmm) {
  const Operator op = compile(parse(example("batched_spmm")));
  constexpr int64_t kHeads = 3;
  for (const Shape shape : kShapes) {
    Matrix a = random_matrix(shape, 41);
    const size_t nnz = a.values.size();
    Values values = random_values(nnz * kHeads, 42),
           b = random_values(static_cast<size_t>(kHeads * a.cols * kFeatures), 43);
    Values c(static_cast<size_t>(kHeads * a.rows * kFeatures));
    std::vector<double> want;
    for (size_t h = 0; h < kHeads; ++h) {
      size_t e = h * nnz;
      for (double& x : a.dense) x = 0;
      for (size_t r = 0; r + 1 < a.indptr.size(); ++r)
        for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p)
          a.dense[r * static_cast<size_t>(a.cols) + static_cast<size_t>(a.indices[static_cast<size_t>(p)])] =
              values[e++];
      const auto size = static_cast<std::ptrdiff_t>(a.cols * kFeatures), from = static_cast<std::ptrdiff_t>(h) * size;
      for (const double x : dense_spmm(a, Values(b.begin() + from, b.begin() + from + size), kFeatures))
        want.push_back(x);
    }
    expect_everywhere(op,
                      {.structures = {{"J", a.structure()}},
                       .buffers = {{"A", view(values, {kHeads, static_cast<int64_t>(nnz)})},
                                   {"B", view(b, {kHeads, a.cols, kFeatures})},
                                   {"C", view(c, {kHeads, a.rows, kFeatures})}}},
                      "C", want, name_of(shape));
  }
}

// Elements of a random tensor, none twice, in any order.
CooTensor random_tensor(std::vector<int64_t> extents, size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::set<std::vector<int32_t>> places;
  while (places.size() < count) {
    std::vector<int32_t> place;
    for (const int64_t extent : extents)
      place.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(extent)));
    places.insert(place);
  }
  std::vector<std::vector<int32_t>> shuffled(places.begin(), places.end());
  std::shuffle(shuffled.begin(), shuffled.end(), random);
  CooTensor coo{.extents = extents, .coordinates = std::vector<std::vector<int32_t>>(extents.size())};
  for (const auto& place : shuffled)
    for (size_t d = 0; d < place.size(); ++d) coo.coordinates[d].push_back(place[d]);
  return coo;
}

TEST(Operators, SddmmInTwoStagesOfReduction) {
  const int64_t feat = 32;
  const Operator op = compile(parse(example("sddmm")), Device::cpu(), {.set = {{"feat", feat}}});
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 71);
    Values x = random_values(static_cast<size_t>(a.rows * feat), 72), out(a.values.size());
    Values y = random_values(static_cast<size_t>(a.cols * feat), 73);
    expect_everywhere(op,
                      {.structures = {{"J", a.structure()}},
                       .buffers = {{"A", a.values_view()},
                                   {"X", view(x, {a.rows, feat})},
                                   {"Y", view(y, {a.cols, feat})},
                                   {"O", flat(out)}}},
                      "O", dense_sddmm(a, x, y, feat), name_of(shape));
  }
}

TEST(Operators, RelationalGatherMatmulScatter) {
  const Operator op = compile(parse(example("rgms")));
  for (const size_t count : {0, 1, 30}) {
    const CooTensor edges = random_tensor({4, 7, 6}, count, 51);
    expect_rgms(op, edges, csf_from_coo(edges), 3, 2);
  }
}

TEST(Operators, RelationalGatherMatmulScatterInHyb) {
  const Operator op = compile(parse(example("rgms_hyb")));
  for (const size_t count : {0, 1, 60}) {
    CooTensor edges = random_tensor({3, 7, 11}, count, 55);
    edges.extents[0] = 4;  // the last is empty
    expect_rgms(op, edges, relations_from_coo(edges), 3, 2);
  }
}

TEST(Operators, MttkrpOfATensorInCsf) {
  const Operator op = compile(parse(example("mttkrp")));
  for (const size_t count : {0, 1, 40}) {
    const int64_t ni = 6, nj = 5, nl = 8, rank = 3;
    const CooTensor coo = random_tensor({ni, nj, nl}, count, 61);
    const Converted csf = csf_from_coo(coo);
    Values list = random_values(count, 62), b = random_values(static_cast<size_t>(nj * rank), 63);
    Values c = random_values(static_cast<size_t>(nl * rank), 64), d(static_cast<size_t>(ni * rank));
    Values values = placed(list, csf.order);
    std::vector<double> want(static_cast<size_t>(ni * rank), 0);
    for (size_t e = 0; e < count; ++e)
      for (int64_t k = 0; k < rank; ++k)
        want[static_cast<size_t>(coo.coordinates[0][e] * rank + k)] +=
            static_cast<double>(list[e]) * b[static_cast<size_t>(coo.coordinates[1][e] * rank + k)] *
            c[static_cast<size_t>(coo.coordinates[2][e] * rank + k)];
    expect_everywhere(op,
                      {.structures = {{"L", csf.structure}},
                       .buffers = {{"A", flat(values)},
                                   {"B", view(b, {nj, rank})},
                                   {"C", view(c, {nl, rank})},
                                   {"D", view(d, {ni, rank})}}},
                      "D", want, std::to_string(count) + " elements");
  }
}

}  // namespace
}  // namespace weft::sparse::test::operators
