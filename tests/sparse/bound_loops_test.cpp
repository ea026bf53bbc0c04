// Loops that are bound to threads and CTAs: each of those has elements of its own wherever nobody waits for another.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sparse/programs.h"
#include "tests/sparse/refusals.h"
#include "weft/sparse.h"

namespace weft::sparse::test {
namespace {

std::string cuda_of(const std::string& program, const std::string& schedule) {
  return compile(parse(program.c_str()), "lower()\n" + schedule, Device::cpu(), {.stop_after = "generate"})
      .text("cuda");
}

void expect_refused(const std::string& program, const std::string& schedule, const std::string& says) {
  expect_contains(refusal([&] { cuda_of(program, schedule); }), says, schedule);
}

constexpr const char* kRows = R"(program rows(k, r, n):
  K = dense_fixed(k)
  R = dense_fixed(r)
  N = dense_fixed(n)
  X = buffer(R, N): fp32
  Y = buffer(K, N): fp32
  Z = buffer(K, N): fp32
  iterate sums(K, R, N) "SRS" as (k0, r0, n0):
    init:
      Y[k0, n0] = 0.0
    Y[k0, n0] = Y[k0, n0] + X[r0, n0]
)";

// Init has loops of its own, which have to be bound like those that add to what it has cleared.
TEST(BoundLoops, ClearWhatTheirThreadsAddTo) {
  const std::string bound = "decompose_reduction(sums.r0)\nbind(sums.k0, threadIdx.x)\nbind(sums.n0, threadIdx.y)\n";
  expect_refused(kRows, bound,
                 "line 4: rows: Y[k0, n0] may be one element that different threads along threadIdx.y access within "
                 "loops over threads");
  EXPECT_EQ(refusal([&] { cuda_of(kRows, bound + "bind(sums_init.n0, threadIdx.y)\n"); }), "");
  // Outside of loops over threads, all of them wait.
  EXPECT_EQ(refusal([&] {
              cuda_of(kRows, "decompose_reduction(sums.r0)\nbind(sums.k0, blockIdx.x)\nbind(sums.n0, threadIdx.y)\n");
            }),
            "");
}

// A loop bound within a loop over threads is run through again and again without a barrier.
TEST(BoundLoops, AccessElementsOfTheirOwnInAllIterationsBetweenThem) {
  const auto program = [](const char* index) {
    return fmt::format(R"(program moved(m, n):
  I = dense_fixed(m)
  J = dense_fixed(4)
  K = dense_fixed(n)
  L = dense_fixed(n + 4)
  X = buffer(I, L): fp32
  Y = buffer(I, L): fp32
  iterate add(I, J, K) "S{1}S" as (i, j, k):
    Y[i, {0}] = Y[i, {0}] + X[i, k]
)",
                       index, index == std::string("k") ? "R" : "S");
  };
  const std::string threads = "bind(add.i, threadIdx.y)\nbind(add.k, threadIdx.x)\n";
  expect_refused(program("j + k"), threads, "line 3: moved: Y[i, j + k] may be one element that different threads");
  EXPECT_EQ(refusal([&] { cuda_of(program("k"), threads); }), "");
  const std::string ctas = "bind(add.i, blockIdx.x)\nbind(add.k, blockIdx.y)\n";
  expect_refused(program("j + k"), ctas, "line 3: moved: Y[i, j + k] may be one element that different CTAs");
  EXPECT_EQ(refusal([&] { cuda_of(program("k"), ctas); }), "");
  EXPECT_EQ(refusal([&] { cuda_of(program("j + k"), "bind(add.i, blockIdx.x)\nbind(add.k, threadIdx.x)\n"); }), "");
}

