// Kernels whose text runs here and compiles for every architecture (tests/jit/nvrtc_test.cpp) have the right values.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/simt/functions.h"
#include "tests/simt/kernels/on_the_host.h"
#include "tests/simt/machine/device.h"
#include "tests/simt/machine/machine.h"

extern "C" bool weft_swizzle_is_free_of_conflicts(int columns);
extern "C" void weft_scores(weft::ScoresArgs args);
extern "C" void weft_functions(weft::FunctionsArgs args);
struct CeilingArgs {  // bench/cuda/kernels/ceilings.h
  const void* from;
  unsigned* to;
  long long count;
};
extern "C" void weft_read(CeilingArgs args);

namespace weft::simt {
namespace {

TEST(SimtSum, IsTheSameInEveryOrderOfThreads) {
  std::mt19937 random(20261123);
  std::vector<float> values(5000);
  double expected = 0;
  for (float& value : values) {
    value = std::uniform_real_distribution<float>(-1, 1)(random);
    expected += value;
  }
  Memory memory;
  const auto x = memory.make("x", values);
  const auto shares = memory.make<float>("shares", 4);
  const auto arrived = memory.make<unsigned>("arrived", std::vector<unsigned>{0});
  const auto total = memory.make<float>("total", 1);
  run_in_all_orders(memory, {.ctas = 4, .threads = 128, .shared_bytes = 16}, [&] {
    weft_sum({x.data(), 5000, shares.data(), arrived.data(), total.data()});
  });
  EXPECT_NEAR(total[0], expected, 1e-3);
  EXPECT_EQ(arrived[0], 0u);
}

// What a bench's plain read is measured by: each of any number of 16 bytes is read, or the sum is not the one that is
// said.
TEST(SimtRead, ReadsAllBytes) {
  constexpr int kCtas = 2, kThreads = 32, kTogether = 8;
  for (const size_t count : {size_t{1}, size_t{70}, size_t{kCtas * kThreads * kTogether + 3}})
    for (const size_t at : {size_t{0}, count - 1}) {
      std::vector<unsigned> words(4 * count);
      words[4 * at] = 0x9e3779b9u;
      Memory memory;
      const auto from = memory.make("from", words);
      const auto to = memory.make<unsigned>("to", std::vector<unsigned>{0});
      run(memory, {.ctas = kCtas, .threads = kThreads}, [&] {
        weft_read({from.data(), to.data(), static_cast<long long>(count)});
      });
      EXPECT_EQ(to[0], 0x9e3779b9u) << count << ", " << at;
    }
}

// Of which type and forms products are.
enum class Product { fp16, bf16, older_fp16 };
const auto kProducts = testing::Values(Product::fp16, Product::bf16, Product::older_fp16);

struct Shape {
  int m, n, k;
};
class SimtGemm : public testing::TestWithParam<std::tuple<Shape, Product>> {};

// Integers up to 8 in products of at most 100 terms: exact in any order of sums.
TEST_P(SimtGemm, IsExactOnIntegers) {
  const auto [shape, product] = GetParam();
  const auto [m, n, k] = shape;
  const bool bf16 = product == Product::bf16;
  std::mt19937 random(20261123);
  const auto matrix = [&](int rows) {
    std::vector<float> values(static_cast<size_t>(rows * k));
    for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 17) - 8);
    return values;
  };
  const auto halves = [&](const std::vector<float>& values) {
    std::vector<unsigned short> bits;
    for (const float value : values)
      bits.push_back(bf16 ? static_cast<unsigned short>(std::bit_cast<unsigned>(value) >> 16) : to_fp16(value));
    return bits;
  };
  const std::vector<float> a = matrix(m), b = matrix(n);
  Memory memory;
  const auto a_bits = memory.make("a", halves(a)), b_bits = memory.make("b", halves(b));
  const auto c = memory.make<float>("c", static_cast<size_t>(m * n));
  const GemmArgs args{a_bits.data(), b_bits.data(), c.data(), m, n, k};
  const int ctas = (m + 63) / 64 * ((n + 63) / 64);
  run_in_all_orders(memory, {.ctas = ctas, .threads = 128, .shared_bytes = 16384}, [&] {
    bf16 ? weft_gemm_bf16(args) : product == Product::older_fp16 ? weft_older_gemm_fp16(args) : weft_gemm_fp16(args);
  });
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float expected = 0;
      for (int e = 0; e < k; ++e) expected += a[static_cast<size_t>(i * k + e)] * b[static_cast<size_t>(j * k + e)];
      ASSERT_EQ(c[static_cast<size_t>(i * n + j)], expected) << i << ", " << j;
    }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SimtGemm,
                         testing::Combine(testing::Values(Shape{64, 64, 32}, Shape{1, 1, 8}, Shape{65, 130, 40},
                                                          Shape{100, 63, 96}),
                                          kProducts));

