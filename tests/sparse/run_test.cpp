// SpMM and SDDMM in all formats and many schedules, against dense arithmetic in double; and what a run promises.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "tests/sparse/support.h"
#include "weft/error.h"

namespace weft::sparse::test {
namespace {

struct SpmmCase {
  const char* name;
  const char* schedule;
  int64_t feat;
  bool set_feat = true;
};

constexpr SpmmCase kSpmmCases[] = {
    {"plain", "", 5, false},
    {"lowered_alone", "lower()\n", 5},
    {"parallel", "lower()\nparallel(csrmm.i)\n", 7, false},
    {"split_with_tail", "lower()\nko, ki = split(csrmm.k, 4)\nvectorize(ki)\nparallel(csrmm.i)\n", 7, false},
    {"split_with_constant_tail", "lower()\nko, ki = split(csrmm.k, 4)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\n", 10},
    {"registers",
     "lower()\nko, ki = split(csrmm.k, 4)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\ncache_write(ko, register)\n", 8},
    {"registers_with_tail",
     "lower()\nko, ki = split(csrmm.k, 8)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\ncache_write(ko, "
     "register)\nparallel(csrmm.i)\n",
     11, false},
    {"rows_split", "lower()\nio, ii = split(csrmm.i, 4)\nparallel(io)\n", 6, false},
    {"reduction_split", "lower()\njo, ji = split(csrmm.j, 4)\nparallel(csrmm.i)\n", 6, false},
    {"init_apart", "lower()\ndecompose_reduction(csrmm.i)\n", 6, false},
    {"fused_axes", "sparse_fuse(csrmm, I, J)\nlower()\n", 5, false},
    {"reordered_axes", "sparse_reorder(csrmm, K, I, J)\nlower()\nparallel(csrmm.k)\n", 5, false},
    {"prefetched", "lower()\nku, ki = split(csrmm.k, 4)\nvectorize(ki)\nunroll(ku)\nannotate(csrmm.j, prefetch)\n", 8},
    {"csr", "decompose_format(csrmm, A, csr())\nlower()\n", 5, false},
    {"bsr_2", "decompose_format(csrmm, A, bsr(2))\nlower()\nparallel(csrmm.io)\n", 6, false},
    {"bsr_3",
     "decompose_format(csrmm, A, bsr(3))\nlower()\nki, kv = split(csrmm.k, 2)\nvectorize(kv)\nparallel(csrmm.io)\n", 6},
    {"bsr_2_and_ell_2", "decompose_format(csrmm, A, bsr(2), ell(2), csr())\nlower()\n", 5, false},
    {"ell_50", "decompose_format(csrmm, A, ell(50))\nlower()\nparallel(csrmm.i)\n", 4, false},
    {"hyb_1_0", "decompose_format(csrmm, A, hyb(1, 0))\n", 4, false},
    {"hyb_1_3", "decompose_format(csrmm, A, hyb(1, 3))\nlower()\nparallel(csrmm.i)\n", 6, false},
    {"hyb_3_2",
     "decompose_format(csrmm, A, hyb(3, 2))\nlower()\nko, ki = split(csrmm.k, 4)\nreorder(ko, csrmm.j, ki)\n"
     "reorder(ko, csrmm.s)\nvectorize(ki)\ncache_write(ko, register)\nparallel(csrmm.i)\n",
     12},
};

TEST(Run, SpmmIsDenseArithmeticAtEveryStageInEveryFormat) {
  for (const SpmmCase& c : kSpmmCases) {
    CompileOptions options;
    if (c.set_feat) options.set["feat"] = c.feat;
    const Operator op = compile(parse(kSpmmProgram), c.schedule, Device::cpu(), options);
    uint32_t seed = 1;
    for (const Shape shape : kShapes) {
      const Matrix a = random_matrix(shape, seed++);
      Values b = random_values(static_cast<size_t>(a.cols * c.feat), seed), out(static_cast<size_t>(a.rows * c.feat));
      expect_everywhere(op,
                        {.structures = {{"J", a.structure()}},
                         .buffers = {{"A", a.values_view()},
                                     {"B", {b.data(), DType::fp32, {a.cols, c.feat}}},
                                     {"C", {out.data(), DType::fp32, {a.rows, c.feat}}}}},
                        "C", dense_spmm(a, b, c.feat), std::string(c.name) + ", " + name_of(shape));
      if (HasFatalFailure()) return;
    }
  }
}

struct SddmmCase {
  const char* name;
  const char* schedule;
  int64_t feat;
};
constexpr SddmmCase kSddmmCases[] = {
    {"plain", "", 5},
    {"fused", "sparse_fuse(sddmm, I, J)\nlower()\nparallel(sddmm.i_j)\n", 5},
    {"fused_rows", "sparse_fuse(sddmm, I, J)\nlower()\nmaterialise_rows(sddmm.i_j)\nparallel(sddmm.i_j)\n", 5},
    {"two_stages", "lower()\nko, ki = split(sddmm.k, 4)\nrfactor(ki, register)\nvectorize(ki)\nparallel(sddmm.i)\n",
     12},
    {"two_stages_with_tail", "lower()\nko, ki = split(sddmm.k, 8)\nrfactor(ki, register)\nvectorize(ki)\n", 13},
    {"fused_two_stages",
     "sparse_fuse(sddmm, I, J)\nlower()\nko, ki = split(sddmm.k, 4)\nrfactor(ki, register)\n"
     "vectorize(ki)\nparallel(sddmm.i_j)\n",
     8},
    {"lanes_added_in_pairs",
     "lower()\nko, ki = split(sddmm.k, 8)\nrfactor(ki, register)\nvectorize(sddmm_zero.ki)\nvectorize(ki)\n"
     "vectorize(sddmm_sum.ki_sum)\nunroll(ko)\nannotate(sddmm.j, prefetch, 3)\nparallel(sddmm.i)\n",
     24},
    {"row_fetched", "lower()\ncache_read(sddmm.i, X, register)\nparallel(sddmm.i)\n", 6},
    {"accumulator", "lower()\ncache_write(sddmm.j, register)\nparallel(sddmm.i)\n", 9},
};

TEST(Run, SddmmIsDenseArithmeticAtEveryStage) {
  for (const SddmmCase& c : kSddmmCases) {
    const Operator op = compile(parse(kSddmmProgram), c.schedule, Device::cpu(), {.set = {{"feat", c.feat}}});
    uint32_t seed = 100;
    for (const Shape shape : kShapes) {
      const Matrix a = random_matrix(shape, seed++);
      Values x = random_values(static_cast<size_t>(a.rows * c.feat), seed),
             y = random_values(static_cast<size_t>(a.cols * c.feat), seed + 1);
      Values out(a.values.size());
      expect_everywhere(op,
                        {.structures = {{"J", a.structure()}},
                         .buffers = {{"A", a.values_view()},
                                     {"X", {x.data(), DType::fp32, {a.rows, c.feat}}},
                                     {"Y", {y.data(), DType::fp32, {a.cols, c.feat}}},
                                     {"O", {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}}}}},
                        "O", dense_sddmm(a, x, y, c.feat), std::string(c.name) + ", " + name_of(shape));
      if (HasFatalFailure()) return;
    }
  }
}

TEST(Run, ReadyOperatorsComputeTheSame) {
#if defined(WEFT_UNDER_SANITIZER)
  const std::vector<int64_t> feats = {48, 128};  // compiling is most of the time
#else
  const std::vector<int64_t> feats = {5, 16, 32, 48, 64, 128};
#endif
  for (const int64_t feat : feats) {
    const Matrix a = random_matrix(Shape::power_law, 7);
    Values b = random_values(static_cast<size_t>(a.cols * feat), 8), c(static_cast<size_t>(a.rows * feat));
    const TensorView b_view(b.data(), DType::fp32, {a.cols, feat}), c_view(c.data(), DType::fp32, {a.rows, feat});
    for (const char* format : {"csr", "hyb(1, 2)", "hyb(2, 1)", "bsr(4)"}) {
      std::fill(c.begin(), c.end(), std::nanf(""));
      spmm(a.structure(), a.values_view(), b_view, c_view, {.format = format});
      expect_close(doubles(c), dense_spmm(a, b, feat), 1e-5, std::string(format) + ", feat " + std::to_string(feat));
    }
    Values x = random_values(static_cast<size_t>(a.rows * feat), 9), out(a.values.size());
    for (const char* format : {"auto", "csr", "coo()", "hyb(1)", "sr_bcrs(4, 2)"}) {
      std::fill(out.begin(), out.end(), std::nanf(""));
      sddmm(a.structure(), a.values_view(), {x.data(), DType::fp32, {a.rows, feat}}, b_view,
            {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}}, {.format = format});
      expect_close(doubles(out), dense_sddmm(a, x, b, feat), 1e-5, fmt::format("sddmm in {}, feat {}", format, feat));
    }
  }
}