// Nobody waits for all CTAs within a kernel: what is bound stands in one of its own, with its memory and nothing else.
TEST(BoundLoops, StandInKernelsOfTheirOwn) {
  const auto num_kernels = [](const std::string& schedule) {
    const std::string text = cuda_of(R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  O = dense_fixed(1)
  X = buffer(I, J): fp32
  T = temporary(O): fp32
  Y = buffer(I, J): fp32
  Z = buffer(I, J): fp32
  iterate sums(O, I, J) "SRR" as (o, i, j):
    init:
      T[o] = 0.0
    T[o] = T[o] + X[i, j]
  iterate first(I, J) "SS" as (i, j):
    Y[i, j] = X[i, j] * T[0]
  iterate second(I, J) "SS" as (i, j):
    Z[i, j] = Y[i, j] + 1.0
)",
                                     schedule);
    int count = 0;
    for (size_t at = 0; (at = text.find("__global__", at)) != text.npos; ++at) ++count;
    return count;
  };
  const std::string memory = "set_scope(T, register)\n";
  EXPECT_EQ(num_kernels(memory), 1);
  EXPECT_EQ(num_kernels("bind(first.i, blockIdx.x)\n"), 3);
  EXPECT_EQ(num_kernels("bind(first.j, threadIdx.x)\n"), 3);
  EXPECT_EQ(num_kernels("bind(second.j, threadIdx.x)\n"), 2);
  EXPECT_EQ(num_kernels(memory + "bind(first.i, threadIdx.x)\n"), 2);
  EXPECT_EQ(num_kernels("bind(second.i, blockIdx.x)\n" + memory), 2);
}

// Memory that each CTA fills for itself may stand before the loop that they share.
TEST(BoundLoops, OfCtasReadWhatEachHasComputedBeforeThem) {
  const auto program = [](const std::string& second, const std::string& more = "") {
    return fmt::format(R"(program p(m, n):
  I = dense_fixed(m)
  J = dense_fixed(n)
  O = dense_fixed(1)
  X = buffer(I, J): fp32
  W = buffer(I): fp32
  T = temporary(O): fp32
  Y = buffer(I, J): fp32
  Z = buffer(I, J): fp32
  iterate sums(O, I, J) "SRR" as (o, i, j):
    init:
      T[o] = 0.0
    T[o] = T[o] + X[i, j]
{}  iterate first(I, J) "SS" as (i, j):
    Y[i, j] = X[i, j] * T[0]
  iterate second(I, J) "SS" as (i, j):
    Z[i, j] = {}
)",
                       more, second);
  };
  const std::string bound = "bind(first.i, blockIdx.x)\n";
  for (const char* scope : {"register", "shared"}) {
    const std::string kept = fmt::format("set_scope(T, {})\n", scope);
    for (const std::string& lines : {kept + bound, bound + kept, kept + bound + "bind(first.j, threadIdx.x)\n",
                                     kept + "bind(first.i, blockIdx.y)\nbind(first.j, blockIdx.x)\n"})
      EXPECT_EQ(refusal([&] { cuda_of(program("Y[i, j]"), lines); }), "") << lines;
    // Both loops stand behind it, in one kernel: each with elements of its own.
    EXPECT_EQ(refusal([&] { cuda_of(program("T[0]"), kept + bound + "bind(second.i, blockIdx.x)\n"); }), "");
    // What another CTA has written, in a loop beside it or outside.
    expect_refused(program("Y[m - 1 - i, j] * T[0]"), kept + bound + "bind(second.i, blockIdx.x)\n",
                   "'Y' may be exchanged between CTAs");
    expect_refused(program("T[0]"), kept + bound, "'Z' is stored outside of a loop that is bound to blockIdx.x");
    // What is read before they write it.
    const std::string behind = "  iterate last(O, I, J) \"SRR\" as (o, i, j):\n    T[o] = T[o] + Y[i, j]\n";
    expect_refused(program("0.0", behind), kept + bound, "'Y' may be exchanged between CTAs");
    expect_refused(program("0.0", "  iterate last(O, I) \"RS\" as (o, i):\n    W[i] = W[i] + T[o]\n"), kept + bound,
                   "'W' is stored outside of a loop that is bound to blockIdx.x");
  }
}

// Two loops after one another: their threads are the same where they have the same numbers.
TEST(BoundLoops, PassElementsOnToLoopsOfTheSameThread) {
  const auto program = [](const char* read) {
    return program_of_matrix(fmt::format(R"(  X = buffer(I, J): fp32
  Y = buffer(I, J): fp32
  Z = buffer(I, J): fp32
  iterate first(I, J) "SS" as (i, j):
    Y[i, j] = X[i, j] * 2.0
  iterate second(I, J) "SS" as (a, b):
    Z[a, b] = {} + 1.0
)",
                                         read));
  };
  const std::string schedule = "compute_at(first, second.a)\nbind(second.a, threadIdx.y)\nbind(first.j, threadIdx.x)\n";
  EXPECT_EQ(refusal([&] { cuda_of(program("Y[a, b]"), schedule + "bind(second.b, threadIdx.x)\n"); }), "");
  // Of threads before it, behind it, and both.
  for (const char* read : {"Y[a, b - 1]", "Y[a, b + 1]", "Y[a, n - 1 - b]"})
    expect_refused(program(read), schedule + "bind(second.b, threadIdx.x)\n",
                   "may be one element that different threads along threadIdx.x access");
  expect_refused(program("Y[a, b]"), schedule, "may be one element that different threads along threadIdx.x access");
}

