// What each thread of a GPU runs: barriers, the first thread's stores, sums over threads, as text.
#include "loop/threads.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "loop/codegen/printers.h"
#include "loop/parse.h"
#include "weft/error.h"

namespace weft::loop {
namespace {

Function kernel_with(const std::string& body) {
  return parse_function(
      "stage3 f(n, m):\n  p = flat(n): int32 in 0 to m\n  A = flat(n * 8): fp32\n  B = flat(n * 8): fp32\n" + body);
}

std::string threads_of(const std::string& body) {
  const Function function = kernel_with(body);
  std::string text;
  for (const Phase& phase : split_phases(function)) text += to_text(thread_body(function, phase));
  return text;
}

void expect_refused(const std::string& body, const std::string& says) {
  try {
    ADD_FAILURE() << "not refused:\n" << threads_of(body);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::unsupported);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

// A row of B in shared memory, read by others, and again for the next row.
TEST(Threads, WaitBetweenWritersAndReadersOfSharedMemory) {
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    allocate row[8]: fp32 in shared\n"
                       "    for k in range(8) [bind=threadIdx.x]:\n      row[k] = B[i * 8 + k]\n"
                       "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = row[7 - k]\n"),
            R"(for i in range(n) [bind=blockIdx.x]:
  allocate row[8]: fp32 in shared
  barrier
  for k in range(8) [bind=threadIdx.x]:
    row[k] = B[i * 8 + k]
  barrier
  for k in range(8) [bind=threadIdx.x]:
    A[i * 8 + k] = row[7 - k]
)");
}

TEST(Threads, DoNotWaitForElementsOfTheirOwn) {
  EXPECT_EQ(
      threads_of("  for i in range(n) [bind=blockIdx.x]:\n    allocate x[32]: fp32 in shared\n"
                 "    for k in range(8) [bind=threadIdx.x]:\n      for u in range(4):\n        x[k * 4 + u] = 0.0\n"
                 "    for j in range(p[i]):\n      for k in range(8) [bind=threadIdx.x]:\n"
                 "        for u in range(4):\n          x[k * 4 + u] = x[k * 4 + 1] + B[k]\n"
                 "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = x[k * 4]\n")
          .find("barrier"),
      std::string::npos);
}

// A loop over rows and columns at once has a row's piece each, as long as rows do not reach into each other.
TEST(Threads, HavePiecesOfTheirOwnInLoopsThatAreFused) {
  const auto pieces_of = [](int step) {
    return fmt::format(
        "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[96]: fp32 in shared\n"
        "    for f in range(8) [bind=threadIdx.x]:\n      for u in range(4):\n"
        "        x[f // 2 * {} + f % 2 * 4 + u] = B[f]\n"
        "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = x[k]\n",
        step);
  };
  EXPECT_NE(threads_of(pieces_of(9)).find("barrier"), std::string::npos);
  EXPECT_NE(threads_of(pieces_of(8)).find("barrier"), std::string::npos);
  expect_refused(pieces_of(7), "'x' in shared memory may be written at one place by two threads of loop 'f'");
}

// A column of x is one thread's in all rows, as long as rows do not reach into each other.
TEST(Threads, DoNotWaitForColumnsOfTheirOwn) {
  const auto rows_of = [](int columns) {
    return threads_of(fmt::format(
        "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[64]: fp32 in shared\n"
        "    for j in range(4):\n      for k in range({0}) [bind=threadIdx.x]:\n        x[j * 8 + k] = B[k]\n"
        "    for j in range(4):\n      for k in range({0}) [bind=threadIdx.x]:\n"
        "        A[i * 64 + j * 16 + k] = x[24 - j * 8 + k]\n",
        columns));
  };
  EXPECT_EQ(rows_of(8).find("barrier"), std::string::npos) << rows_of(8);
  EXPECT_NE(rows_of(9).find("for j in range(4):\n    barrier"), std::string::npos) << rows_of(9);
}

TEST(Threads, WaitInLoopsThatAllRunAlike) {
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    allocate x[8]: fp32 in shared\n"
                       "    for k in range(8) [bind=threadIdx.x]:\n      x[k] = B[k]\n"
                       "    for j in range(p[i]):\n      if j < 3:\n"
                       "        for k in range(8) [bind=threadIdx.x]:\n          A[i * 8 + k] = x[7 - k]\n"
                       "        for k in range(8) [bind=threadIdx.x]:\n          x[k] = A[i * 8 + k]\n"),
            R"(for i in range(n) [bind=blockIdx.x]:
  allocate x[8]: fp32 in shared
  for k in range(8) [bind=threadIdx.x]:
    x[k] = B[k]
  for j in range(p[i]):
    if j < 3:
      barrier
      for k in range(8) [bind=threadIdx.x]:
        A[i * 8 + k] = x[7 - k]
      barrier
      for k in range(8) [bind=threadIdx.x]:
        x[k] = A[i * 8 + k]
)");
}