constexpr const char* kFormatLists[] = {
    "csr()",  "csc()",          "coo()",         "dcsr()",    "dia()",  "ell(2), csr()",
    "bsr(4)", "dbsr(2), coo()", "sr_bcrs(8, 4)", "hyb(1, 2)", "hyb(2)",
};

// Empty rows, one dense row, no rows; with vectors and without.
TEST(Run, SpmmInEveryFormatComputesTheSame) {
  for (const char* format : kFormatLists)
    for (const int64_t feat : {5, 64}) {
      uint32_t seed = 940;
      for (const Shape shape : kShapes) {
        const Matrix a = random_matrix(shape, seed++);
        Values b = random_values(static_cast<size_t>(a.cols * feat), seed);
        Values c(static_cast<size_t>(a.rows * feat), std::nanf(""));
        spmm(a.structure(), a.values_view(), {b.data(), DType::fp32, {a.cols, feat}},
             {c.data(), DType::fp32, {a.rows, feat}}, {.format = format});
        expect_close(doubles(c), dense_spmm(a, b, feat), 1e-5,
                     fmt::format("{}, {}, feat {}", format, name_of(shape), feat));
        if (HasFatalFailure()) return;
      }
    }
}

TEST(Run, SddmmInEveryFormatComputesTheSame) {
  for (const char* format : kFormatLists)
    for (const int64_t feat : {5, 64}) {
      uint32_t seed = 980;
      for (const Shape shape : kShapes) {
        const Matrix a = random_matrix(shape, seed++);
        Values x = random_values(static_cast<size_t>(a.rows * feat), seed), out(a.values.size(), std::nanf(""));
        Values y = random_values(static_cast<size_t>(a.cols * feat), seed + 1);
        sddmm(a.structure(), a.values_view(), {x.data(), DType::fp32, {a.rows, feat}},
              {y.data(), DType::fp32, {a.cols, feat}}, {out.data(), DType::fp32, {static_cast<int64_t>(out.size())}},
              {.format = format});
        expect_close(doubles(out), dense_sddmm(a, x, y, feat), 1e-5,
                     fmt::format("{}, {}, feat {}", format, name_of(shape), feat));
        if (HasFatalFailure()) return;
      }
    }
}