struct AttendCase {
  int num_queries, n;
  bool causal;
};
class SimtAttend : public testing::TestWithParam<std::tuple<AttendCase, Product>> {};

// Against fp64. Products of the halves are exact; probabilities are rounded to 2^-8 (bf16) or 2^-11 of themselves.
TEST_P(SimtAttend, IsSoftmaxOfProducts) {
  const auto [shape, product] = GetParam();
  const auto [num_queries, n, causal] = shape;
  const bool bf16 = product == Product::bf16;
  const int dim = bf16 ? 64 : 80;
  std::mt19937 random(20261123);
  std::normal_distribution<float> normal;
  const auto halves = [&](int rows) {
    std::vector<unsigned short> bits(static_cast<size_t>(rows * dim));
    for (unsigned short& b : bits)
      b = bf16 ? static_cast<unsigned short>(std::bit_cast<unsigned>(normal(random)) >> 16) : to_fp16(normal(random));
    return bits;
  };
  const auto value = [&](unsigned short bits) {
    return bf16 ? std::bit_cast<float>(static_cast<unsigned>(bits) << 16) : from_fp16(bits);
  };
  const auto q = halves(num_queries), k = halves(n), v = halves(n);
  Memory memory;
  const auto o = memory.make<float>("o", q.size()), lse = memory.make<float>("lse", static_cast<size_t>(num_queries));
  const AttendArgs args{memory.make("q", q).data(),
                        memory.make("k", k).data(),
                        memory.make("v", v).data(),
                        o.data(),
                        lse.data(),
                        num_queries,
                        n,
                        causal,
                        0.125f};
  const int shared = bf16 ? 64 * 128 + 4 * 32 * 128 : 64 * 160 + 4 * 32 * 160;
  run_in_all_orders(
      memory, {.ctas = (num_queries + 63) / 64, .threads = 128, .shared_bytes = static_cast<size_t>(shared)}, [&] {
        bf16                             ? weft_attend_bf16(args)
        : product == Product::older_fp16 ? weft_older_attend_fp16(args)
                                         : weft_attend_fp16(args);
      });
  for (int i = 0; i < num_queries; ++i) {
    std::vector<double> sum(static_cast<size_t>(dim)), size(sum);
    double total = 0;
    for (int j = 0; j < n && (!causal || j <= i + n - num_queries); ++j) {
      double s = 0;
      for (int d = 0; d < dim; ++d)
        s += double{value(q[static_cast<size_t>(i * dim + d)])} * double{value(k[static_cast<size_t>(j * dim + d)])};
      const double p = std::exp(0.125 * s);
      total += p;
      for (int d = 0; d < dim; ++d) {
        const double pv = p * value(v[static_cast<size_t>(j * dim + d)]);
        sum[static_cast<size_t>(d)] += pv;
        size[static_cast<size_t>(d)] += std::fabs(pv);
      }
    }
    const float l = lse[static_cast<size_t>(i)];
    if (total == 0) {
      EXPECT_EQ(l, -INFINITY);
    } else {
      EXPECT_NEAR(l, std::log(total), 1e-5) << i;
    }
    const double rounding = std::ldexp(1.0, bf16 ? -8 : -11) + 1e-5;
    for (int d = 0; d < dim; ++d) {
      const auto at = static_cast<size_t>(d);
      const double expected = total == 0 ? 0 : sum[at] / total, bound = total == 0 ? 0 : rounding * size[at] / total;
      ASSERT_NEAR(o[static_cast<size_t>(i * dim + d)], expected, bound) << i << ", " << d;
    }
  }
}
INSTANTIATE_TEST_SUITE_P(Shapes, SimtAttend,
                         testing::Combine(testing::Values(AttendCase{64, 96, false}, AttendCase{70, 100, true},
                                                          AttendCase{1, 33, true}, AttendCase{64, 20, true}),
                                          kProducts));