// A loop that each thread goes through has waited for what was before it. One of the CTA's may be another CTA's alone.
TEST(Threads, HaveWaitedInLoopsThatRunSurely) {
  const auto text_of = [](const std::string& loop, const std::string& behind) {
    const auto threads = [](const std::string& store) {
      return "      for k in range(8) [bind=threadIdx.x]:\n        " + store + "\n";
    };
    return threads_of(
        "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[8]: fp32 in shared\n"
        "    for k in range(8) [bind=threadIdx.x]:\n      x[k] = B[k]\n    for j in " +
        loop + ":\n      allocate y[8]: fp32 in shared\n      allocate z[8]: fp32 in shared\n" +
        threads("y[k] = B[k]") + threads("z[k] = y[7 - k]") + "    for l in " + behind + ":\n" +
        threads("A[(i * 8 + l) * 8 + k] = x[7 - k]"));
  };
  const auto waits_behind = [&](const std::string& loop, const std::string& behind) {
    const std::string text = text_of(loop, behind);
    return text.find("barrier", text.find("k] = y[7 - k]")) != text.npos;
  };
  EXPECT_FALSE(waits_behind("range(4)", "range(8)")) << text_of("range(4)", "range(8)");
  EXPECT_TRUE(waits_behind("range(p[i])", "range(8)"));
  EXPECT_TRUE(waits_behind("range(4) [bind=blockIdx.y]", "range(8) [bind=blockIdx.y]"));
}

// Elements of a buffer that several threads access.
TEST(Threads, WaitForWhatOthersStoreInBuffers) {
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [bind=threadIdx.x]:\n"
                       "      A[i * 8 + k] = 1.0\n    for k in range(8) [bind=threadIdx.x]:\n"
                       "      B[i * 8 + k] = A[i * 8 + 7 - k]\n"),
            R"(for i in range(n) [bind=blockIdx.x]:
  for k in range(8) [bind=threadIdx.x]:
    A[i * 8 + k] = 1.0
  barrier
  for k in range(8) [bind=threadIdx.x]:
    B[i * 8 + k] = A[i * 8 + 7 - k]
)");
}

TEST(Threads, TheFirstStoresWhatAllCompute) {
  EXPECT_EQ(
      threads_of("  for i in range(n) [bind=blockIdx.x]:\n    A[i] = 2.0\n    for k in range(8) [bind=threadIdx.x]:\n"
                 "      B[i * 8 + k] = A[i]\n"),
      R"(for i in range(n) [bind=blockIdx.x]:
  if threadIdx.x == 0:
    A[i] = 2.0
  barrier
  for k in range(8) [bind=threadIdx.x]:
    B[i * 8 + k] = A[i]
)");
  // What no loop shares, one thread of one CTA does.
  EXPECT_EQ(threads_of("  for i in range(n):\n    A[i] = A[i] + 1.0\n"), R"(if blockIdx.x == 0:
  for i in range(n):
    if threadIdx.x == 0:
      A[i] = A[i] + 1.0
)");
}

TEST(Threads, AddUpAReductionInRegistersAndThenTogether) {
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    A[i] = 0.0\n"
                       "    for k in range(8) [reduce, bind=threadIdx.x]:\n      for u in range(2) [reduce]:\n"
                       "        A[i] = A[i] + B[k * 2 + u]\n"),
            R"(allocate weft_sums[32]: fp32 in shared