// Axes whose arrays have 64 bits, of structures from arrays of either width.
TEST(Run, IndicesOf64BitsComputeTheSame) {
  const Program program = parse(replaced(kSpmmProgram, "indices=j_indices)", "indices=j_indices): int64"));
  const int64_t feat = 6;
  for (const char* schedule : {"", "decompose_format(csrmm, A, hyb(1, 1))\n",
                               "sparse_fuse(csrmm, I, J)\nlower()\nmaterialise_rows(csrmm.i_j)\n",
                               "lower()\nannotate(csrmm.j, prefetch, 4)\n"}) {
    const Operator op = compile(program, schedule);
    uint32_t seed = 960;
    for (const Shape shape : kShapes) {
      const Matrix a = random_matrix(shape, seed++);
      const std::vector<int64_t> indptr(a.indptr.begin(), a.indptr.end()), indices(a.indices.begin(), a.indices.end());
      Values b = random_values(static_cast<size_t>(a.cols * feat), seed), c(static_cast<size_t>(a.rows * feat));
      expect_everywhere(op,
                        {.structures = {{"J", csr(a.rows, a.cols, std::span(indptr), std::span(indices))}},
                         .buffers = {{"A", a.values_view()},
                                     {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                                     {"C", {c.data(), DType::fp32, {a.rows, feat}}}}},
                        "C", dense_spmm(a, b, feat), fmt::format("{} {}", schedule, name_of(shape)));
    }
  }
}

// Rows of rows: four fused axes, each position's parent found or read.
TEST(Run, FusedAxesOfATensorComputeTheSame) {
  const char* text = R"(program scale(a, b, c, rows, fibers, nnz):
  R = dense_fixed(1)
  I = sparse_variable(R, a, rows, indptr=i_indptr, indices=i_indices)
  J = sparse_variable(I, b, fibers, indptr=j_indptr, indices=j_indices)
  K = sparse_variable(J, c, nnz, indptr=k_indptr, indices=k_indices)
  X = buffer(R, I, J, K): fp32
  Y = buffer(R, I, J, K): fp32
  iterate scaled(R, I, J, K) "SSSS" as (r, i, j, k):
    Y[r, i, j, k] = X[r, i, j, k] * real(i + 10 * j + 100 * k)
)";
  CooTensor coo{.extents = {9, 7, 8}, .coordinates = {{}, {}, {}}};
  std::vector<double> want;
  Values x;
  for (const auto& [i, j, k] : {std::array<int32_t, 3>{0, 6, 7}, {2, 0, 1}, {2, 0, 5}, {2, 4, 0}, {8, 1, 1}}) {
    coo.coordinates[0].push_back(i), coo.coordinates[1].push_back(j), coo.coordinates[2].push_back(k);
    x.push_back(static_cast<float>(x.size()) + 0.5f);
    want.push_back(x.back() * (i + 10. * j + 100. * k));
  }
  Values y(x.size());
  const auto view = [](Values& v) { return TensorView(v.data(), DType::fp32, {static_cast<int64_t>(v.size())}); };
  for (const char* rows : {"", "materialise_rows(scaled.r_i_j_k)\n"}) {
    const std::string schedule =
        std::string("sparse_fuse(scaled, R, I, J, K)\nlower()\n") + rows + "parallel(scaled.r_i_j_k)\n";
    expect_everywhere(compile(parse(text), schedule),
                      {.structures = {{"K", csf_from_coo(coo).structure}}, .buffers = {{"X", view(x)}, {"Y", view(y)}}},
                      "Y", want, schedule);
  }
}

