// Schedules that once broke a promise of the compiler's own: each is refused by name, or computes what its program
// says.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sparse/sound_schedules.h"
#include "tests/sparse/support.h"

namespace weft::sparse::test::sound_schedules {
namespace {

TEST(NoInternalErrors, CopiesForABlockOfLoops) {
  expect_refused(kSpmm, "lower()\nb = blockize(csrmm.j)\ncache_read(b.i, A, shared)\n",
                 "'A' is read at 'j', which is set further inside");
  expect_refused(kSpmm, "lower()\nb = blockize(csrmm.j)\ncache_write(b.i, register)\n",
                 "block 'b' stores nothing itself; name the block within it");
  expect_refused(kSpmm, "lower()\nreorder(csrmm.k, csrmm.j)\nb = blockize(csrmm.j)\nrfactor(b.i, register)\n",
                 "it is no reduction");
  // The block within.
  for (const char* lines : {"decompose_reduction(csrmm.j)\nb = blockize(csrmm.k)\ncache_read(csrmm.j, B, register)\n",
                            "b = blockize(csrmm.j)\ncache_write(csrmm.i, register)\n",
                            "b = blockize(csrmm.j)\ncache_read(csrmm.j, A, shared)\n"})
    expect_same_results(kSpmm, std::string("lower()\n") + lines, {{"feat", 3}});
}

TEST(NoInternalErrors, SumsOfFusedAxes) {
  const std::string fused = "sparse_fuse(csrmm, I, J)\nlower()\n";
  for (const char* lines :
       {"reorder(csrmm.i_j, csrmm.k)\n", "cache_write(csrmm.i_j, register)\n", "reorder(csrmm.k, csrmm.i_j)\n",
        "o, p = split(csrmm.i_j, 4)\ncache_write(p, register)\n", "o, p = split(csrmm.i_j, 4)\nreorder(p, csrmm.k)\n",
        "o, p = split(csrmm.i_j, 4)\nreorder(p, o)\n", "o, p = split(csrmm.i_j, 4)\nreorder(p, csrmm.k, o)\n",
        "reorder(csrmm.k, csrmm.i_j)\ncache_write(csrmm.i_j, register)\n",
        "o, p = split(csrmm.i_j, 4)\nmaterialise_rows(p)\nreorder(csrmm.k, o, p)\n"})
    expect_same_results(kSpmm, fused + lines, {{"feat", 3}});
  expect_refused(kSpmm, fused + "o, p = split(csrmm.i_j, 4)\ncache_write(o, register)\n",
                 "'C' is written at i, another element in each iteration of the reduction 'p'", {{"feat", 3}});
  expect_refused(kSpmm, fused + "reorder(csrmm.k, csrmm.i_j)\ncache_write(csrmm.k, register)\n",
                 "'C' is written at i, another element in each iteration of the reduction 'i_j'", {{"feat", 3}});
  expect_refused(kSpmm, fused + "reorder(csrmm.k, csrmm.i_j)\no, p = split(csrmm.i_j, 4)\nrfactor(p, register)\n",
                 "'C' is written at i, another element in each iteration of the reduction", {{"feat", 3}});
}

// The row of a fused axis, which init needs beside the loops.
TEST(NoInternalErrors, InitOfFusedAxesFindsItsRow) {
  for (const char* lines :
       {"ko, ki = split(sddmm.k, 3)\nreorder(sddmm.i_j, ko, ki)\n",
        "ko, ki = split(sddmm.k, 3)\nreorder(sddmm.i_j, ko, ki)\ndecompose_reduction(ko)\n",
        "ko, ki = split(sddmm.k, 3)\nreorder(sddmm.i_j, ko, ki)\ncache_write(sddmm.i_j, register)\n",
        "reorder(sddmm.k, sddmm.i_j)\n", "reorder(sddmm.k, sddmm.i_j)\ndecompose_reduction(sddmm.k)\n"})
    expect_same_results(kSddmm, std::string("sparse_fuse(sddmm, I, J)\nlower()\n") + lines, {{"feat", 4}});
  for (const char* order : {"K, I, J", "I, J, K"})
    expect_same_results(kSddmm, fmt::format("sparse_reorder(sddmm, {})\nsparse_fuse(sddmm, I, J)\n", order),
                        {{"feat", 4}});
}

TEST(NoInternalErrors, NamesOfOneBlockStayApartFromThoseBehindIt) {
  const std::string searched = R"(program p(m, n, nnz):
  O = dense_fixed(1)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  A = buffer(I, J): fp32
  Y = buffer(O): fp32
  Z = buffer(I): fp32
  iterate one(O) "S" as (o):
    Y[o] = A[o, o + 1]
  iterate two(I) "S" as (i):
    Z[i] = A[i, i - 1]
)";
  expect_same_results(searched, "lower()\n", {});
  // A row that is found around init, and again within a loop, both in pieces.
  expect_same_results(kSddmm,
                      "sparse_fuse(sddmm, I, J)\nlower()\no, p = split(sddmm.i_j, 2)\nko, ki = split(sddmm.k, 3)\n"
                      "reorder(o, p, ki, ko)\n",
                      {{"feat", 4}});
}

TEST(NoInternalErrors, NamesOfInitStayApartFromThoseBehindIt) {
  const std::string program = R"(program p(m, n, nnz):
  O = dense_fixed(1)
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  A = buffer(I, J): fp32
  Y = buffer(O): fp32
  Z = buffer(O): fp32
  iterate one(O, I) "SR" as (o, i):
    init:
      Y[o] = A[o, 1]
      Z[o] = A[o, 2]
    Y[o] = Y[o] + 1.0
  iterate two(O, I) "SR" as (o, i):
    init:
      Y[o] = A[o, 3] + Y[o]
      Z[o] = A[o, 4] + Z[o]
    Y[o] = Y[o] + 2.0
)";
  expect_same_results(program, "lower()\n", {});
}