// Numbers of all kinds, no two NaN or zeros side by side.
std::vector<float> all_kinds() {
  std::mt19937 random(20261123);
  std::vector<float> numbers;
  for (int i = 0; i < 128; ++i)
    numbers.push_back(
        std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random), static_cast<int>(random() % 44) - 24));
  numbers[3] = NAN, numbers[9] = INFINITY, numbers[17] = -INFINITY, numbers[33] = 0.f, numbers[64] = 3.4e38f;
  return numbers;
}

// With the text's forms for sm_75, or those for newer ones.
class SimtInstructions : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Older, SimtInstructions, testing::Bool());

// As PTX's manual draws them: what the machine makes of lanes and registers, written here once more.
TEST_P(SimtInstructions, FragmentsLieAsTheManualSays) {
  Memory memory;
  const auto words = memory.make<unsigned>("words", kInstructionWords * 32);
  const auto near = memory.make<float>("near", 256);
  const auto numbers = memory.make("numbers", all_kinds());
  const auto counters = memory.make("counters", std::vector<unsigned>(32, 5));
  const InstructionsArgs args{words.data(), near.data(), numbers.data(), counters.data()};
  run_in_all_orders(memory, {.threads = 32, .shared_bytes = 512},
                    [&] { GetParam() ? weft_older_instructions(args) : weft_instructions(args); });
  const auto word = [&](int at, int lane) { return words[static_cast<size_t>(32 * at + lane)]; };
  const auto number = [&](int at, int lane) { return std::bit_cast<float>(word(at, lane)); };
  const auto small = [](int lane, int i, int half) {
    return half == 0 ? (lane * 7 + i * 3) % 13 - 6 : (lane * 5 + i * 11) % 17 - 8;
  };
  for (int lane = 0; lane < 32; ++lane) {
    EXPECT_EQ(word(0, lane), static_cast<unsigned>((lane ^ 5) * (lane ^ 5)));
    EXPECT_EQ(word(1, lane), static_cast<unsigned>((lane + 7) % 32 * ((lane + 7) % 32)));
    EXPECT_EQ(word(2, lane) >> lane & 1, static_cast<unsigned>(lane * lane % 3 == 1));
    for (int m = 0; m < 4; ++m)
      for (int half = 0; half < 2; ++half) {
        const int row = lane / 4, column = lane % 4 * 2 + half;
        const auto element = [&](int of_row, int i) {
          return static_cast<unsigned short>(1000 * ((8 * m + of_row) * 5 % 32) + i);
        };
        EXPECT_EQ(word(3 + m, lane) >> (16 * half) & 0xffff, element(row, column));
        EXPECT_EQ(word(7 + m, lane) >> (16 * half) & 0xffff, element(column, row));
      }
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + 8 * (e / 2), column = lane % 4 * 2 + e % 2;
      int k8 = 0, k16 = 0;
      for (int k = 0; k < 16; ++k) {
        const int a = small(row % 8 * 4 + k % 8 / 2, row / 8 + 2 * (k / 8), k % 2);
        const int b = small(column * 4 + k % 8 / 2, 4 + k / 8, k % 2);
        k16 += a * b;
        if (k < 8) k8 += a * b;
      }
      const float first[] = {static_cast<float>(lane), 0, -1, 2};
      EXPECT_EQ(number(11 + e, lane), first[e] + static_cast<float>(k8));
      EXPECT_EQ(number(15 + e, lane), first[e] + static_cast<float>(k8 + k16));
      if (GetParam()) continue;  // sm_75 has no bf16
      EXPECT_EQ(number(19 + e, lane), first[e] + static_cast<float>(k8 + k16 + k8));
      EXPECT_EQ(number(23 + e, lane), first[e] + static_cast<float>(2 * (k8 + k16)));
    }
    for (int i = 0; i < 16; ++i) {
      const unsigned copied = word(27 + i / 4, lane) >> (8 * (i % 4)) & 0xff;
      const unsigned source =
          std::bit_cast<unsigned>(numbers[static_cast<size_t>(4 * lane + i / 4)]) >> (8 * (i % 4)) & 0xff;
      EXPECT_EQ(copied, i < lane % 17 ? source : 0u) << lane << ", " << i;
    }
    EXPECT_EQ(word(31, lane), 5u);
    EXPECT_EQ(word(32, lane), 8u);
    EXPECT_EQ(word(33, lane), 12u);
    EXPECT_EQ(word(34, lane), 0x10cu);
    for (int i = 0; i < 4; ++i) {
      const auto bits = [&](int j) { return std::bit_cast<unsigned>(numbers[static_cast<size_t>(j % 128)]); };
      const unsigned x = bits(4 * lane + i), y = bits(4 * lane + i + 1);
      EXPECT_EQ(word(40 + 10 * i, lane), (x & 0x0f0ff00fu) | y);
      EXPECT_EQ(word(42 + 10 * i, lane),
                (y >> 8 & 0xff) | (x >> 8 & 0xff) << 8 | (y >> 24) << 16 | (x >> 16 & 0xff) << 24);
      if (GetParam()) continue;
      const unsigned high = word(41 + 10 * i, lane) & 0xffff0000u;  // 128 + lane - 136
      EXPECT_EQ(std::bit_cast<float>(high), static_cast<float>(lane - 8));
      for (int e = 0; e < 4; ++e) {  // e4m3: codes that follow each other
        const int code = 4 * lane + i + e, exponent = code >> 3 & 15, mantissa = code & 7;
        const double size = exponent == 0 ? mantissa / 512. : std::ldexp(8 + mantissa, exponent - 10);
        const double half = from_fp16(static_cast<unsigned short>(word(43 + 10 * i + e / 2, lane) >> 16 * (e % 2)));
        EXPECT_TRUE((code & 127) == 127 ? std::isnan(half) : half == (code < 128 ? size : -size)) << code;
      }
    }
    EXPECT_EQ(static_cast<int>(word(75, lane)), -9);
    const int third = lane / 8 * 8 + 3;
    EXPECT_EQ(word(76, lane), static_cast<unsigned>(third * third + 3 * 19));
    EXPECT_EQ(counters[static_cast<size_t>(lane)], static_cast<unsigned>(lane));
    if (GetParam()) continue;  // nor tf32
    for (int e = 0; e < 4; ++e) {
      const int row = lane / 4 + 8 * (e / 2), column = lane % 4 * 2 + e % 2;
      int sum = 0;
      for (int k = 0; k < 8; ++k)
        sum += small(row % 8 * 4 + k % 4, row / 8 + 2 * (k / 4), 0) * small(column * 4 + k % 4, 4 + k / 4, 0);
      const float first[] = {static_cast<float>(lane), 0, -1, 2};
      EXPECT_EQ(number(77 + e, lane), first[e] + static_cast<float>(sum));
    }
  }
}