for i in range(n) [bind=blockIdx.x]:
  if threadIdx.x == 0:
    A[i] = 0.0
  allocate weft_sum_0[1]: fp32 in register
  weft_sum_0[0] = 0.0
  for k in range(8) [bind=threadIdx.x]:
    for u in range(2) [reduce]:
      weft_sum_0[0] = weft_sum_0[0] + B[k * 2 + u]
  weft_sum_0[0] = its sum over the cta
  if threadIdx.x == 0:
    A[i] = A[i] + weft_sum_0[0]
)");
  // Rows of threads go at their own pace: lanes of a warp alone come together.
  EXPECT_EQ(threads_of("  for i in range(n) [bind=threadIdx.y]:\n    allocate s[1]: fp32 in register\n    s[0] = 0.0\n"
                       "    for k in range(8) [reduce, bind=threadIdx.x]:\n      s[0] = s[0] + B[i * 8 + k]\n"
                       "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = s[0]\n"),
            R"(if blockIdx.x == 0:
  for i in range(n) [bind=threadIdx.y]:
    allocate s[1]: fp32 in register
    s[0] = 0.0
    allocate weft_sum_0[1]: fp32 in register
    weft_sum_0[0] = 0.0
    for k in range(8) [bind=threadIdx.x]:
      weft_sum_0[0] = weft_sum_0[0] + B[i * 8 + k]
    weft_sum_0[0] = its sum over the warp
    s[0] = s[0] + weft_sum_0[0]
    for k in range(8) [bind=threadIdx.x]:
      A[i * 8 + k] = s[0]
)");
}

// Each with the conditions that hold for it.
TEST(Threads, AddUpASumForEachIterationOfSpatialLoopsWithin) {
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n"
                       "      allocate s[2]: fp32 in register\n"
                       "      for k in range(8) [reduce, bind=threadIdx.x]:\n        for e in range(2) [unroll]:\n"
                       "          if i * 8 + e * 4 + r < m:\n            for v in range(3) [reduce]:\n"
                       "              s[e] = s[e] + B[e * 8 + k]\n"),
            R"(for i in range(n) [bind=blockIdx.x]:
  for r in range(4) [bind=threadIdx.y]:
    allocate s[2]: fp32 in register
    allocate weft_sum_0[2]: fp32 in register
    for e in range(2) [unroll]:
      weft_sum_0[e] = 0.0
    for k in range(8) [bind=threadIdx.x]:
      for e in range(2) [unroll]:
        if i * 8 + e * 4 + r < m:
          for v in range(3) [reduce]:
            weft_sum_0[e] = weft_sum_0[e] + B[e * 8 + k]
    for e in range(2) [unroll]:
      weft_sum_0[e] = its sum over the warp
    for e in range(2) [unroll]:
      if i * 8 + e * 4 + r < m:
        s[e] = s[e] + weft_sum_0[e]
)");
}

