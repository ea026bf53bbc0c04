// Primitives over several nests, and those of memory, blocks and atomic sums: texts, values, and what they refuse.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "sparse/operator.h"
#include "sparse/operators/gather_schedules.h"
#include "sparse/operators/ready.h"
#include "sparse/stage1/parse.h"
#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test {
namespace {

const std::string kStepsText = steps_program("steps(m, n, nnz)", kCsrAxis);
const char* const kSteps = kStepsText.c_str();

// An element of another structure, which is searched for.
constexpr const char* kSearched = R"(program searched(m, n, nnz, all):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  L = sparse_variable(I, n, all, indptr=l_indptr, indices=l_indices)
  T = buffer(I, J): fp32
  Z = buffer(I, L): fp32
  iterate whole(I, L) "SS" as (a, b):
    Z[a, b] = T[a, b] * 2.0
)";

// C = A B, dense, in tiles of 8.
const std::string kDenseText = dense_program();
const char* const kDense = kDenseText.c_str();
const std::map<std::string, int64_t> kTile = {{"m", 8}, {"n", 16}, {"inner", 8}};

Operator lowered(const std::string& schedule, const char* program, const std::map<std::string, int64_t>& set = {}) {
  return compile(parse(program), "lower()\n" + schedule, Device::cpu(),
                 {.set = set, .stop_after = "schedule stage II"});
}

std::string loops(const std::string& schedule, const char* program, const std::map<std::string, int64_t>& set = {}) {
  const std::string text = lowered(schedule, program, set).text("stage2");
  return text.substr(text.find("  for "));
}

// Two halves of T, of which the last iteration needs the first.
std::string halves(int offset) {
  return fmt::format(R"(program halves(m):
  I = dense_fixed(m)
  K = dense_fixed(8)
  W = dense_fixed(16)
  X = buffer(I, W): fp32
  T = buffer(I, W): fp32
  Z = buffer(I, K): fp32
  iterate low(I, K) "SS" as (i, k):
    T[i, k] = X[i, k]
  iterate high(I, K) "SS" as (r, s):
    T[r, s + {}] = X[r, s]
  iterate rest(I, K) "SS" as (a, b):
    Z[a, b] = T[a, b]
)",
                     offset);
}

TEST(Nests, ComputeAtPassesWhatAccessesOtherElements) {
  EXPECT_EQ(loops("compute_at(low, rest.a)\n", halves(8).c_str()),
            "  for r in range(m):\n    for s in range(8):\n      block high:\n        T[r, s + 8] = X[r, s]\n"
            "  for a in range(m):\n    for k in range(8):\n      block low:\n        T[a, k] = X[a, k]\n"
            "    for b in range(8):\n      block rest:\n        Z[a, b] = T[a, b]\n");
  expect_contains(refusal([] { lowered("compute_at(low, rest.a)\n", halves(7).c_str()); }),
                  "what stands between them accesses 'T', too", "halves that share a column");
}

TEST(Nests, ComputeAtSharesOuterLoops) {
  EXPECT_EQ(
      loops("compute_at(sums, rest.i)\ncompute_at(twice, rest.i)\nset_scope(S, register)\nparallel(rest.i)\n", kSteps),
      R"(  for i in range(m) [parallel, balance=j_indptr]:
    for b in range(j_indptr[i + 1] - j_indptr[i]):
      block twice:
        T[i, b] = X[i, b] * 2.0
    allocate S_local[1]: fp32 in register
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      block sums:
        init:
          S_local[0] = 0.0
        S_local[0] = S_local[0] + T[i, j]
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      block rest:
        Z[i, j] = S_local[0] - T[i, j]
)");
}

TEST(Nests, ReverseComputeAtComesLast) {
  EXPECT_EQ(loops("reverse_compute_at(sums, twice.b)\n", kSteps), R"(  for a in range(m):
    for b in range(j_indptr[a + 1] - j_indptr[a]) [reduce]:
      block twice:
        T[a, b] = X[a, b] * 2.0
      block sums:
        init:
          S[a] = 0.0
        S[a] = S[a] + T[a, b]
  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      block rest:
        Z[i, j] = S[i] - T[i, j]
)");
}