// Elements of rows that are not there are zeros, and not what lies where the copy might have read.
TEST(SimtRows, GoThroughATileAndMissingOnesAreZero) {
  for (const int columns : {24, 80, 128}) {
    std::vector<unsigned short> values(static_cast<size_t>(kRowsRows * columns));
    for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<unsigned short>(i + 1);
    Memory memory;
    const auto from = memory.make("from", values);
    const auto to = memory.make<unsigned short>("to", values.size());
    const size_t shared = values.size() * 2;
    run_in_all_orders(memory, {.threads = 64, .shared_bytes = shared}, [&] {
      weft_rows({from.data(), to.data(), columns});
    });
    for (int row = 0; row < kRowsRows; ++row)
      for (int i = 0; i < columns; ++i) {
        const auto at = static_cast<size_t>(row * columns + i);
        ASSERT_EQ(to[at], row % 2 == 0 ? values[at] : 0) << columns << ": " << row << ", " << i;
      }
  }
}

TEST(SimtRows, EightRowsAtOneColumnLieInAllBanks) {
  for (const int columns : {16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 192, 256, 576})
    EXPECT_TRUE(weft_swizzle_is_free_of_conflicts(columns)) << columns;
}

// What a kernel of persistent.h takes.
struct Persistent {
  Persistent(int ctas, int words_each) : num_ctas(ctas) {
    std::mt19937 random(20261127);
    std::vector<unsigned> values(static_cast<size_t>(ctas * words_each));
    for (unsigned& value : values) value = static_cast<unsigned>(random());
    x = memory.make("x", values);
    const auto n = static_cast<size_t>(ctas);
    y = memory.make<unsigned>("y", n * 256);
    counters = memory.make("counters", std::vector<unsigned>(n));
    words = memory.make("words", std::vector<unsigned long long>(4 * n));
  }
  void run(void (*kernel)(PersistentArgs), int threads, int shared) {
    run_in_all_orders(memory,
                      {.ctas = num_ctas,
                       .threads = threads,
                       .shared_bytes = static_cast<size_t>(shared),
                       .cooperative = true,
                       .resident_ctas = num_ctas},
                      [&] {
                        kernel({x.data(), y.data(), counters.data(), words.data()});
                      });
  }
  int num_ctas;
  Memory memory;
  std::span<unsigned> x, y, counters;
  std::span<unsigned long long> words;
};