// Those that no lane of a warp misses are told apart: a launch's threads along y end with the loop that is bound to
// them, and nothing around the sum is asked by some threads alone.
TEST(Threads, AddUpWithWholeWarpsWhereAllOfThemCome) {
  const auto sums = [](const std::string& around, const std::string& rows, std::array<int, 3> threads,
                       const std::string& within = "for j in range(m)") {
    Launches launches = split_threads(split_launches(
        kernel_with("  for i in range(n) [bind=blockIdx.x]:\n    if " + around + ":\n      for r in range(" + rows +
                    ") [bind=threadIdx.y]:\n        allocate s[1]: fp32 in register\n        s[0] = 0.0\n"
                    "        " +
                    within +
                    ":\n          for k in range(8) [reduce, bind=threadIdx.x]:\n            s[0] = s[0] + B[i * 8 + "
                    "k]\n        A[i * 8 + r] = s[0]\n")));
    launches.phases[0].threads = threads;
    const std::string code = cuda_module({launches});
    return code.substr(code.find("extern \"C\""));
  };
  constexpr const char *kWhole = "= weft_whole_warp<WeftSum>(", *kAny = "= weft_warp<WeftSum>(";
  EXPECT_NE(sums("i * 8 < m", "4", {8, 4, 1}).find(kWhole), std::string::npos);
  EXPECT_NE(sums("i * 8 < m", "8", {8, 4, 1}).find(kWhole), std::string::npos);
  EXPECT_NE(sums("i * 8 < m", "4", {}).find(kAny), std::string::npos) << "any launch";
  EXPECT_NE(sums("i * 8 < m", "2", {8, 2, 1}).find(kAny), std::string::npos) << "half of a warp";
  EXPECT_NE(sums("i * 8 < m", "6", {8, 4, 1}).find(kAny), std::string::npos) << "two rows are left";
  EXPECT_NE(sums("i * 8 < m", "m", {8, 4, 1}).find(kAny), std::string::npos) << "any number of rows";
  EXPECT_NE(sums("p[i] < m", "4", {8, 4, 1}).find(kAny), std::string::npos) << "what memory says";
  EXPECT_NE(sums("i * 8 < m", "4", {8, 4, 1}, "for j in range(p[i])").find(kAny), std::string::npos) << "a row's";
  EXPECT_NE(sums("i * 8 < m", "4", {8, 4, 1}, "if r < m").find(kAny), std::string::npos) << "some rows alone";
}

// Sums of two loops lie side by side, each at a place of its own.
TEST(Threads, AddUpASumForEachIterationOfTwoLoops) {
  const std::string text = threads_of(
      "  for i in range(n) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n"
      "      allocate s[6]: fp32 in register\n      for k in range(8) [reduce, bind=threadIdx.x]:\n"
      "        for d in range(2):\n          for e in range(3):\n"
      "            s[d * 3 + e] = s[d * 3 + e] + B[e * 8 + k]\n");
  EXPECT_NE(text.find("allocate weft_sum_0[6]: fp32"), text.npos) << text;
  EXPECT_NE(text.find("weft_sum_0[d * 3 + e] = its sum over the warp"), text.npos) << text;
}

// A sum's target is accessed where its loop would: there may be no such element elsewhere.
TEST(Threads, AddUpWhereTheConditionsOfTheSumHold) {
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    for k in range(m) [reduce, bind=threadIdx.x]:\n"
                       "      if i - 1 >= 0:\n        A[i - 1] = max(A[i - 1], B[k])\n"),
            R"(allocate weft_sums[32]: fp32 in shared
for i in range(n) [bind=blockIdx.x]:
  allocate weft_sum_0[1]: fp32 in register
  weft_sum_0[0] = -inf
  for k in range(m) [bind=threadIdx.x]:
    if i - 1 >= 0:
      weft_sum_0[0] = max(weft_sum_0[0], B[k])
  weft_sum_0[0] = its maximum over the cta
  if i - 1 >= 0:
    if threadIdx.x == 0:
      A[i - 1] = max(A[i - 1], weft_sum_0[0])
)");
  // Where some iterations alone come to the sum, or there may be none of them at all: if any of the threads' did.
  for (const char* way : {"for k in range(m) [reduce, bind=threadIdx.x]:\n      if i + k < 1:\n        ",
                          "for k in range(i) [reduce, bind=threadIdx.x]:\n      "}) {
    const std::string sum = "A[i - 1] = A[i - 1] + B[k]\n";
    const std::string text = threads_of("  for i in range(n) [bind=blockIdx.x]:\n    " + (way + sum));
    for (const char* part : {"weft_any_0[0] = 1.0\n",
                             "  weft_any_0[0] = its maximum over the cta\n  if 0.0 < weft_any_0[0]:\n"
                             "    if threadIdx.x == 0:\n      A[i - 1] = A[i - 1] + weft_sum_0[0]\n"})
      EXPECT_NE(text.find(part), text.npos) << part << text;
  }
  // The last lanes of a tile, and padding, say nothing of the target.
  EXPECT_EQ(threads_of("  for i in range(n) [bind=blockIdx.x]:\n    for k in range(32) [reduce, bind=threadIdx.x]:\n"
                       "      for o in range((m + 31) // 32) [reduce]:\n        if o * 32 + k < m:\n"
                       "          if p[i] < m:\n            A[i] = A[i] + B[o * 32 + k]\n")
                .find("weft_any"),
            std::string::npos);
}