TEST(Nests, ComputeInlinePutsTheExpressionInItsPlace) {
  EXPECT_EQ(loops("compute_inline(twice)\n", kSteps), R"(  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      block sums:
        init:
          S[i] = 0.0
        S[i] = S[i] + X[i, j] * 2.0
  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      block rest:
        Z[i, j] = S[i] - X[i, j] * 2.0
)");
}

TEST(Nests, EveryWayComputesTheSame) {
  for (const char* schedule :
       {"", "compute_inline(twice)\ncompute_at(sums, rest.i)\nparallel(rest.i)\n",
        "reverse_compute_at(sums, twice.b)\nparallel(rest.i)\n", "compute_at(twice, sums.j)\n",
        "compute_at(sums, rest.i)\ncompute_at(twice, rest.i)\nset_scope(S, register)\nparallel(rest.i)\n",
        "reverse_compute_at(sums, twice.a)\nreverse_compute_at(rest, twice.a)\nset_scope(S, register)\n",
        "compute_at(twice, sums.j)\ncompute_at(sums, rest.i)\nparallel(rest.i)\n"}) {
    const Operator op = compile(parse(kSteps), std::string("lower()\n") + schedule);
    for (const Shape shape : kShapes) {
      Matrix a = random_matrix(shape, 601);
      Values z(a.values.size());
      std::vector<double> want(z.size());
      for (size_t r = 0; r + 1 < a.indptr.size(); ++r) {
        double sum = 0;
        for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p) sum += 2. * a.values[static_cast<size_t>(p)];
        for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p)
          want[static_cast<size_t>(p)] = sum - 2. * a.values[static_cast<size_t>(p)];
      }
      expect_everywhere(
          op,
          {.structures = {{"J", a.structure()}},
           .buffers = {{"X", a.values_view()}, {"Z", {z.data(), DType::fp32, {static_cast<int64_t>(z.size())}}}}},
          "Z", want, schedule + std::string(name_of(shape)));
    }
  }
}

TEST(Memory, StorageAlignMovesRowsApart) {
  const std::string text = loops("cache_read(product.i, B, register)\nstorage_align(B_local, 32, 1)\n", kDense, kTile);
  EXPECT_NE(text.find("allocate B_local[16, 33]: fp32 in register"), std::string::npos) << text;
}

TEST(Blocks, BlockizeMakesABlockOfALoop) {
  EXPECT_EQ(loops("decompose_reduction(product.i)\ntile = blockize(product.j)\n", kDense, kTile),
            R"(  for i in range(8):
    for j in range(16):
      block product_init:
        C[i, j] = 0.0
  for i in range(8):
    block tile:
      for j in range(16):
        for l in range(8) [reduce]:
          block product:
            C[i, j] = C[i, j] + A[i, l] * B[l, j]
)");
}

struct DenseCase {
  const char* schedule;
  int64_t m, n, l;
};

TEST(Blocks, TensorizedProductsAndAlignedMemoryComputeTheSame) {
  for (const DenseCase& c :
       {DenseCase{"decompose_reduction(product.i)\ntensorize(product.i, product)\n", 8, 16, 8},
        {"decompose_reduction(product.i)\nio, ii = split(product.i, 4)\njo, ji = split(product.j, 8)\n"
         "lo, li = split(product.l, 4)\nreorder(io, jo, lo, ii, ji, li)\ntile = blockize(ii)\n"
         "tensorize(ii, product)\n",
         8, 16, 12},
        {"decompose_reduction(product.i)\nreorder(product.j, product.l, product.i)\n"
         "tensorize(product.j, product)\n",
         3, 5, 7},
        {"cache_read(product.i, B, register)\nstorage_align(B_local, 32, 1)\n", 4, 6, 5}}) {
    const Operator op = compile(parse(kDense), std::string("lower()\n") + c.schedule, Device::cpu(),
                                {.set = {{"m", c.m}, {"n", c.n}, {"inner", c.l}}});
    if (std::string(c.schedule).find("tensorize") != std::string::npos) {
      EXPECT_NE(op.text("code").find("weft_product<"), std::string::npos);
    }
    Values a = random_values(static_cast<size_t>(c.m * c.l), 1), b = random_values(static_cast<size_t>(c.l * c.n), 2);
    Values out(static_cast<size_t>(c.m * c.n));
    std::vector<double> want(out.size(), 0);
    for (int64_t i = 0; i < c.m; ++i)
      for (int64_t j = 0; j < c.n; ++j)
        for (int64_t l = 0; l < c.l; ++l)
          want[static_cast<size_t>(i * c.n + j)] +=
              static_cast<double>(a[static_cast<size_t>(i * c.l + l)]) * b[static_cast<size_t>(l * c.n + j)];
    expect_everywhere(op,
                      {.buffers = {{"A", {a.data(), DType::fp32, {c.m, c.l}}},
                                   {"B", {b.data(), DType::fp32, {c.l, c.n}}},
                                   {"C", {out.data(), DType::fp32, {c.m, c.n}}}}},
                      "C", want, c.schedule);
  }
}