// Rows without elements stand first, in between and last.
TEST(Run, InitOfFusedAxesSetsRowsThatStoreNothing) {
  const char* text = R"(program sums(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  K = dense_fixed(2)
  X = buffer(I, J): fp32
  S = buffer(K, I): fp32
  iterate sums(I, J, K) "SRS" as (i, j, k):
    init:
      S[k, i] = real(10 * k)
    S[k, i] = S[k, i] + X[i, j]
)";
  const std::vector<int32_t> indptr = {0, 0, 2, 2, 3, 3, 3}, indices = {0, 1, 1};
  for (const char* schedule : {"", "sparse_fuse(sums, I, J)\n", "sparse_fuse(sums, I, J)\nlower()\nparallel(sums.i)\n",
                               "sparse_fuse(sums, I, J)\nlower()\nmaterialise_rows(sums.i_j)\n"}) {
    Values x = {1, 2, 4}, s(12, -1.f);
    expect_everywhere(compile(parse(text), schedule),
                      {.structures = {{"J", csr(6, 2, indptr, indices)}},
                       .buffers = {{"X", {x.data(), DType::fp32, {3}}}, {"S", {s.data(), DType::fp32, {2, 6}}}}},
                      "S", {0, 3, 0, 4, 0, 0, 10, 13, 10, 14, 10, 10}, schedule);
  }
}

// What does not lie next to each other is no vector, and computed all the same.
TEST(Run, VectorisedLoopsOverStridedElementsComputeTheSame) {
  const char* text = R"(program transpose(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  X = buffer(I, J): fp32
  Y = buffer(J, I): fp32
  iterate move(I, J) "SS" as (i, j):
    Y[j, i] = X[i, j] * 2.0 + real(j)
)";
  const int64_t m = 5, n = 11;
  Values x = random_values(static_cast<size_t>(m * n), 3), y(x.size());
  std::vector<double> want(x.size());
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      want[static_cast<size_t>(j * m + i)] = x[static_cast<size_t>(i * n + j)] * 2.0 + static_cast<double>(j);
  for (const char* schedule : {"lower()\njo, ji = split(move.j, 4)\nvectorize(ji)\n",
                               "lower()\nio, ii = split(move.i, 4)\nreorder(io, move.j, ii)\nvectorize(ii)\n"}) {
    const Operator op = compile(parse(text), schedule);
    expect_everywhere(op, {.buffers = {{"X", {x.data(), DType::fp32, {m, n}}}, {"Y", {y.data(), DType::fp32, {n, m}}}}},
                      "Y", want, schedule);
  }
}