// What all threads along an axis would do alike, the first does: another one may not read what it has stored.
TEST(Threads, TheFirstRunsALoopThatIsBoundToOtherAxesAlone) {
  const std::string loop = "  for i in range(n) [bind=threadIdx.z]:\n    A[i] = 1.0\n";
  EXPECT_EQ(threads_of(loop + "    allocate s[1]: fp32 in register\n    s[0] = A[i]\n    B[i] = s[0]\n"),
            R"(if blockIdx.x == 0:
  if threadIdx.x == 0:
    for i in range(n) [bind=threadIdx.z]:
      A[i] = 1.0
      allocate s[1]: fp32 in register
      s[0] = A[i]
      B[i] = s[0]
)");
  // Each needs what it keeps for itself.
  EXPECT_EQ(
      threads_of("  for j in range(n) [bind=blockIdx.x]:\n    allocate s[8]: fp32 in register\n"
                 "    for i in range(8) [bind=threadIdx.y]:\n      s[i] = B[i]\n"
                 "    for i in range(8) [bind=threadIdx.y]:\n      for k in range(8) [reduce, bind=threadIdx.x]:\n"
                 "        s[i] = s[i] + B[k]\n"),
      R"(for j in range(n) [bind=blockIdx.x]:
  allocate s[8]: fp32 in register
  for i in range(8) [bind=threadIdx.y]:
    s[i] = B[i]
  for i in range(8) [bind=threadIdx.y]:
    allocate weft_sum_0[1]: fp32 in register
    weft_sum_0[0] = 0.0
    for k in range(8) [bind=threadIdx.x]:
      weft_sum_0[0] = weft_sum_0[0] + B[k]
    weft_sum_0[0] = its sum over the warp
    s[i] = s[i] + weft_sum_0[0]
)");
}

// One pass over a nest, however deep.
TEST(Threads, GoThroughDeepNestsOnce) {
  constexpr size_t kDepth = 40;
  std::string body = "  if n > 3:\n    allocate x[8]: fp32 in shared\n";
  for (size_t d = 0; d < kDepth; ++d) body += std::string(4 + 2 * d, ' ') + fmt::format("for i{} in range(2):\n", d);
  const std::string indent(4 + 2 * kDepth, ' ');
  for (const char* store : {"x[k] = B[k]", "A[k] = x[7 - k]"})
    body += fmt::format("{0}for k in range(8) [bind=threadIdx.x]:\n{0}  {1}\n", indent, store);
  const std::string text = threads_of(body);
  size_t barriers = 0;
  for (size_t at = 0; (at = text.find("barrier", at)) != text.npos; ++at) ++barriers;
  EXPECT_EQ(barriers, 2U) << text;
}

// Barriers that one iteration needs may stand elsewhere than those that the next one needs.
TEST(Threads, WaitForWhatAnyIterationBeforeHasDone) {
  const auto step = [](const std::string& stores) {
    return "      for k in range(8) [bind=threadIdx.x]:\n        " + stores + "\n";
  };
  std::string body = "  if n > 3:\n";
  for (const char* name : {"a", "b", "c", "d", "e"}) body += fmt::format("    allocate {}[8]: fp32 in shared\n", name);
  body += "    for j in range(n):\n";
  for (const char* stores : {"a[k] = e[7 - k]", "c[k] = d[7 - k]", "A[k] = a[7 - k]", "b[k] = B[k]",
                             "d[k] = B[k]\n        e[k] = B[k]", "A[k] = b[7 - k]", "A[k] = c[7 - k]"})
    body += step(stores);
  const std::string text = threads_of(body);
  // What the first loop reads was written in the fifth.
  EXPECT_NE(text.find("barrier\n      for k in range(8) [bind=threadIdx.x]:\n        a[k] = e[7 - k]"), text.npos)
      << text;
}