constexpr const char* kCoo = R"(program spmm_coo(m, n, nnz, feat):
  E = dense_fixed(nnz)
  I = dense_fixed(m)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  Row = buffer(E): int32
  Col = buffer(E): int32
  A = buffer(E): fp32
  B = buffer(J_, K): fp32
  C = buffer(I, K): fp32
  iterate clear(I, K) "SS" as (i, l):
    C[i, l] = 0.0
  iterate spmm(E, K) "RS" as (e, k) where Row[e] >= 0, Row[e] < m:
    C[Row[e], k] = C[Row[e], k] + A[e] * B[Col[e], k]
)";

// A team may share what is scattered, and the pieces of any format, where sums are atomic.
TEST(Atomic, SumsOfAReductionAreShared) {
  const int64_t feat = 5;
  const std::string text = loops("atomic(spmm)\nparallel(spmm.e)\n", kCoo);
  EXPECT_NE(text.find("for e in range(nnz) [reduce, parallel]"), std::string::npos) << text;
  EXPECT_NE(text.find("atomic C[Row[e], k] = C[Row[e], k] + A[e] *"), std::string::npos) << text;
  const Operator scattered = compile(parse(kCoo), "lower()\natomic(spmm)\nparallel(clear.i)\nparallel(spmm.e)\n");
  const Operator hybrid = compile(parse(kSpmmProgram),
                                  "decompose_format(csrmm, A, hyb(3, 1))\nlower()\natomic(csrmm)\nparallel(csrmm.i)\n");
  const Operator columns = compile(parse(kSpmmProgram),
                                   "lower()\nreorder(csrmm.k, csrmm.j)\nreorder(csrmm.i, csrmm.k)\n"
                                   "decompose_reduction(csrmm.i)\natomic(csrmm)\nparallel(csrmm.i)\n");
  WorkerTeam team(4);
  for (const Shape shape : kShapes) {
    const Matrix a = random_matrix(shape, 611);
    Coo coo = a.coo();
    Values b = random_values(static_cast<size_t>(a.cols * feat), 612),
           c(static_cast<size_t>(a.rows * feat), std::nanf(""));
    const TensorView b_view(b.data(), DType::fp32, {a.cols, feat}), c_view(c.data(), DType::fp32, {a.rows, feat});
    const auto ints = [](std::vector<int32_t>& v) {
      return TensorView(v.data(), DType::int32, {static_cast<int64_t>(v.size())});
    };
    const std::vector<double> want = dense_spmm(a, b, feat);
    scattered.run(
        {.buffers =
             {{"A", a.values_view()}, {"Row", ints(coo.rows)}, {"Col", ints(coo.cols)}, {"B", b_view}, {"C", c_view}}},
        Stream::cpu(team));
    expect_close(doubles(c), want, 1e-5, std::string("scattered, ") + name_of(shape));
    for (const Operator* op : {&hybrid, &columns}) {
      std::fill(c.begin(), c.end(), std::nanf(""));
      op->run({.structures = {{"J", a.structure()}}, .buffers = {{"A", a.values_view()}, {"B", b_view}, {"C", c_view}}},
              Stream::cpu(team));
      expect_close(doubles(c), want, 1e-5, name_of(shape));
    }
  }
}

// A row has at most as many positions as its axis is long.
TEST(Memory, HasRoomForTheLongestRowOfALiteralLength) {
  const std::string text =
      loops("compute_at(sums, rest.i)\ncompute_at(twice, rest.i)\nset_scope(T, register)\n", kSteps, {{"n", 5}});
  EXPECT_NE(text.find("for i in range(m):\n    allocate T_local[5]: fp32 in register\n"), text.npos) << text;
  EXPECT_NE(text.find("T_local[b] = X[i, b] * 2.0"), text.npos) << text;
}