// bf16 in and out, sums in fp32.
TEST(Run, Bf16IsReadAndRoundedToNearest) {
  std::string text = kSpmmProgram;
  for (size_t at; (at = text.find("fp32")) != text.npos;) text.replace(at, 4, "bf16");
  const Operator op = compile(parse(text),
                              "lower()\nko, ki = split(csrmm.k, 16)\nreorder(ko, csrmm.j, ki)\nvectorize(ki)\n"
                              "cache_write(ko, register)\nparallel(csrmm.i)\n");
  const Matrix a = random_matrix(Shape::uniform, 9);
  const int64_t feat = 21;
  const auto rounded = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
  };
  std::vector<uint16_t> values, b, c(static_cast<size_t>(a.rows * feat));
  for (const float v : a.values) values.push_back(rounded(v));
  for (const float v : random_values(static_cast<size_t>(a.cols * feat), 10)) b.push_back(rounded(v));
  const RunArguments arguments{.structures = {{"J", a.structure()}},
                               .buffers = {{"A", {values.data(), DType::bf16, {static_cast<int64_t>(values.size())}}},
                                           {"B", {b.data(), DType::bf16, {a.cols, feat}}},
                                           {"C", {c.data(), DType::bf16, {a.rows, feat}}}}};
  const loop::Memory want = interpret_operator(op, arguments, Stage::source);
  op.run(arguments);
  expect_close(values_of(arguments.buffers.at("C")), want.buffers.at("C"), 1. / 256, "bf16");
}

TEST(Run, Fp64IsComputedInDouble) {
  std::string text = kSpmmProgram;
  for (size_t at; (at = text.find("fp32")) != text.npos;) text.replace(at, 4, "fp64");
  const Operator op = compile(parse(text),
                              "lower()\nko, ki = split(csrmm.k, 4)\nreorder(ko, csrmm.j, ki)\n"
                              "vectorize(ki)\ncache_write(ko, register)\n");
  const Matrix a = random_matrix(Shape::uniform, 9);
  const int64_t feat = 6;
  const std::vector<double> values = doubles(a.values);
  const Values floats = random_values(static_cast<size_t>(a.cols * feat), 10);
  const std::vector<double> b = doubles(floats);
  std::vector<double> c(static_cast<size_t>(a.rows * feat));
  op.run({.structures = {{"J", a.structure()}},
          .buffers = {{"A", {values.data(), DType::fp64, {static_cast<int64_t>(values.size())}}},
                      {"B", {b.data(), DType::fp64, {a.cols, feat}}},
                      {"C", {c.data(), DType::fp64, {a.rows, feat}}}}});
  expect_close(c, dense_spmm(a, floats, feat), 1e-14, "fp64");
}

// One operator, another structure of the same format: nothing is compiled again.
TEST(Run, TakesAnotherStructureWithoutCompiling) {
  const Operator op = compile(parse(kSpmmProgram), "decompose_format(csrmm, A, hyb(1, 2))\n");
  for (const uint32_t seed : {1u, 2u, 3u}) {
    const Matrix a = random_matrix(Shape::uniform, seed);
    const int64_t feat = 3 + static_cast<int64_t>(seed);
    Values b = random_values(static_cast<size_t>(a.cols * feat), seed), c(static_cast<size_t>(a.rows * feat));
    op.run({.structures = {{"J", a.structure()}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                        {"C", {c.data(), DType::fp32, {a.rows, feat}}}}});
    expect_close(doubles(c), dense_spmm(a, b, feat), 1e-5, "seed " + std::to_string(seed));
  }
}

TEST(Run, NewValuesOfTheSameStructureAreConvertedAgainUnlessToldThatTheyAreTheSame) {
  const Operator op = compile(parse(kSpmmProgram), "decompose_format(csrmm, A, bsr(2))\n");
  Matrix a = random_matrix(Shape::uniform, 4);
  const Structure structure = a.structure();
  Values b = random_values(static_cast<size_t>(a.cols), 4), c(static_cast<size_t>(a.rows));
  RunArguments arguments{.structures = {{"J", structure}},
                         .buffers = {{"A", a.values_view()},
                                     {"B", {b.data(), DType::fp32, {a.cols, 1}}},
                                     {"C", {c.data(), DType::fp32, {a.rows, 1}}}}};
  op.run(arguments);
  const std::vector<double> once = dense_spmm(a, b, 1);
  expect_close(doubles(c), once, 1e-5, "first");
  for (float& v : a.values) v *= 2;
  arguments.values_unchanged = true;
  op.run(arguments);
  expect_close(doubles(c), once, 1e-5, "told that nothing changed");
  arguments.values_unchanged = false;
  op.run(arguments);
  std::vector<double> twice = once;
  for (double& v : twice) v *= 2;
  expect_close(doubles(c), twice, 1e-5, "converted again");
}

