// Each primitive: before and after as text, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "sparse/operators/gather_schedules.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse.h"

namespace weft::sparse::test {
namespace {

Operator lowered(const std::string& schedule, const char* program = kSpmmProgram,
                 const std::map<std::string, int64_t>& set = {}) {
  return compile(parse(program), schedule, Device::cpu(), {.set = set, .stop_after = "schedule stage II"});
}

// The loops alone.
std::string loops(const std::string& schedule, const char* program = kSpmmProgram,
                  const std::map<std::string, int64_t>& set = {}) {
  const std::string text = lowered(schedule, program, set).text("stage2");
  return text.substr(text.find("  for "));
}

TEST(Primitives, SplitMakesTwoLoopsAndAGuard) {
  EXPECT_EQ(loops("lower()\nko, ki = split(csrmm.k, 4)\n"),
            R"(  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      for ko in range((feat + 3) // 4):
        for ki in range(4):
          if ko * 4 + ki < feat:
            block csrmm:
              init:
                C[i, ko * 4 + ki] = 0.0
              C[i, ko * 4 + ki] = C[i, ko * 4 + ki] + A[i, j] * B[j_indices[i, j], ko * 4 + ki]
)");
}

TEST(Primitives, SplitNeedsNoGuardWhereTheFactorDivides) {
  EXPECT_EQ(loops("lower()\nko, ki = split(csrmm.k, 4)\n", kSpmmProgram, {{"feat", 8}}).find("if "), std::string::npos);
  EXPECT_NE(loops("lower()\nko, ki = split(csrmm.k, 4)\n", kSpmmProgram, {{"feat", 9}}).find("if "), std::string::npos);
}

TEST(Primitives, FuseMakesOneLoopOfTwo) {
  EXPECT_EQ(loops("lower()\nko, ki = split(csrmm.k, 4)\nkf = fuse(ko, ki)\n", kSpmmProgram, {{"feat", 8}}),
            R"(  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      for kf in range(8):
        block csrmm:
          init:
            C[i, kf // 4 * 4 + kf % 4] = 0.0
          C[i, kf // 4 * 4 + kf % 4] = C[i, kf // 4 * 4 + kf % 4] + A[i, j] * B[j_indices[i, j], kf // 4 * 4 + kf % 4]
)");
}

TEST(Primitives, ReorderPutsInitWhereItBelongs) {
  EXPECT_EQ(loops("lower()\nreorder(csrmm.k, csrmm.j)\n"),
            R"(  for i in range(m):
    for k in range(feat):
      for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
        block csrmm:
          init:
            C[i, k] = 0.0
          C[i, k] = C[i, k] + A[i, j] * B[j_indices[i, j], k]
)");
}

TEST(Primitives, CacheWriteKeepsSumsApart) {
  EXPECT_EQ(loops("lower()\nreorder(csrmm.k, csrmm.j)\ncache_write(csrmm.k, register)\n"),
            R"(  for i in range(m):
    for k in range(feat):
      allocate C_local[1]: fp32 in register
      for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
        block csrmm:
          init:
            C_local[0] = 0.0
          C_local[0] = C_local[0] + A[i, j] * B[j_indices[i, j], k]
      block csrmm_write:
        C[i, k] = C_local[0]
)");
}

TEST(Primitives, CacheReadFetchesWhatIsReadAgain) {
  EXPECT_EQ(loops("lower()\ncache_read(sddmm.i, X, register)\n", kSddmmProgram, {{"feat", 4}}),
            R"(  for i in range(m):
    allocate X_local[4]: fp32 in register
    for k in range(4):
      block sddmm_fetch:
        X_local[k] = X[i, k]
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      for k in range(4) [reduce]:
        block sddmm:
          init:
            O[i, j] = 0.0
          O[i, j] = O[i, j] + A[i, j] * (X_local[k] * Y[j_indices[i, j], k])
)");
}

TEST(Primitives, RfactorTakesAFactorOutOfTheSum) {
  EXPECT_EQ(loops("lower()\nrfactor(sddmm.k, register)\nvectorize(sddmm_sum.k_sum)\n", kSddmmProgram, {{"feat", 4}}),
            R"(  for i in range(m):
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      allocate O_partial[4]: fp32 in register
      for k in range(4):
        block sddmm_zero:
          O_partial[k] = 0.0
      for k in range(4):
        block sddmm:
          O_partial[k] = O_partial[k] + X[i, k] * Y[j_indices[i, j], k]
      for k_sum in range(4) [reduce, vectorize]:
        block sddmm_sum:
          init:
            O[i, j] = 0.0
          O[i, j] = O[i, j] + A[i, j] * O_partial[k_sum]
)");
}

// A condition that stands within the reductions also holds for the sum: rows beyond the last are none.
TEST(Primitives, RfactorKeepsConditionsOfSpatialPoints) {
  const std::string text = loops(
      "decompose_format(csrmm, A, bsr(2))\nlower()\nreorder(csrmm.ii, csrmm.k, csrmm.jo)\nrfactor(csrmm.ji, "
      "register)\n");
  const size_t sum = text.find("block csrmm_bsr_2_sum");
  const size_t condition = text.rfind("if io * 2 + ii < m", sum), zero = text.rfind("block csrmm_bsr_2:", sum);
  ASSERT_NE(sum, std::string::npos) << text;
  ASSERT_NE(condition, std::string::npos) << text;
  EXPECT_GT(condition, zero) << text;
}

TEST(Primitives, DecomposeReductionMakesInitABlock) {
  EXPECT_EQ(loops("lower()\ndecompose_reduction(csrmm.j)\n"),
            R"(  for i in range(m):
    for k in range(feat):
      block csrmm_init:
        C[i, k] = 0.0
    for j in range(j_indptr[i + 1] - j_indptr[i]) [reduce]:
      for k in range(feat):
        block csrmm:
          C[i, k] = C[i, k] + A[i, j] * B[j_indices[i, j], k]
)");
}

TEST(Primitives, BindLetsThreadsAddUpASum) {
  EXPECT_EQ(loops("lower()\nko, ki = split(sddmm.k, 32)\nreorder(ki, ko)\nbind(sddmm.i, blockIdx.x)\n"
                  "bind(ki, threadIdx.x)\n",
                  kSddmmProgram, {{"feat", 64}}),
            R"(  for i in range(m) [bind=blockIdx.x]:
    for j in range(j_indptr[i + 1] - j_indptr[i]):
      for ki in range(32) [reduce, bind=threadIdx.x]:
        for ko in range(2) [reduce]:
          block sddmm:
            init:
              O[i, j] = 0.0
            O[i, j] = O[i, j] + A[i, j] * (X[i, ko * 32 + ki] * Y[j_indices[i, j], ko * 32 + ki])
)");
}

// Around a loop that threads share, each of its iterations has an element of its own: one thread after another runs
// them on the CPU.
TEST(Primitives, CacheWriteKeepsAnElementForEachThreadWithin) {
  const std::string before = "lower()\nreorder(csrmm.k, csrmm.j)\nbind(csrmm.k, threadIdx.x)\ncache_write(csrmm.i, ";
  for (const char* scope : {"shared", "register"})
    EXPECT_NE(
        loops(before + scope + ")\n", kSpmmProgram, {{"feat", 64}}).find(fmt::format("C_local[64]: fp32 in {}", scope)),
        std::string::npos);
}

TEST(Primitives, SetScopeMovesMemory) {
  EXPECT_NE(loops("lower()\nreorder(csrmm.k, csrmm.j)\ncache_write(csrmm.k, register)\nset_scope(C_local, shared)\n")
                .find("allocate C_local[1]: fp32 in shared"),
            std::string::npos);
}

struct Refused {
  const char* schedule;
  const char* says;
  bool sddmm = false;
  std::map<std::string, int64_t> set = {};
};

TEST(Primitives, RefuseWhatWouldChangeTheResult) {
  const Refused cases[] = {
      {"splitt(csrmm.k, 4)\n", "line 1, column 1: 'splitt' is no primitive; did you mean 'split'?"},
      {"split(csrmm.k, 4)\n", "it changes loops, which there are after lower()"},
      {"lower()\nsparse_fuse(csrmm, I, J)\n",
       "line 2, column 1: sparse_fuse: it changes iterations, of which lower() makes loops"},
      {"lower(3)\n", "lower: the operands are written as lower()"},
      {"lower()\nlower()\n", "lower: it stands once, between the stages"},
      // stage I
      {"sparse_reorder(csrmm, J, I, K)\n", "depends on its parent 'I', which has to stand before it"},
      {"sparse_reorder(csrmm, I, K)\n", "the order names 2 axes; it has to name each of the iteration's 3 once"},
      {"sparse_reorder(foo, I, J, K)\n", "sparse_reorder(foo): there is no such iteration"},
      {"sparse_fuse(csrmm, I)\n", "two axes or more are fused"},
      {"sparse_fuse(csrmm, J, K)\n", "is no chain of axes from a root on"},
      {"sparse_fuse(csrmm, I, K)\n", "axis 'K' does not follow the one before it"},
      {"sparse_fuse(csrmm, Q, K)\n", "axis 'Q' is none of the iteration"},
      {"sparse_fuse(foo, I, J)\n", "there is no such iteration"},
      {"sparse_fuse(csrmm, I, J)\nsparse_reorder(csrmm, I, J, K)\n", "axes of the iteration are fused; reorder before"},
      {"sparse_fuse(csrmm, I, J)\ndecompose_format(csrmm, A, csr())\n",
       "axes of the iteration are fused; decompose before"},
      {"decompose_format(foo, A, csr())\n", "there is no iteration 'foo'"},
      {"decompose_format(csrmm, D, csr())\n", "there is no buffer 'D'"},
      {"decompose_format(csrmm, B, csr())\n", "required: a matrix on a dense and a sparse variable axis"},
      {"decompose_format(csrmm, A)\n", "the operands are written as decompose_format(iteration, buffer, format, ...)"},
      {"decompose_format(csrmm, A, hyb(1))\n",
       "'hyb(1)': its k is ceil(log2(nnz / rows)), and nnz / m is not known before there is a structure; fix these"},
      {"decompose_format(csrmm, A, csb())\n",
       "'csb()' is no format; allowed are csr(), csc(), coo(), dcsr(), dia(), ell(width), bsr(block), dbsr(block), "
       "sr_bcrs(t, g), hyb(c) and hyb(c, k)"},
      {"decompose_format(csrmm, A, dbsr(0))\n", "dbsr(0): blocks are 1 to 256 wide"},
      {"decompose_format(csrmm, A, sr_bcrs(0, 1))\n", "strips have 1 to 256 rows and groups 1 to 4096 tiles"},
      {"decompose_format(csrmm, A, hyb(0, 2))\n", "there are 1 to 64 column partitions"},
      {"decompose_format(csrmm, A, hyb(1, 20))\n", "is 0 to 16"},
      {"decompose_format(csrmm, A, bsr(257))\n", "blocks are 1 to 256 wide"},
      {"decompose_format(csrmm, A, ell(0))\n", "the columns of a row are 1 to"},
      {"decompose_format(csrmm, A, bsr(2), bsr(2))\n", "format bsr_2 stands twice"},
      {"x = decompose_format(csrmm, A, csr())\n", "the operands are written as"},
      {"decompose_format(sddmm, O, bsr(2), bsr(3))\n", "format bsr_3 also stores places of no element", true},
      {"decompose_format(sddmm, A, coo(), coo())\n", "format coo stands twice", true},
      // split, fuse, reorder
      {"lower()\nko, ki = split(csrmm.k, 1)\n", "the factor is 1; 2 to 65536 are allowed"},
      {"lower()\nko, ko = split(csrmm.k, 4)\n", "both loops would be called 'ko'"},
      {"lower()\ni, ki = split(csrmm.k, 4)\n", "'i': a loop cannot be called so"},
      {"lower()\nfeat, ki = split(csrmm.k, 4)\n", "'feat': a loop cannot be called so"},
      {"lower()\nko = split(csrmm.k, 4)\n", "the operands are written as outer, inner = split(loop, factor)"},
      {"lower()\nko, ki = split(csrmm.q, 4)\n", "no loop of that variable is around block 'csrmm'; there are i, j, k"},
      {"lower()\nko, ki = split(csrm.k, 4)\n", "there is no such block; there are csrmm; did you mean 'csrmm'?"},
      {"lower()\nko, ki = split(k, 4)\n", "a loop is named by its iteration and its variable"},
      {"lower()\nunroll(csrmm.k)\nko, ki = split(csrmm.k, 4)\n", "the loop is unroll already", false, {{"feat", 8}}},
      {"lower()\nmaterialise_rows(csrmm.j)\n", "materialise_rows(csrmm.j): no row is searched for within it"},
      {"lower()\nf = fuse(csrmm.i, csrmm.j)\n", "depends on 'i'; fuse the axes with sparse_fuse in stage I"},
      {"lower()\nf = fuse(csrmm.i, csrmm.k)\n", "'k' does not stand directly and alone within 'i'"},
      {"lower()\nf = fuse(csrmm.j, csrmm.k)\n", "one of them is spatial and the other a reduction"},
      {"lower()\nreorder(csrmm.j, csrmm.i)\n", "uses 'i', which would stand within it"},
      {"lower()\nreorder(csrmm.j)\n", "the operands are written as reorder(loop, loop, ...)"},
      {"lower()\nparallel(csrmm.i)\nreorder(csrmm.k, csrmm.j, csrmm.i)\n",
       "'csrmm.i' is parallel already; reorder before"},
      {"lower()\nreorder(csrmm.j, csrmm.j)\n", "'csrmm.j' stands twice"},
      {"lower()\ndecompose_reduction(csrmm.j)\nreorder(csrmm.k, csrmm.i)\n",
       "other statements stand between the loops"},
      // kinds of loops
      {"lower()\nparallel(csrmm.j)\n", "it is a reduction, whose iterations add to the same elements"},
      {"lower()\nparallel(csrmm.k)\n", "it stands within loop 'i'; the team shares an outermost loop"},
      {"lower()\nparallel(csrmm.i)\nparallel(csrmm.i)\n", "the loop is parallel already"},
      {"lower()\nvectorize(csrmm.k)\n", "its extent feat is no literal; split the loop by a literal first"},
      {"lower()\nvectorize(csrmm.k)\n", "its extent is 12; 2, 4, 8, 16, 32 and 64 are allowed", false, {{"feat", 12}}},
      {"lower()\njo, ji = split(csrmm.j, 4)\nvectorize(ji)\n", "it is a reduction; rfactor makes partial sums"},
      {"lower()\nio, ii = split(csrmm.i, 4)\nvectorize(ii)\n", "loop 'j' stands within it; reorder first"},
      {"lower()\nunroll(csrmm.k)\n", "at most 64 are allowed", false, {{"feat", 65}}},
      {"lower()\nbind(csrmm.i, blockIdx.w)\n", "'blockIdx.w' is no thread axis"},
      {"lower()\nbind(csrmm.j, threadIdx.x)\n",
       "it is a reduction, whose iterations add to the same elements; 'k' within"},
      {"lower()\nbind(sddmm.k, threadIdx.y)\n", "it is a reduction", true},
      {"lower()\nbind(sddmm.k, blockIdx.x)\n", "use threadIdx.x, rfactor or atomic", true},
      {"lower()\nbind(csrmm.i, threadIdx.x)\nbind(csrmm.k, threadIdx.x)\n", "loop 'i' is bound to threadIdx.x already"},
      {"lower()\nbind(csrmm.i)\n", "the operands are written as bind(loop, thread)"},
      {"lower()\nannotate(csrmm.j, fast)\n", "'fast' means nothing to any generator"},
      {"lower()\nannotate(csrmm.j, dot)\n", "dot: required is a reduction of two; split one by 2"},
      {"lower()\nannotate(csrmm.k, dot)\n", "dot: required is a reduction of two", false, {{"feat", 2}}},
      {"lower()\nannotate(csrmm.j, prefetch, 0)\n", "prefetching 0 iterations ahead; 1 to 1024 are allowed"},
      {"lower()\nannotate(csrmm.j, prefetch, far)\n", "annotate(loop, word, number)"},
      // memory
      {"lower()\ncache_write(csrmm.k, register)\n",
       "loop 'j' is a reduction; what is added up has to be kept around all of it"},
      {"lower()\ncache_write(csrmm.i, register)\n", "the extent feat of 'k' is no literal"},
      {"lower()\ncache_write(csrmm.i, cache)\n",
       "'cache' is no scope; allowed are register, shared, fragment and global"},
      {"lower()\nreorder(csrmm.k, csrmm.j)\ncache_write(csrmm.k, register)\ncache_write(csrmm.k, register)\n",
       "'C_local' is kept in memory of its own already"},
      {"lower()\ncache_read(csrmm.i, C, register)\n", "writes 'C' itself; use cache_write"},
      {"lower()\ncache_read(csrmm.i, D, register)\n", "there is no buffer 'D'"},
      {"lower()\nreorder(csrmm.k, csrmm.j)\ncache_write(csrmm.k, register)\ndecompose_reduction(csrmm.i)\n",
       "init needs 'C_local', which is kept within the loop"},
      {"lower()\ncache_read(csrmm.i, B, register)\n",
       "the extent j_indptr[i + 1] - j_indptr[i] of 'j' is no literal",
       false,
       {{"feat", 4}}},
      {"lower()\nset_scope(C_local, shared)\n", "no memory of that name was made"},
      // reductions
      {"lower()\nrfactor(csrmm.i, register)\n",
       "it is no reduction; its iterations have elements of their own already"},
      {"lower()\nrfactor(sddmm.k, register)\n", "its extent feat is no literal", true},
      {"lower()\njo, ji = split(csrmm.j, 4)\nrfactor(ji, register)\n", "the spatial loop 'k' stands within reductions"},
      {"lower()\ndecompose_reduction(csrmm.k)\n", "the reduction 'j' stands around it: init would run again and again"},
      {"lower()\ndecompose_reduction(csrmm.j)\ndecompose_reduction(csrmm.i)\n",
       "has no init; it was taken out already"},
  };
  for (const Refused& c : cases)
    expect_contains(refusal([&] { lowered(c.schedule, c.sddmm ? kSddmmProgram : kSpmmProgram, c.set); }), c.says,
                    c.schedule);
}

// A loop over a loaded index may write an element twice.
TEST(Primitives, ParallelIsRefusedWhereWritesMayMeet) {
  const char* scatter = R"(program scatter(e, n):
  E = dense_fixed(e)
  N = dense_fixed(n)
  T = buffer(E): int32
  X = buffer(E): fp32
  Y = buffer(N): fp32
  iterate add(E) "S" as (i) where T[i] >= 0, T[i] < n:
    Y[T[i]] = X[i]
)";
  expect_contains(refusal([&] { lowered("lower()\nparallel(add.i)\n", scatter); }),
                  "Y[T[i]] may be the same element in two of its iterations", "scatter");
  for (const char* index : {"i // 2 + j", "i % 4 + j", "i + j", "i * 3 + j", "max(i, j)"}) {
    const std::string text = fmt::format(R"(program p(n):
  N = dense_fixed(n)
  F = dense_fixed(4)
  X = buffer(N): fp32
  Y = buffer(N): fp32
  iterate move(N, F) "SS" as (i, j) where {0} < n:
    Y[{0}] = X[i] + real(j)
)",
                                         index);
    expect_contains(refusal([&] { lowered("lower()\nparallel(move.i)\n", text.c_str()); }),
                    "may be the same element in two of its iterations", text);
    // A loop that cannot be shared is one worker's, not an error, where no schedule asks for it.
    EXPECT_EQ(loops("", text.c_str()).find("parallel"), std::string::npos) << text;
  }
}

TEST(Primitives, ParallelIsRefusedWhereAnotherIterationIsRead) {
  const char* shift = R"(program shift(n):
  N = dense_fixed(n)
  X = buffer(N): fp32
  iterate move(N) "S" as (i):
    X[i] = X[i + 1]
)";
  expect_contains(refusal([&] { lowered("lower()\nparallel(move.i)\n", shift); }),
                  "X[i + 1] may be written by another of its iterations", "shift");
  EXPECT_EQ(loops("", shift).find("parallel"), std::string::npos);
}

TEST(Primitives, WritesOutsideOfABufferFailUnlessExcluded) {
  const std::string shift = R"(program shift(n):
  N = dense_fixed(n)
  X = buffer(N): fp32
  Y = buffer(N): fp32
  iterate move(N) "S" as (i)WHERE:
    Y[i + 1] = X[i]
)";
  std::string text = shift;
  EXPECT_NE(loops("", text.replace(text.find("WHERE"), 5, "").c_str()).find("fail move: Y[i + 1]"), text.npos);
  text = shift;
  EXPECT_EQ(loops("", text.replace(text.find("WHERE"), 5, " where i + 1 < n").c_str()).find("fail"), text.npos);
}

TEST(Primitives, StagesAndPassesHaveNames) {
  expect_contains(refusal([] { compile(parse(kSpmmProgram), Device::cpu(), {.stop_after = "simplfy"}); }),
                  "stop_after: 'simplfy' is no pass; did you mean 'simplify'?", "pass");
  expect_contains(refusal([] { lowered("").text("stage4"); }), "'stage4' is no stage", "stage");
  expect_contains(refusal([] {
                    compile(parse(kSpmmProgram), Device::cpu(), {.set = {{"fea", 3}}});
                  }),
                  "set: 'fea' is no parameter of program spmm; did you mean 'feat'?", "set");
  expect_contains(refusal([] { compile(parse(kSpmmProgram), Device::cuda_host()); }), "required cuda_host:0", "device");
  expect_contains(refusal([] { lowered("").run({}); }), "was compiled up to 'schedule stage II'", "run");
}

}  // namespace
}  // namespace weft::sparse::test