int phases_of(const Operator& op) {
  int count = 0;
  const std::string code = op.text("code");
  for (size_t at = 0; (at = code.find("extern \"C\"", at)) != code.npos; ++at) ++count;
  return count;
}

TEST(Phases, ThatShareNothingAreJoined) {
  const auto made = [](const std::string& schedule) {
    return compile(parse(kSpmmProgram), schedule, Device::cpu(), {.stop_after = "generate"});
  };
  // Copies, init, and all buckets, whose rows are apart: three instead of thirteen.
  const Operator hybrid = made("decompose_format(csrmm, A, hyb(1, 5))\n");
  EXPECT_EQ(phases_of(hybrid), 3);
  EXPECT_NE(hybrid.text("stage3").find("[parallel, joined]"), std::string::npos);
  // Bound to CTAs, too: side by side in one kernel.
  const std::string rows =
      "ro, ri = split(csrmm.i, 8)\nbind(ro, blockIdx.x)\nbind(ri, threadIdx.y)\nbind(csrmm.k, threadIdx.x)\n";
  EXPECT_EQ(phases_of(made("decompose_format(csrmm, A, hyb(1, 5))\nlower()\nreorder(csrmm.k, csrmm.j)\n" + rows)), 3);
  EXPECT_GT(phases_of(made("decompose_format(csrmm, A, hyb(2, 1))\nlower()\nreorder(csrmm.k, csrmm.j)\n" + rows)), 3);
  // Column partitions meet in a row; atomic sums may.
  EXPECT_EQ(phases_of(made("decompose_format(csrmm, A, hyb(2, 1))\n")), 4);
  EXPECT_EQ(phases_of(made("decompose_format(csrmm, A, hyb(2, 1))\nlower()\natomic(csrmm)\nparallel(csrmm.i)\n")), 3);
  // A block and what is left of its row meet.
  EXPECT_EQ(phases_of(made("decompose_format(csrmm, A, bsr(2), csr())\n")), 4);
  // What is read from the phase before waits.
  const Operator steps = compile(parse(kSteps), "lower()\nparallel(twice.a)\nparallel(sums.i)\nparallel(rest.i)\n",
                                 Device::cpu(), {.stop_after = "generate"});
  EXPECT_EQ(phases_of(steps), 3);
}