TEST(SimtPersistent, RingGivesAllThatIsCopied) {
  Persistent test(2, kRingBytes / 4);
  test.run(weft_ring, 384, kRingShared);
  const unsigned* x = test.x.data();
  for (int cta = 0; cta < 2; ++cta) {
    std::vector<unsigned> sums(256, 0);
    for (int i = 0; i < kRingCopies; ++i)
      for (int at = 0; at < ring_bytes(i) / 4; ++at, ++x)
        sums[static_cast<size_t>(at % 256)] = sums[static_cast<size_t>(at % 256)] * 31 + *x;
    for (size_t i = 0; i < 256; ++i) EXPECT_EQ(test.y[static_cast<size_t>(256 * cta) + i], sums[i]) << cta << ", " << i;
  }
}

TEST(SimtPersistent, RingTakesBulkCopiesAndCopiesOfLanes) {
  Persistent test(2, kRingBytes / 4);
  test.run(weft_lanes_ring, 96, kLanesRingShared);
  const unsigned* x = test.x.data();
  for (size_t cta = 0; cta < 2; ++cta) {
    std::vector<unsigned> sums(64, 0);
    for (int i = 0; i < kRingCopies; ++i)
      for (int at = 0; at < ring_bytes(i) / 4; ++at, ++x) {
        unsigned& sum = sums[static_cast<size_t>(32 * (i % 2) + at % 32)];
        sum = sum * 31 + *x;
      }
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(test.y[256 * cta + i], sums[i]) << cta << ", " << i;
  }
}

TEST(SimtPersistent, GridSyncsFollowEachOther) {
  Persistent test(3, 256);
  test.run(weft_grid, 320, 0);
  for (unsigned cta = 0; cta < 3; ++cta)
    for (unsigned i = 0; i < 256; ++i) {
      unsigned word = test.x[(cta + 5) % 3 * 256 + i];
      for (unsigned round = 5; round-- > 0;) word = 3 * word + (cta + round) % 3;
      EXPECT_EQ(test.y[cta * 256 + i], word) << cta << ", " << i;
    }
}