// A name that is taken becomes one that the moved statements do not have either.
TEST(NoInternalErrors, NamesOfAMovedNestStayApart) {
  const std::string program = program_in_csr(R"(  K = dense_fixed(4)
  A = buffer(I, J): fp32
  Y = buffer(I): fp32
  Z = buffer(I): fp32
  iterate both(I) "S" as (i):
    iterate one(K) "R" as (k):
      Y[i] = A[i, k + 1]
    iterate two(K) "R" as (k):
      Z[i] = A[i, k // 2] * A[i, i + 1]
)");
  expect_same_results(program, "lower()\n", {});
}

// What is set where it may store nothing has to stay a buffer.
TEST(NoInternalErrors, MemoryThatIsWrittenWhereItMayStoreNothing) {
  const std::string program = program_in_csr(R"(  T = temporary(I, J): fp32
  Y = buffer(I, J): fp32
  iterate one(I, J) "SS" as (i, j):
    T[i, j - j] = 2.0
  iterate two(I, J) "SS" as (i, j):
    Y[i, j] = T[i, j]
)");
  expect_refused(program, "lower()\nset_scope(T, register)\n",
                 "set_scope(T): 'T' is written where it may store nothing");
}

// What is copied within a loop is not there around it.
TEST(NoInternalErrors, MemoryStaysAroundWhatNeedsIt) {
  expect_refused(kSddmm,
                 "sparse_fuse(sddmm, I, J)\nlower()\ncache_read(sddmm.k, j_indptr, register)\n"
                 "rfactor(sddmm.k, register)\n",
                 "needs 'j_indptr_local', which is kept within it", {{"feat", 4}});
  const std::string scattered = program_in_csr(R"(  J_ = dense_fixed(n)
  A = buffer(J_): fp32
  Y = buffer(I, J_): fp32
  iterate it(I, J) "SS" as (i, j):
    Y[i, j] = A[j]
)");
  expect_refused(scattered,
                 "lower()\ncache_read(it.j, j_indices, shared)\ncache_write(it.j, register)\n"
                 "jo, ji = split(it_write.j, 2)\ncache_write(it_write.ji, register)\n",
                 "is kept within it");
}

// Init at a spatial axis below a reduction: of several positions it would have no loops of its own there. Of one it
// stays where the copy is that says its place.
TEST(NoInternalErrors, InitBelowAReduction) {
  const auto program = [](const char* params, const char* length) {
    return fmt::format(R"(program p({}):
  I = dense_fixed({})
  J = sparse_fixed(I, n, 3, indices=j_indices)
  N = dense_fixed(n)
  K = dense_fixed(4)
  A = buffer(I, J): fp32
  Y = buffer(N, K): fp32
  iterate f(I, J, K) "RSS" as (e, j, k):
    init:
      Y[j, k] = 0.0
    Y[j, k] = Y[j, k] + A[e, j]
)",
                       params, length);
  };
  expect_contains(refusal([&] { stage2_of(program("m, n", "m"), "lower()\n"); }),
                  "init of 'f' runs once for each point of the spatial axes, and 'J' hangs on 'I', whose iterator 'e' "
                  "is a reduction",
                  "rows");
  const std::vector<int32_t> indices{0, 2, 4};  // 4: nothing
  for (const char* lines : {"", "cache_read(f.j, j_indices, register)\n", "b = blockize(f.k)\n",
                            "unroll(f.e)\nb = blockize(f.k)\ncache_read(b.j, j_indices, register)\n"})
    expect_same_results_on(ell(1, 4, 3, indices), program("n", "1"), std::string("lower()\n") + lines);
}