TEST(Nests, RefuseWhatWouldChangeTheResult) {
  struct Refused {
    const char* schedule;
    const char* says;
    const char* program = kSteps;
    std::map<std::string, int64_t> set = {};
  };
  const Refused cases[] = {
      {"cache_read(whole.b, T, register)\n", "'T' is read at 'at_J', which is set further inside", kSearched},
      {"compute_at(twice)\n", "the operands are written as compute_at(iteration, loop)"},
      {"compute_at(twice, 3)\n", "the operands are written as compute_at(iteration, loop)"},
      {"compute_at(thrice, rest.i)\n", "'thrice': there is no such block"},
      {"compute_at(twice, rest.k)\n", "no loop of that variable is around block 'rest'; there are i, j"},
      {"compute_at(rest, sums.i)\n", "the block is computed after the loop; use reverse_compute_at"},
      {"reverse_compute_at(twice, sums.i)\n", "the block is computed before the loop; use compute_at"},
      {"compute_at(sums, rest.j)\n", "'S' is complete only after all iterations of 'j'"},
      {"compute_at(twice, rest.i)\n", "what stands between them accesses 'T', too; move that first"},
      {"reverse_compute_at(rest, twice.a)\n", "what stands between them accesses 'S', too; move that first"},
      {"compute_at(rest, rest.i)\n", "'rest' and 'rest' stand in one nest already"},
      {"parallel(rest.i)\ncompute_at(sums, rest.i)\n", "one of the loops is no serial loop any more; merge before"},
      {"io, ii = split(rest.i, 4)\ncompute_at(sums, io)\n", "loop 'i' runs to m, and loop 'io' to (m + 3) // 4"},
      {"io, ii = split(rest.i, 4)\ncompute_at(sums, rest.j)\n", "runs to m, and loop 'io' to"},
      {"compute_at(clear, spmm.k)\n", "loop 'i' runs to m, and loop 'e' to nnz", kCoo},
      {"compute_inline(sums)\n", "it does not compute an element by one expression"},
      {"compute_inline(rest)\n", "'Z' is no temporary buffer; its values would be missing"},
      {"compute_inline(rest.i)\n", "there is no such block"},
      {"ao, ai = split(twice.a, 2)\ncompute_inline(twice)\n", "a condition or a block stands around it"},
      {"ao, ai = split(twice.a, 2)\ncompute_inline(twice)\n", "is no variable of a loop around it", kSteps, {{"m", 4}}},
      {"set_scope(X, register)\n", "it is a buffer of the caller; declare it as temporary, or use cache_write"},
      {"set_scope(T, register)\n", "axis 'I' has no literal number of positions"},
      {"set_scope(S, register)\n", "axis 'I' has no literal number of positions"},
      {"compute_at(sums, rest.i)\ncompute_at(twice, rest.i)\nset_scope(T, register)\n",
       "axis 'J' has no literal length"},
      {"set_scope(Q, register)\n", "no memory of that name was made"},
      {"storage_align(S_local, 32, 1)\n", "no memory of that name was made"},
      {"storage_align(S_local, 32)\n", "the operands are written as storage_align(buffer, factor, offset)"},
      {"cache_read(product.i, B, register)\nstorage_align(B_local, 1, 0)\n", "2 to 4096 are allowed", kDense, kTile},
      {"cache_read(product.i, B, register)\nstorage_align(B_local, 32, 32)\n", "the offset 32", kDense, kTile},
      {"cache_write(product.j, register)\nstorage_align(C_local, 32, 1)\n", "it has one dimension", kDense, kTile},
      {"t = blockize(product.i)\nt = blockize(product.j)\n", "there is a block 't' already", kDense, kTile},
      {"reorder(product.l, product.j)\ntile = blockize(product.j)\n", "runs before the reduction 'l' around it", kDense,
       kTile},
      {"blockize(product.i)\n", "the operands are written as block = blockize(loop)", kDense, kTile},
      {"tile = blockize(product.j)\nreorder(product.j, product.i)\n", "a block stands between the loops", kDense,
       kTile},
      {"tensorize(product.i, product)\n", "init of the block stands within", kDense, kTile},
      {"tensorize(product.i, outer)\n", "'outer' is no intrinsic; allowed are product and mma", kDense, kTile},
      {"tensorize(product.j, product)\n", "there are 1 spatial loops and 1 reductions", kDense, kTile},
      {"tensorize(product.i, product)\n", "three serial loops of literal extents up to 256", kDense},
      {"decompose_reduction(product.i)\nvectorize(product.j)\n", "loop 'l' stands within it", kDense, kTile},
      {"atomic(twice)\n", "the block is no sum of the form T[a, b] = T[a, b] + x"},
      {"atomic(thrice)\n", "there is no such block"},
      {"atomic(spmm)\ncache_write(spmm.e, register)\n", "the block's sums are atomic; keep them before that", kCoo},
      {"atomic(clear)\n", "the block is no sum of the form C[i, l] = C[i, l] + x", kCoo},
      {"parallel(spmm.e)\n", "use rfactor, atomic, or a spatial loop", kCoo},
      {"reorder(product.j, product.l)\ncache_write(product.j, register)\natomic(product)\n",
       "'C_local' is memory that no other iteration sees", kDense, kTile},
  };
  for (const Refused& c : cases) {
    expect_contains(refusal([&] { lowered(c.schedule, c.program, c.set); }), c.says, c.schedule);
  }
}

TEST(Nests, AxesThatAreApartAreChecked) {
  const auto program = [](const char* line) {
    return fmt::format(R"(program p(n, a, b):
  I = dense_fixed(1)
  A = sparse_fixed(I, n, a, indices=a_indices)
  B = sparse_fixed(I, n, b, indices=b_indices)
  {}
  X = buffer(I, A): fp32
  iterate one(I, A) "SS" as (i, j):
    X[i, j] = 1.0
)",
                       line);
  };
  EXPECT_EQ(refusal([&] { parse(program("apart(A, B)")); }), "");
  // What a caller gives is checked, too.
  const Operator op = compile(parse(program("apart(A, B)")));
  const auto run = [&](const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
    Values x(a.size());
    return refusal([&] {
      op.run({.structures = {{"A", ell(1, 9, static_cast<int64_t>(a.size()), a)},
                             {"B", ell(1, 9, static_cast<int64_t>(b.size()), b)}},
              .buffers = {{"X", {x.data(), DType::fp32, {static_cast<int64_t>(x.size())}}}}});
    });
  };
  EXPECT_EQ(run({1, 4, 9}, {2, 3, 9}), "");
  expect_contains(run({1, 4}, {2, 4}), "coordinate 4 is stored on 'A' and on 'B', which are apart", "overlap");
  expect_contains(refusal([&] { parse(program("apart(A, C)")); }), "axis 'C' is not declared", "unknown");
  expect_contains(refusal([&] { parse(program("apart(A, I)")); }), "axis 'I' is dense", "dense");
  expect_contains(refusal([&] { parse(program("apart(A, A)")); }), "axis 'A' stands twice", "twice");
  expect_contains(refusal([&] { parse(program("apart A, B")); }), "'(' is expected", "form");
}