TEST(Threads, AreRefusedWhereABarrierWouldBeDivergent) {
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[8]: fp32 in shared\n"
      "    for k in range(8) [bind=threadIdx.x]:\n      x[k] = B[k]\n      A[i * 8 + k] = x[7 - k]\n",
      "a barrier there would be divergent");
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [bind=threadIdx.x]:\n"
      "      allocate x[8]: fp32 in shared\n      x[k] = B[k]\n      A[i * 8 + k] = x[k]\n",
      "'x' is in shared memory within loop 'k', which threads share");
  expect_refused(
      "  for i in range(n) [parallel]:\n    allocate x[8]: fp32 in shared\n    x[0] = B[i]\n    A[i] = x[0]\n",
      "'x' is in shared memory within a parallel loop");
}

TEST(Threads, AreRefusedWhereTwoWriteOneElement) {
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[8]: fp32 in shared\n"
      "    for k in range(8) [bind=threadIdx.x]:\n      x[k // 2] = B[k]\n",
      "'x' in shared memory may be written at one place by two threads of loop 'k'");
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [bind=threadIdx.x]:\n      A[i] = A[i] + B[k]\n",
      "'A' is stored at i in every iteration of loop 'k'");
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    A[i] = 0.0\n  for i in range(n) [bind=blockIdx.x]:\n"
      "    for j in range(8) [bind=blockIdx.y]:\n      A[i * 8 + j] = 0.0\n    B[i] = 1.0\n",
      "'B' is stored outside of a loop that is bound to blockIdx.y");
}

// Where it was copied from says which thread's a place is.
TEST(Threads, StoreAtPlacesThatWereCopied) {
  const auto copied = [](const char* place) {
    return fmt::format(
        "  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [bind=threadIdx.x]:\n"
        "      allocate c[1]: int64 in register\n      c[0] = p[{}]\n      A[c[0]] = 1.0\n",
        place);
  };
  EXPECT_NO_THROW(threads_of(copied("i * 8 + k")));
  expect_refused(copied("i"), "'A' is stored at c[0] in every iteration of loop 'k'");
}

TEST(Threads, AreRefusedWhereCtasWouldExchangeValues) {
  const std::string stores = "    for i in range(n) [bind=blockIdx.x]:\n      B[i] = A[7 - i]\n";
  expect_refused("  for j in range(3):\n" + stores + "    for i in range(n) [bind=blockIdx.x]:\n      A[i] = B[i]\n",
                 "'A' may be exchanged between CTAs");
  EXPECT_NO_THROW(
      threads_of("  for j in range(3):\n    for i in range(n) [bind=blockIdx.x]:\n      A[i] = A[i] + B[j]\n"));
  expect_refused("  for j in range(3):\n    for i in range(n) [bind=blockIdx.x]:\n      A[j * 2 + i] = B[j]\n",
                 "'A' may be exchanged between CTAs");
  // Sums that are atomic meet in any order, but what they have come to is nobody's to read.
  const std::string sum =
      "  for j in range(3):\n    for i in range(n) [bind=blockIdx.x]:\n      atomic A[p[i]] = A[p[i]] + 1.0\n";
  EXPECT_NO_THROW(threads_of(sum));
  expect_refused(sum + "      B[i] = A[p[i]]\n", "'A' may be exchanged between CTAs");
  // A loop over CTAs that runs once has elements of its own, whatever it stands beside.
  const std::string own = "  for i in range(n) [bind=blockIdx.x]:\n    for k in range(m):\n      A[i * m + k] = t[0]\n";
  const std::string memory = "  allocate t[1]: fp32 in register\n  t[0] = ";
  EXPECT_NO_THROW(threads_of(memory + "B[0]\n" + own));
  expect_refused(memory + "A[0]\n" + own, "'A' may be exchanged between CTAs");
  expect_refused(memory + "B[0]\n" + own + "  for j in range(n) [bind=blockIdx.x]:\n    B[j] = A[j * m] + t[0]\n",
                 "'A' may be exchanged between CTAs");
  EXPECT_NO_THROW(
      threads_of(memory + "real(p[0])\n" + own + "  for j in range(n) [bind=blockIdx.x]:\n    B[j] = t[0]\n"));
  // Shared memory around them is each CTA's own.
  const auto kept = [](const char* written, const char* read) {
    return fmt::format(
        "  allocate t[8]: fp32 in shared\n  for u in range(8){}:\n    t[u] = real(p[u])\n"
        "  for i in range(8) [bind=blockIdx.x]:\n    for v in range(8):\n      A[i * 8 + v] = t[{}]\n",
        written, read);
  };
  EXPECT_NO_THROW(threads_of(kept("", "v")));
  EXPECT_NO_THROW(threads_of(kept(" [bind=blockIdx.x]", "i")));
  expect_refused(kept(" [bind=blockIdx.x]", "v"),
                 "'t' lies in shared memory around loop 'u', whose CTAs write it, and is accessed by others");
  // Two loops over the same axis, beside each other in one nest.
  const auto passed_on = [](const char* index) {
    return fmt::format(
        "  for i in range(n) [bind=blockIdx.x]:\n    for j in range(8) [bind=blockIdx.y]:\n      A[i * 8 + j] = 1.0\n"
        "    for k in range(8) [bind=blockIdx.y]:\n      B[i * 8 + k] = A[i * 8 + {}]\n",
        index);
  };
  expect_refused(passed_on("(7 - k)"), "'A' may be exchanged between CTAs");
  EXPECT_NO_THROW(threads_of(passed_on("k")));
}