// The rows of fused axes are named within the reductions, and partial sums are added up behind those.
TEST(NoInternalErrors, PartialSumsAreAddedWhereFusedAxesSay) {
  const std::string program = program_in_csr(R"(  K = dense_fixed(7)
  L = dense_fixed(3)
  X = buffer(L): fp32
  Y = buffer(I, J): fp32
  iterate it(I, J, K, L) "SSRR" as (i, j, k, l):
    Y[i, j] = Y[i, j] + X[l]
)");
  expect_same_results(program, "sparse_fuse(it, I, J)\nlower()\nreorder(it.i_j, it.k, it.l)\nrfactor(it.l, register)\n",
                      {});
}

// Memory that comes to stand around all loops, as what was around it is gone, is seen by all that access it.
TEST(NoInternalErrors, MemoryOfPartialSumsWithABoundLoop) {
  const std::string program = R"(program p(m):
  O = dense_fixed(1)
  K = dense_fixed(m)
  X = buffer(O, K): fp32
  Y = buffer(O): fp32
  iterate it(O, K) "SR" as (o, k):
    Y[o] = Y[o] + X[o, k]
)";
  expect_same_results(program,
                      "lower()\nko, ki = split(it.k, 2)\nko_block = blockize(it.ko)\nrfactor(it.ki, register)\n"
                      "bind(it_zero.ki, blockIdx.y)\n",
                      {{"m", 5}});
}

// A copy that is made within the reductions is no factor of their sum.
TEST(NoInternalErrors, PartialSumsOfWhatIsCopiedFirst) {
  for (const char* lines : {"cache_read(sddmm.j, X, register)\nrfactor(sddmm.k, register)\n",
                            "cache_read(sddmm.k, A, register)\nrfactor(sddmm.k, register)\n",
                            "ko, ki = split(sddmm.k, 2)\ncache_read(ko, A, register)\nrfactor(ki, register)\n",
                            "cache_read(sddmm.j, A, register)\nrfactor(sddmm.k, register)\n"})
    expect_same_results(kSddmm, std::string("lower()\n") + lines, {{"feat", 4}});
}