// Iterations within another run one after another at each of its points.
constexpr const char* kWithin = R"(program norms(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  X = buffer(I, J): fp32
  S = temporary(I): fp32
  Y = buffer(I, J): fp32
  iterate rows(I) "S" as (i):
    iterate sums(J) "R" as (j):
      init:
        S[i] = 0.0
      S[i] = S[i] + X[i, j] * X[i, j]
    iterate quotients(J) "S" as (j):
      Y[i, j] = X[i, j] / sqrt(S[i])
)";

TEST(Within, IterationsShareTheLoopsAroundThem) {
  EXPECT_EQ(loops("set_scope(S, register)\nparallel(quotients.i)\n", kWithin),
            R"(  for i in range(m) [parallel, balance=j_indptr]:
    allocate S_local[1]: fp32 in register
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      block sums:
        init:
          S_local[0] = 0.0
        S_local[0] = S_local[0] + X[i, j] * X[i, j]
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      block quotients:
        Y[i, j] = X[i, j] / sqrt(S_local[0])
)");
  EXPECT_EQ(parse(kWithin).text(), to_text(parse_program(kWithin).stage1));
  for (const char* schedule : {"", "lower()\nset_scope(S, register)\nparallel(sums.i)\n"}) {
    const Operator op = compile(parse(kWithin), schedule);
    for (const Shape shape : kShapes) {
      const Matrix a = random_matrix(shape, 621);
      Values y(a.values.size());
      std::vector<double> want;
      for (size_t r = 0; r + 1 < a.indptr.size(); ++r) {
        double sum = 0;
        for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p)
          sum += double(a.values[static_cast<size_t>(p)]) * a.values[static_cast<size_t>(p)];
        for (int32_t p = a.indptr[r]; p < a.indptr[r + 1]; ++p)
          want.push_back(a.values[static_cast<size_t>(p)] / std::sqrt(sum));
      }
      expect_everywhere(
          op,
          {.structures = {{"J", a.structure()}},
           .buffers = {{"X", a.values_view()}, {"Y", {y.data(), DType::fp32, {static_cast<int64_t>(y.size())}}}}},
          "Y", want, schedule + std::string(name_of(shape)));
    }
  }
}

// Two levels down: each element of a row takes its row's sum, scaled, in two features of its own.
constexpr const char* kTwoDeep = R"(program features(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  K = dense_fixed(2)
  X = buffer(I, J): fp32
  Y = buffer(I, J, K): fp32
  S = temporary(I): fp32
  T = temporary(I, J): fp32
  iterate rows(I) "S" as (i):
    iterate sums(J) "R" as (j):
      init:
        S[i] = 0.0
      S[i] = S[i] + X[i, j]
    iterate elements(J) "S" as (j):
      iterate scaled(K) "R" as (k):
        init:
          T[i, j] = 0.0
        T[i, j] = T[i, j] + S[i] * real(k + 1)
      iterate features(K) "S" as (k):
        Y[i, j, k] = T[i, j] - X[i, j] * real(k)
)";

