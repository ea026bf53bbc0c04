// What the generator makes of loops: vectors, memory in registers, prefetches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include "loop/codegen/printers.h"
#include "loop/parse.h"
#include "loop/threads.h"

namespace weft::loop {
namespace {

// Code of a body over p [n] in 0 to m, A and B [n * 8], without what every module begins with.
std::string code_of(const std::string& body, const std::string& dtype = "fp32") {
  const Function function =
      parse_function("stage3 f(n, m):\n  p = flat(n): int32 in 0 to m\n  A = flat(n * 8): " + dtype +
                     "\n  B = flat(n * 8): " + dtype + "\n" + body);
  const std::string code = cpp_module({split_launches(function)});
  return code.substr(code.find("extern \"C\""));
}

size_t count_of(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

constexpr const char* kCopied =
    "  for i in range(n):\n    allocate x[8]: fp32 in register\n    for u in range(2) [unroll]:\n"
    "      for v in range(4) [vectorize]:\n        x[u * 4 + v] = B[i * 8 + u * 4 + v]\n"
    "    for u in range(2) [unroll]:\n      for v in range(4) [vectorize]:\n        A[i * 8 + u * 4 + v] = x[u * 4 + "
    "v]\n";

TEST(Codegen, MemoryOfWholeVectorsIsAnArrayOfThemAtLiteralPlaces) {
  const std::string code = code_of(kCopied);
  EXPECT_NE(code.find("weft_floatx4 x[2];"), code.npos) << code;
  EXPECT_NE(code.find("x[1] = *(const weft_floatx4*)(B + i * 8 + 4);"), code.npos) << code;
  EXPECT_NE(code.find("*(weft_floatx4*)(A + i * 8) = x[0];"), code.npos) << code;
}

TEST(Codegen, MemoryThatIsAlsoReadByElementIsAPlainArray) {
  const std::string code = code_of(std::string(kCopied) + "    A[i * 8] = x[3]\n");
  EXPECT_NE(code.find("float x[8];"), code.npos) << code;
  EXPECT_EQ(code.find("x[0] ="), code.npos) << code;
}

TEST(Codegen, LanesOfASumAreAddedInPairs) {
  const std::string code = code_of(
      "  for i in range(n):\n    A[i] = 0.0\n    for v in range(8) [reduce, vectorize]:\n      A[i] = A[i] + B[i * 8 + "
      "v]\n");
  EXPECT_NE(code.find("A[i] = A[i] + weft_sum(*(const weft_floatx8*)(B + i * 8));"), code.npos) << code;
}

TEST(Codegen, Bf16IsWidenedAndRoundedInWholeVectors) {
  const std::string code = code_of("  for v in range(8) [vectorize]:\n    A[v] = B[v] + B[v + 8]\n", "bf16");
  EXPECT_NE(code.find("weft_store_bf16(A + 0, (weft_load_bf16x8(B + 0) + weft_load_bf16x8(B + 8)));"), code.npos)
      << code;
}

TEST(Codegen, PrefetchesALineOnceAndOnlyWhereItsPlaceIsThere) {
  const std::string code = code_of(
      "  for i in range(n) [prefetch=3]:\n    for u in range(4) [unroll]:\n      for v in range(8) [vectorize]:\n"
      "        A[i * 8 + v] = A[i * 8 + v] + B[p[i] * 32 + u * 8 + v]\n");
  EXPECT_EQ(count_of(code, "if (i + 3 < n) {"), 1u) << code;
  EXPECT_EQ(count_of(code, "__builtin_prefetch"), 2u) << code;  // 32 floats are two lines
  EXPECT_NE(code.find("__builtin_prefetch(B + (long long)p[i + 3] * 32 + 16);"), code.npos) << code;
}

// Sums of 16 lanes, two products each, in memory of the nest.
std::string dot_of(const std::string& product) {
  return "  for i in range(n):\n    allocate x[16]: fp32 in register\n    for v in range(16) [vectorize]:\n"
         "      x[v] = 0.0\n    for j in range(2) [reduce, dot]:\n      for v in range(16) [vectorize]:\n"
         "        x[v] = x[v] + " +
         product + "\n    for v in range(16) [vectorize]:\n      A[i * 16 + v] = x[v]\n";
}

TEST(Codegen, TwoProductsOfBf16AreOneDotProduct) {
  for (const char* product : {"A[i * 2 + j] * B[j * 32 + v]", "B[j * 32 + v] * A[i * 2 + j]"}) {
    const std::string code = code_of(dot_of(product), "bf16");
    EXPECT_NE(code.find("x[0] = weft_dot_bf16(x[0], A + i * 2, B + 0, B + 32);"), code.npos) << code;
  }
}

TEST(Codegen, ProductsThatAreNoDotProductAreLoops) {
  for (const char* product : {"A[i * 2 + j * 3] * B[j * 32 + v]", "A[i * 2 + j] * B[j * 32 + v * 2]", "A[i * 2 + j]"})
    EXPECT_EQ(code_of(dot_of(product), "bf16").find("weft_dot_bf16"), std::string::npos) << product;
  EXPECT_EQ(code_of(dot_of("A[i * 2 + j] * B[j * 32 + v]")).find("weft_dot_bf16"), std::string::npos) << "fp32";
}

// CUDA of lanes over B, and over A in bf16 where `dtype` says so.
std::string cuda_of(const std::string& body, const std::string& dtype = "fp32") {
  const Function function = parse_function(
      "stage3 f(n, m):\n  p = flat(n): int32 in 0 to m\n  A = flat(n * 8): fp32\n"
      "  B = flat(n * 8): " +
      dtype + "\n" + body);
  const std::string code = cuda_module({split_threads(split_launches(function))});
  return code.substr(code.find("extern \"C\""));
}

TEST(Codegen, CudaReadsLanesInWholeAccessesWhereTheirPlaceAllowsIt) {
  const auto lanes = [](int n, const std::string& at) {
    return fmt::format(
        "  for i in range(n) [parallel]:\n    for v in range({0}) [vectorize]:\n"
        "      A[i * {0} + v] = A[i * {0} + v] + B[{1} + v] * B[{1} + v]\n",
        n, at);
  };
  const std::string code = cuda_of(lanes(4, "p[i] * 8"));
  EXPECT_EQ(count_of(code, "weft_load<"), 1u) << code;  // A is written, B's lanes are read once
  EXPECT_NE(code.find("weft_load<4, 4>(weft_lanes_0, B + (long long)p[i] * 8);"), code.npos) << code;
  EXPECT_NE(code.find("A[(long long)i * 4 + v] + weft_lanes_0[v] * weft_lanes_0[v]"), code.npos) << code;
  EXPECT_NE(cuda_of(lanes(16, "p[i] * 4 + 8")).find("weft_load<4, 16>"), code.npos);
  EXPECT_NE(cuda_of(lanes(4, "p[i] * 4 + 2")).find("weft_load<2, 4>"), code.npos);
  EXPECT_NE(cuda_of(lanes(16, "p[i] * 16"), "bf16").find("weft_load<8, 16>"), code.npos);
  for (const char* at : {"p[i]", "p[i] * 4 + 1", "i * m"})
    EXPECT_EQ(cuda_of(lanes(4, at)).find("weft_load<"), code.npos) << at;
  // No access goes beyond the lanes, or takes a number of elements that a card has no type for.
  EXPECT_NE(cuda_of(lanes(6, "p[i] * 6"), "bf16").find("weft_load<2, 6>"), code.npos);
  EXPECT_NE(cuda_of(lanes(12, "p[i] * 8"), "bf16").find("weft_load<4, 12>"), code.npos);
  EXPECT_EQ(cuda_of(lanes(3, "p[i] * 3")).find("weft_load<"), code.npos);
}

// A parameter that is set may be negative where the program negates it.
TEST(Codegen, NegativeNumbersAreNegatedInParentheses) {
  Function function =
      parse_function("stage3 f(n):\n  A = flat(n): fp32\n  for i in range(n) [parallel]:\n    A[i] = 0.0\n");
  for (const auto& [value, text] : {std::pair(-2.0, "= -(-2.0f);"), std::pair(-0.0, "= -(-0.0f);")}) {
    function.body[0].body[0].value = operation(Op::negate, {real(value)});
    const std::string code = cuda_module({split_threads(split_launches(function))});
    EXPECT_NE(code.find(text), code.npos) << code.substr(code.find("extern"));
  }
}

TEST(Codegen, CudaReadsNoLanesThatAConditionMayLeaveOut) {
  for (const char* value : {"select(v < m, B[i * 4 + v], 0.0)", "0.0"}) {
    const std::string code = cuda_of(fmt::format(
        "  for i in range(n) [parallel]:\n    for v in range(4) [vectorize]:\n      if v < m:\n"
        "        A[i * 4 + v] = B[i * 4 + v]\n    for v in range(4) [vectorize]:\n      A[i * 4 + v] = {}\n",
        value));
    EXPECT_EQ(code.find("weft_load<"), code.npos) << code;
  }
}

// A mask that g++ knows would make it read the whole vector.
// Text of a launch of 8 x 4 threads alone; empty: of any.
std::string launched(const std::string& body, std::array<int, 3> threads) {
  const Function function = parse_function(
      "stage3 f(n, m):\n  p = flat(n): int32 in 0 to m\n  A = flat(n * 8): fp32\n  B = flat(n * 8): fp32\n" + body);
  Launches launches = split_threads(split_launches(function));
  launches.phases[0].threads = threads;
  const std::string code = cuda_module({launches});
  return code.substr(code.find("extern \"C\""));
}

// Registers leave room for as many CTAs as hide what is on its way; CTAs along x are as many as iterations, unless the
// kernel alone knows these.
TEST(Codegen, CudaOfKnownLaunchesAsksForNoMore) {
  const std::string rows = "  for i in range(n) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n";
  const std::string gathers =
      "      for j in range(m) [prefetch=4]:\n        for v in range(4) [vectorize]:\n"
      "          A[i * 8 + r * 4 + v] = A[i * 8 + r * 4 + v] + B[p[j] * 4 + v]\n";
  const std::string known = launched(rows + gathers, {32, 4, 1});
  EXPECT_NE(known.find("__launch_bounds__(128, 12) "), known.npos) << known;
  EXPECT_NE(known.find("if (const "), known.npos) << known;
  EXPECT_EQ(known.find("gridDim.x"), known.npos) << known;
  const std::string any = launched(rows + gathers, {});
  EXPECT_EQ(any.find("__launch_bounds__"), any.npos) << any;
  EXPECT_NE(any.find("gridDim.x"), any.npos) << any;
  const std::string loaded = launched(
      "  for i in range(p[0]) [bind=blockIdx.x]:\n    for r in range(4) [bind=threadIdx.y]:\n      A[i * 8 + r] = "
      "0.0\n",
      {32, 4, 1});
  EXPECT_NE(loaded.find("gridDim.x"), loaded.npos) << loaded;
  // What an iteration stores, the next one may gather; what a condition allows is read where it holds.
  const auto gathers_ahead = [](const std::string& value) {
    const std::string text = launched(
        "  for i in range(n) [parallel]:\n    for j in range(m) [prefetch=4]:\n"
        "      for v in range(4) [vectorize]:\n        A[i * 8 + v] = " +
            value + "\n",
        {});
    return text.find("weft_ahead_") != text.npos;
  };
  EXPECT_TRUE(gathers_ahead("B[p[j] * 4 + v] + 1.0"));
  EXPECT_FALSE(gathers_ahead("A[p[j] * 4 + v] + 1.0"));
  EXPECT_FALSE(gathers_ahead("select(p[j] < m, B[p[j] * 4 + v], 1.0)"));
}

TEST(Codegen, ConditionsOfLanesAloneAreHiddenFromTheCompiler) {
  const auto code = [](const char* condition) {
    return code_of(fmt::format(
        "  for i in range(8):\n    let j = i * 2\n    let q = p[i]\n    if {}:\n      A[i] = B[i]\n", condition));
  };
  for (const char* condition : {"i < 5", "j % 3 == 1", "i != 2 and m > 3"})
    EXPECT_NE(code(condition).find(" + weft_zero"), std::string::npos) << code(condition);
  for (const char* condition : {"i < m", "q < 5", "p[i] < i", "B[i] < 1.0"})
    EXPECT_EQ(code(condition).find("weft_zero"), std::string::npos) << code(condition);
}

// g++ reads several vectors of such statements under the mask of the first.
TEST(Codegen, ConditionsThatStatementsShareAreBranches) {
  const auto count = [](const std::string& body) {
    const std::string code = code_of("  for i in range(n):\n" + body);
    return count_of(code, "weft_branch()") - count_of(code, "void weft_branch()");
  };
  const auto short_loop = [&](const std::string& value, int extent = 2) {
    return count(fmt::format("    for j in range({0}):\n      A[i * {0} + j] = {1}\n", extent, value));
  };
  EXPECT_EQ(short_loop("select(i < m, B[i * 2 + j], 0.0)"), 1u);
  EXPECT_EQ(short_loop("select(i < m, B[i * 2 + j], B[j])"), 2u);
  EXPECT_EQ(short_loop("select(i < m and B[i] < 2.0, B[i * 2 + j], 0.0)"), 1u);
  EXPECT_EQ(short_loop("select(i + j < m, B[i * 2 + j], 0.0)"), 0u);  // a mask of its own for each copy
  EXPECT_EQ(short_loop("select(i < m, 1.0, 0.0)"), 0u);
  EXPECT_EQ(short_loop("select(i < m, B[i * 64 + j], 0.0)", 64), 0u);
  EXPECT_EQ(count("    if i < m:\n      for j in range(2):\n        A[i * 2 + j] = B[i * 2 + j]\n"), 1u);
  EXPECT_EQ(count("    if i < m:\n      A[i * 2] = B[i * 2]\n      A[i * 2 + 1] = B[i * 2 + 1]\n"), 1u);
  EXPECT_EQ(count("    if i < m:\n      for j in range(n):\n        A[i * n + j] = B[i * n + j]\n"), 0u);
  EXPECT_EQ(count("    if i < m:\n      A[i] = B[i]\n"), 0u);
}

TEST(Codegen, ALoopOfManyStatementsIsUnrolledByTheCompiler) {
  const std::string code =
      code_of("  for i in range(64) [unroll]:\n    for j in range(64) [unroll]:\n      A[i + j] = B[i] * 2.0\n");
  EXPECT_NE(code.find("#pragma GCC unroll 64"), code.npos) << code;
  EXPECT_LT(code.size(), 20000u);
}

}  // namespace
}  // namespace weft::loop