TEST(NoInternalErrors, PartialSumsOfIntegersAreIntegers) {
  const std::string program = R"(program p(m):
  I = dense_fixed(m)
  K = dense_fixed(4)
  X = buffer(I, K): int32
  S = buffer(I): int32
  iterate it(I, K) "SR" as (i, k):
    init:
      S[i] = 0
    S[i] = S[i] + X[i, k] * 3
)";
  expect_same_results(program, "lower()\nrfactor(it.k, register)\n", {{"m", 3}});
  EXPECT_NE(stage2_of(program, "lower()\nrfactor(it.k, register)\n").find("allocate S_partial[4]: int32"),
            std::string::npos);
}

TEST(NoInternalErrors, PrefetchingPassesByWhatIsCopiedFirst) {
  for (const char* lines : {"annotate(csrmm.j, prefetch, 2)\ncache_read(csrmm.j, j_indices, shared)\n",
                            "cache_read(csrmm.j, j_indices, register)\nannotate(csrmm.j, prefetch, 2)\n",
                            "cache_read(csrmm.j, B, register)\nannotate(csrmm.j, prefetch, 2)\n"})
    expect_same_results(kSpmm, std::string("lower()\n") + lines, {{"feat", 3}});
  const std::string gathered = program_of_rows(R"(  V = buffer(I): int32
  Y = buffer(U, I): fp32
  X = buffer(U, I): fp32
  iterate it(I, U) "RS" as (i, u) where V[i] >= 0, V[i] < m:
    Y[u, V[i]] = X[u, V[i]]
)");
  expect_same_results(gathered, "lower()\nannotate(it.u, prefetch, 16)\ncache_read(it.u, V, shared)\n", {{"m", 3}});
}

// Memory around all loops is one worker's, in one phase.
TEST(NoInternalErrors, TemporariesBesideSharedLoops) {
  const std::string program = program_of_rows(R"(  X = buffer(I, U): fp32
  T = temporary(U): fp32
  Z = buffer(I, U): fp32
  iterate one(U) "S" as (u):
    T[u] = X[0, u]
  iterate other(I, U) "SS" as (a, b):
    X[a, b] = X[a, b] + 1.0
  iterate two(I, U) "SS" as (i, u):
    Z[i, u] = T[u]
)");
  expect_same_results(program, "lower()\nset_scope(T, register)\n", {{"m", 3}});
  for (const char* line : {"parallel(two.i)\n", "parallel(one.u)\n", "parallel(other.a)\n"}) {
    const std::string says = "lies around all loops in memory of one worker, and loop '";
    expect_refused(program, fmt::format("lower()\n{}set_scope(T, register)\n", line), says, {{"m", 3}});
    expect_refused(program, fmt::format("lower()\nset_scope(T, register)\n{}", line), says, {{"m", 3}});
  }
  // Bound loops are one worker's, too.
  for (const char* line : {"bind(two.i, blockIdx.x)\n", "bind(two.u, threadIdx.x)\n", "bind(other.b, threadIdx.x)\n"}) {
    expect_same_results(program, fmt::format("lower()\n{}set_scope(T, register)\n", line), {{"m", 3}});
    expect_same_results(program, fmt::format("lower()\nset_scope(T, register)\n{}", line), {{"m", 3}});
  }
  const std::string sums = program_of_rows(R"(  X = buffer(I, U): fp32
  S = temporary(I): fp32
  Z = buffer(I): fp32
  iterate clear(I) "S" as (a):
    S[a] = 0.0
  iterate sum(I, U) "SR" as (i, u):
    S[i] = S[i] + X[i, u]
  iterate two(I) "S" as (j):
    Z[j] = S[j]
)");
  expect_refused(sums, "lower()\natomic(sum)\nset_scope(S, register)\n",
                 "sums in it are atomic, of several workers; keep it before that", {{"m", 3}});
}

}  // namespace
}  // namespace weft::sparse::test::sound_schedules