TEST(Threads, AreRefusedWhereRegistersAreTakenForOneMemory) {
  const std::string sums =
      "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[8]: fp32 in register\n"
      "    for k in range(8) [bind=threadIdx.x]:\n      x[k] = B[k]\n";
  expect_refused(sums + "    for k in range(8):\n      A[i] = x[k]\n", "'x' lies in registers around loop 'k'");
  expect_refused(sums + "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = x[7 - k]\n",
                 "'x' lies in registers around loop 'k'");
  EXPECT_NO_THROW(threads_of(sums + "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = x[k]\n"));
  // One element for all iterations of a thread.
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[1]: fp32 in register\n"
      "    for k in range(8) [bind=threadIdx.x]:\n      x[0] = B[k]\n"
      "    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = x[0]\n",
      "'x' lies in registers around loop 'k'");
}

TEST(Threads, AreRefusedSumsThatAreNone) {
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [reduce, bind=threadIdx.x]:\n"
      "      A[i] = A[i] * B[k]\n",
      "supported: one sum");
  expect_refused(
      "  for i in range(n) [bind=blockIdx.x]:\n    for k in range(8) [reduce, bind=threadIdx.y]:\n"
      "      A[i] = A[i] + B[k]\n",
      "supported: threadIdx.x");
  expect_refused(
      "  for i in range(n) [parallel]:\n    for k in range(8) [bind=threadIdx.x]:\n      A[i * 8 + k] = B[k]\n",
      "within a parallel loop, which takes all threads");
}

TEST(Threads, SharedMemoryIsWhatTheLaunchGives) {
  const Function function = kernel_with(
      "  for i in range(n) [bind=blockIdx.x]:\n    allocate x[3]: fp32 in shared\n    allocate y[8]: fp64 in shared\n"
      "    for k in range(3) [bind=threadIdx.x]:\n      x[k] = B[k]\n      y[k] = B[k]\n");
  EXPECT_EQ(shared_bytes(function.body), 16 + 64);
  const std::string code = cuda_module({split_threads(split_launches(function))});
  for (const char* part : {"// Launched with 80 bytes of shared memory.", "(float*)(weft_shared_memory() + 0);",
                           "(double*)(weft_shared_memory() + 16);", "__syncthreads();"})
    EXPECT_NE(code.find(part), code.npos) << part << "\n" << code;
  EXPECT_THROW(cuda_module({split_threads(split_launches(
                   kernel_with("  for i in range(n) [bind=blockIdx.x]:\n    allocate x[25345]: fp32 in shared\n"
                               "    for k in range(3) [bind=threadIdx.x]:\n      x[k] = B[k]\n")))}),
               Error);
}

}  // namespace
}  // namespace weft::loop