// Each iteration of the loop outside is right by itself; among several, two threads would write one element.
TEST(BoundLoops, AreAskedAgainWhenLoopsAroundThemChange) {
  constexpr const char* kLeast = R"(program least(m, n):
  E = dense_fixed(m)
  J = sparse_fixed(E, n, 2, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(E): fp32
  Y = buffer(N): fp32
  iterate f(E, J) "RS" as (e, j):
    Y[j] = min(Y[j], A[e])
)";
  EXPECT_EQ(refusal([&] { cuda_of(kLeast, "bind(f.j, threadIdx.x)\n"); }), "");
  EXPECT_EQ(refusal([&] { cuda_of(kLeast, "reorder(f.j, f.e)\n"); }), "");
  expect_refused(
      kLeast, "bind(f.j, threadIdx.x)\nreorder(f.j, f.e)\n",
      "line 3, column 1: reorder(f.j, f.e): 'j' is bound to threadIdx.x: Y[j_indices[e, j]] may be the same element "
      "in two of its iterations");
  // A sum over threads is one at one place.
  expect_refused(kRows, "reorder(sums.n0, sums.r0)\nbind(sums.r0, threadIdx.x)\nreorder(sums.r0, sums.n0)\n",
                 "line 4, column 1: reorder(sums.r0, sums.n0): 'r0' is bound to threadIdx.x: it is a reduction");
}

// What was copied first says where a thread stores as what it was copied from.
TEST(BoundLoops, StoreAtPlacesThatWereCopiedFirst) {
  constexpr const char* kScattered = R"(program p(m, n, nnz):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  A = buffer(I, J): fp32
  Y = buffer(N): fp32
  iterate f(I, J) "RS" as (i, j):
    Y[j] = min(Y[j], A[i, j])
)";
  for (const char* scope : {"register", "global"})
    EXPECT_EQ(refusal([&] {
                cuda_of(kScattered, fmt::format("cache_read(f.j, j_indices, {})\nbind(f.j, threadIdx.x)\n", scope));
              }),
              "");
  // Of all rows at once one place is stored at by several.
  expect_refused(kScattered, "cache_read(f.j, j_indices, register)\nbind(f.i, threadIdx.x)\n", "it is a reduction");
}

// What stores to memory that each thread has for itself is run by all of them, also along axes that it is not bound to:
// what the first thread along x stores, the others read.
TEST(BoundLoops, ThatFillMemoryOfEachThreadReadInAllOfThem) {
  constexpr const char* kKept = R"(program kept(m):
  I = dense_fixed(m)
  K = dense_fixed(8)
  X = buffer(I, K): fp32
  Y = buffer(I, K): fp32
  Z = buffer(I, K): fp32
  iterate first(I, K) "SS" as (i, k):
    Y[i, k] = X[i, k] * 2.0
  iterate second(I, K) "SS" as (a, b):
    Z[a, b] = Z[a, b] + Y[a, b]
)";
  const std::string merged = "compute_at(first, second.b)\n";
  const std::string bound =
      "bind(second.b, threadIdx.y)\nbind(second_read.b, threadIdx.y)\nbind(second_write.b, threadIdx.y)\n";
  expect_refused(kKept, merged + "cache_write(second.a, register)\n" + bound,
                 "Y[a, b] may be one element that different threads along threadIdx.x access");
  // In shared memory the first alone does both.
  EXPECT_EQ(refusal([&] { cuda_of(kKept, merged + "cache_write(second.a, shared)\n" + bound); }), "");
}

// What a thread has added up so far is not what the condition asks for.
TEST(BoundLoops, AddUpWhatDoesNotDependOnTheSum) {
  const std::string filled = program_of_matrix(R"(  X = buffer(I, J): fp32
  Y = buffer(I): fp32
  iterate f(I, J) "SR" as (i, j) where Y[i] < 3.0:
    Y[i] = Y[i] + X[i, j]
)");
  expect_refused(filled, "bind(f.j, threadIdx.x)\n", "'Y' is read elsewhere within");
}

}  // namespace
}  // namespace weft::sparse::test