TEST(SimtPersistent, EachCtaHasWhatTheOneBeforeItReleased) {
  Persistent test(4, 256);
  test.run(weft_chain, 256, 1032);
  for (unsigned i = 0; i < 256; ++i) {
    unsigned word = 0;
    for (unsigned cta = 0; cta < 4; ++cta) {
      word = test.x[i] + 2 * word;
      EXPECT_EQ(test.y[cta * 256 + i], word) << cta << ", " << i;
    }
  }
}

TEST(SimtPersistent, WaitsSayWhichPhaseIsOver) {
  Persistent test(1, 256);
  test.run(weft_phases, 32, 1280);
  for (unsigned lane = 0; lane < 32; ++lane) {
    const unsigned words[] = {0, 1, 0, 0, test.x[8 * lane + 4] + 3 * test.x[8 * lane + 3], 0, 1, 0};
    for (unsigned i = 0; i < 8; ++i) EXPECT_EQ(test.y[32 * i + lane], words[i]) << lane << ", " << i;
  }
}

TEST(SimtVariant, TextHasTheTargetsMathAndMasks) {
  std::vector<float> values(7 * 40);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 23) - 11.f;
  std::vector<unsigned char> bits(40);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<unsigned char>(37 * i);
  Memory memory;
  const auto scores = memory.make("scores", values);
  const auto vector = memory.make("vector", std::vector<float>{1, 2, 3, 4}), to = memory.make<float>("to", 4);
  const auto params = memory.make<abi::Slot>("params", 3);
  params[0].real = 0.5;
  params[1].pointer = memory.make("bits", bits).data();
  params[2].integer = 1;
  run_in_all_orders(memory, {.threads = 64}, [&] {
    weft_scores({params.data(), scores.data(), vector.data(), to.data(), 7, 40, 4});
  });
  for (int row = 0; row < 7; ++row)
    for (int key = 0; key < 40; ++key) {
      const int i = row * 40 + key;
      const float got = scores[static_cast<size_t>(i)];
      if ((bits[static_cast<size_t>(i / 8)] >> (i % 8) & 1) == 0) {
        EXPECT_EQ(got, -INFINITY);
      } else {
        EXPECT_NEAR(got, 3 * std::tanh(0.5 * values[static_cast<size_t>(i)] / 3) + key - row, 1e-5);
      }
    }
  const float lse = 1, pairs[] = {-2, 1, -4, 3};
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(to[i], lse + pairs[i]);
}

TEST(SimtFunctions, StayWithinTheirStatedBoundsWhereInstructionsAreAsInexactAsTheyMayBe) {
  const std::vector<float> arguments = function_arguments();
  Memory memory;
  const auto x = memory.make("x", arguments);
  const auto y = memory.make<float>("y", kFunctions * arguments.size());
  run(memory, {.threads = 128}, [&] { weft_functions({x.data(), y.data(), static_cast<int>(arguments.size())}); });
  check_functions(arguments, {y.begin(), y.end()});
}

// The value of an element with a sign, `exponent` and `mantissa` bits, as their formats define them.
double value_of(unsigned bits, int exponent_bits, int mantissa_bits, bool has_infinity) {
  const int bias = (1 << (exponent_bits - 1)) - 1, mantissa = static_cast<int>(bits) & ((1 << mantissa_bits) - 1);
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const bool is_last = exponent == (1 << exponent_bits) - 1;
  double size = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                              : std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
  if (is_last && has_infinity) size = mantissa == 0 ? INFINITY : NAN;
  if (is_last && !has_infinity && mantissa == (1 << mantissa_bits) - 1) size = NAN;
  return (bits >> (exponent_bits + mantissa_bits) & 1) != 0 ? -size : size;
}