TEST(Within, IterationsMayStandSeveralDeep) {
  EXPECT_EQ(loops("set_scope(S, register)\nset_scope(T, register)\nparallel(sums.i)\n", kTwoDeep),
            R"(  for i in range(m) [parallel, balance=j_indptr]:
    allocate S_local[1]: fp32 in register
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      block sums:
        init:
          S_local[0] = 0.0
        S_local[0] = S_local[0] + X[i, j]
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      allocate T_local[1]: fp32 in register
      for k in range(2) [reduce]:
        block scaled:
          init:
            T_local[0] = 0.0
          T_local[0] = T_local[0] + S_local[0] * real(k + 1)
      for k in range(2):
        block features:
          Y[i, j, k] = T_local[0] - X[i, j] * real(k)
)");
  EXPECT_EQ(parse(kTwoDeep).text(), to_text(parse_program(kTwoDeep).stage1));
  for (const char* schedule : {"", "lower()\nset_scope(S, register)\nset_scope(T, register)\nparallel(sums.i)\n"}) {
    const Operator op = compile(parse(kTwoDeep), schedule);
    for (const Shape shape : kShapes) {
      const Matrix a = random_matrix(shape, 631);
      Values y(a.values.size() * 2);
      std::vector<double> want;
      for (size_t r = 0; r + 1 < a.indptr.size(); ++r) {
        const auto row = std::span(a.values).subspan(static_cast<size_t>(a.indptr[r]),
                                                     static_cast<size_t>(a.indptr[r + 1] - a.indptr[r]));
        double sum = 0;
        for (const float x : row) sum += x;
        for (const float x : row) want.insert(want.end(), {3 * sum, 3 * sum - x});
      }
      expect_everywhere(op,
                        {.structures = {{"J", a.structure()}},
                         .buffers = {{"X", a.values_view()},
                                     {"Y", {y.data(), DType::fp32, {static_cast<int64_t>(a.values.size()), 2}}}}},
                        "Y", want, schedule + std::string(name_of(shape)));
    }
  }
}

TEST(Within, RefusesWhatNeedsOtherPoints) {
  const auto changed = [](const std::string& old, const std::string& now, const std::string& schedule = "") {
    return refusal(
        [&] { compile(parse(replaced(kWithin, old, now)), schedule, Device::cpu(), {.stop_after = "generate"}); });
  };
  expect_contains(changed("/ sqrt(S[i])", "/ sqrt(S[i + 1])"), "'S' is complete only after all iterations of 'i'",
                  "S[i + 1]");
  expect_contains(changed("rows(I) \"S\" as (i)", "rows(I) \"S\" as (i) where i > 0"),
                  "'where' of 'rows' belongs to the iterations within it", "where");
  expect_contains(changed("    iterate quotients(J)", "    iterate quotients(Q)"), "axis 'Q' of iteration 'quotients'",
                  "axis");
  expect_contains(changed("    iterate quotients", "    preprocess quotients"), "'iterate' is expected", "preprocess");
  expect_contains(
      changed("/ sqrt(S[i])\n", "/ sqrt(S[i])\n      iterate more(J) \"S\" as (j2):\n        Y[i, j2] = 0.0\n"),
      "an iteration computes something itself, or holds iterations that do, and not both", "both");
  expect_contains(changed("quotients(J) \"S\" as (j)", "quotients(J) \"S\" as (i)"),
                  "has a name that something else has", "iterator");
  // A third level down, and so on.
  std::string axes, deep;
  for (int level = 0; level < 8; ++level) {
    axes += fmt::format("  O_{} = dense_fixed(1)\n", level);
    deep += fmt::format("{0}iterate more_{1}(O_{1}) \"S\" as (o_{1}):\n", std::string(6 + 2 * level, ' '), level);
  }
  const std::string with_axes = replaced(kWithin, "  X = buffer", axes + "  X = buffer");
  const std::string too_deep =
      replaced(with_axes, "      Y[i, j] = X[i, j] / sqrt(S[i])\n", deep + std::string(22, ' ') + "Y[i, j] = 0.0\n");
  expect_contains(refusal([&] { parse(too_deep); }), "iterations stand within others at most 8 deep", "deep");
  expect_contains(changed("iterate quotients(J)", "iterate rows(J)"), "iteration 'rows' is declared twice", "names");
  expect_contains(changed("iterate quotients(J)", "iterate sums(J)"), "iteration 'sums' is declared twice", "names");
  for (const char* line : {"sparse_reorder(sums, I, J)\n", "sparse_fuse(sums, I, J)\n"})
    expect_contains(changed("norms", "norms", line), "it stands within iteration 'rows'", line);
  expect_contains(changed("norms", "norms", "decompose_format(sums, X, csr())\n"), "it stands within iteration 'rows'",
                  "decompose_format");
}

}  // namespace
}  // namespace weft::sparse::test