TEST(Run, OtherTensorsOfTheSameShapesAreTakenAndChecked) {
  const Operator op = compile(parse(kSpmmProgram));
  const Matrix a = random_matrix(Shape::uniform, 5);
  constexpr int64_t kWidth = 3;
  std::vector<Values> b, c;
  for (uint32_t i = 0; i < 3; ++i) {
    b.push_back(random_values(static_cast<size_t>(a.cols * kWidth), i));
    c.emplace_back(static_cast<size_t>(a.rows * kWidth), std::nanf(""));
    op.run({.structures = {{"J", a.structure()}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b[i].data(), DType::fp32, {a.cols, kWidth}}},
                        {"C", {c[i].data(), DType::fp32, {a.rows, kWidth}}}}});
  }
  const Structure kept = a.structure();
  const auto run = [&](Values& from, Values& to) {
    op.run({.structures = {{"J", kept}},
            .buffers = {{"A", a.values_view()},
                        {"B", {from.data(), DType::fp32, {a.cols, kWidth}}},
                        {"C", {to.data(), DType::fp32, {a.rows, kWidth}}}}});
  };
  for (size_t i = 0; i < 3; ++i) run(b[i], c[(i + 1) % 3]);
  for (size_t i = 0; i < 3; ++i)
    expect_close(doubles(c[(i + 1) % 3]), dense_spmm(a, b[i], kWidth), 1e-5, "another tensor");
  EXPECT_THROW(run(b[0], b[0]), Error);
  run(b[1], c[1]);
  expect_close(doubles(c[1]), dense_spmm(a, b[1], kWidth), 1e-5, "after a refusal");
}

TEST(Run, GivesTheSameBitsOnAnyNumberOfWorkers) {
  const int64_t feat = 32;
  for (const char* schedule : {"", "decompose_format(csrmm, A, hyb(2, 1))\n", "decompose_format(csrmm, A, bsr(2))\n"}) {
    const Operator op = compile(parse(kSpmmProgram), schedule);
    const Matrix a = random_matrix(Shape::one_dense_row, 11);
    Values b = random_values(static_cast<size_t>(a.cols * feat), 12), first;
    for (const int workers : {1, 2, 3, 7}) {
      WorkerTeam team(workers);
      Values c(static_cast<size_t>(a.rows * feat));
      op.run({.structures = {{"J", a.structure()}},
              .buffers = {{"A", a.values_view()},
                          {"B", {b.data(), DType::fp32, {a.cols, feat}}},
                          {"C", {c.data(), DType::fp32, {a.rows, feat}}}}},
             Stream::cpu(team));
      if (first.empty()) first = c;
      EXPECT_EQ(c, first) << schedule << workers;
    }
  }
}

// A padded slot reads nothing: 0 times Inf never arises. A row that stores the coordinate does see it.
TEST(Run, PaddingReadsNoCoordinate) {
  const Matrix a = random_matrix(Shape::power_law, 21);
  Values b(static_cast<size_t>(a.cols), 1.f), c(static_cast<size_t>(a.rows));
  const int32_t poisoned = a.indices.back();
  b[static_cast<size_t>(poisoned)] = std::numeric_limits<float>::infinity();
  for (const char* schedule : {"decompose_format(csrmm, A, hyb(1, 3))\n", "decompose_format(csrmm, A, ell(40))\n"}) {
    const Operator op = compile(parse(kSpmmProgram), schedule);
    op.run({.structures = {{"J", a.structure()}},
            .buffers = {{"A", a.values_view()},
                        {"B", {b.data(), DType::fp32, {a.cols, 1}}},
                        {"C", {c.data(), DType::fp32, {a.rows, 1}}}}});
    for (int64_t i = 0; i < a.rows; ++i)
      EXPECT_EQ(std::isinf(c[static_cast<size_t>(i)]), a.at(i, poisoned) != 0) << schedule << i;
  }
}

}  // namespace
}  // namespace weft::sparse::test