TEST(SimtConvert, KnowsEveryElementOfEveryType) {
  for (int type = 0; type < 6; ++type) {
    const int per_word = type < 2 ? 2 : type < 5 ? 4 : 8, bits = 32 / per_word;
    std::vector<unsigned> words(static_cast<size_t>((1 << std::min(bits, 16)) / per_word), 0);
    for (size_t i = 0; i < words.size() * static_cast<size_t>(per_word); ++i)
      words[i / static_cast<size_t>(per_word)] |= static_cast<unsigned>(i)
                                                  << (bits * static_cast<int>(i % static_cast<size_t>(per_word)));
    Memory memory;
    const auto floats = memory.make<float>("floats", words.size() * static_cast<size_t>(per_word));
    const ConvertArgs args{
        type,   memory.make("words", words).data(), static_cast<int>(words.size()), floats.data(), nullptr, 0, nullptr,
        nullptr};
    run(memory, {.threads = 128}, [&] { weft_convert(args); });
    for (unsigned i = 0; i < floats.size(); ++i) {
      const double expected = type == 0   ? value_of(i, 5, 10, true)
                              : type == 1 ? value_of(i, 8, 7, true)
                              : type == 2 ? value_of(i, 4, 3, false)
                              : type == 3 ? value_of(i, 5, 2, true)
                              : type == 4 ? static_cast<double>(static_cast<signed char>(i))
                                          : static_cast<double>(i < 8 ? static_cast<int>(i) : static_cast<int>(i) - 16);
      const float got = floats[i];
      ASSERT_TRUE(std::isnan(expected)
                      ? std::isnan(got)
                      : got == static_cast<float>(expected) && std::signbit(got) == std::signbit(expected))
          << "type " << type << ", element " << i << ": " << got << ", not " << expected;
    }
  }
}

TEST(SimtConvert, RoundsToTheNearestHalf) {
  std::mt19937 random(20261123);
  std::vector<float> values = {0.f, 1.f, 65504.f, 65519.f, 65520.f, 1e-8f, 5.9604645e-8f, 6.1e-5f, 3e38f, INFINITY};
  for (int i = 0; i < 2000; ++i)
    values.push_back(
        std::ldexp(std::uniform_real_distribution<float>(1, 2)(random), static_cast<int>(random() % 44) - 26));
  for (int i = 0; i < 64; ++i) values.push_back(1.f + std::ldexp(static_cast<float>(i), -12));  // ties among them
  Memory memory;
  const auto halves = memory.make<unsigned>("halves", 2 * values.size());
  const auto stored = memory.make<unsigned short>("stored", values.size());
  const ConvertArgs args{0,
                         nullptr,
                         0,
                         nullptr,
                         memory.make("values", values).data(),
                         static_cast<int>(values.size()),
                         halves.data(),
                         stored.data()};
  run(memory, {.threads = 128}, [&] { weft_convert(args); });
  for (size_t i = 0; i < values.size(); ++i)
    for (const bool bf16 : {false, true}) {
      const unsigned pair = halves[i + (bf16 ? values.size() : 0)], bits = pair & 0xffff;
      EXPECT_EQ(pair >> 16, bits ^ 0x8000u) << values[i];
      if (!bf16) {
        EXPECT_EQ(stored[i], bits);
      }
      const auto value = [&](unsigned b) { return bf16 ? value_of(b, 8, 7, true) : value_of(b, 5, 10, true); };
      const double x = values[i], error = std::fabs(value(bits) - x);
      if (std::isinf(value(bits))) {  // from half a step beyond the largest number on
        EXPECT_GE(x, (value(bits - 1) + value(bits - 1) - value(bits - 2) + value(bits - 1)) / 2) << values[i];
        continue;
      }
      for (const unsigned other : {bits - 1, bits + 1}) {
        if (bits == 0 && other > bits + 1) continue;
        const double distance = std::fabs(value(other) - x);
        EXPECT_TRUE(error < distance || (error == distance && bits % 2 == 0)) << values[i] << " as " << value(bits);
      }
    }
}

}  // namespace
}  // namespace weft::simt
