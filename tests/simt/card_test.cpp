// What the host machine believes of the hardware, asked of a card: every kernel here gives the same bytes on both.
// Where there is no card these tests are skipped, and say so.
#include "tests/simt/card.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

#include "tests/simt/functions.h"
#include "tests/simt/kernels/on_the_host.h"

namespace weft::text {
extern const char* const sum;
extern const char* const gemm;
extern const char* const attend;
extern const char* const convert;
extern const char* const instructions;
extern const char* const rows;
extern const char* const functions;
extern const char* const persistent;
}  // namespace weft::text

namespace weft::simt {
namespace {

TEST_F(SimtCard, InstructionsDoWhatTheirTwinsDo) {
  std::vector<float> values;
  for (int i = 0; i < 128; ++i)
    values.push_back(
        std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random_), static_cast<int>(random_() % 44) - 24));
  values[3] = NAN, values[9] = INFINITY, values[17] = -INFINITY, values[33] = 0.f, values[64] = 3.4e38f;
  for (const bool is_older : {true, false}) {
    if (!is_older && !has_bf16()) continue;
    memory_ = {};
    const auto words = memory_.make("words", std::vector<unsigned>(kInstructionWords * 32));
    const auto near = memory_.make<float>("near", 256);
    const auto numbers = memory_.make("numbers", values);
    const auto counters = memory_.make("counters", std::vector<unsigned>(32, 5));
    compare(
        is_older ? older(text::instructions) : text::instructions, "weft_instructions",
        is_older ? weft_older_instructions : weft_instructions, {.threads = 32, .shared_bytes = 512},
        [&](const auto& at) {
          return InstructionsArgs{at(words.data()), at(near.data()), at(numbers.data()), at(counters.data())};
        },
        "near", 1e-6f);
  }
}

TEST_F(SimtCard, FunctionsStayWithinTheirStatedBounds) {
  const std::vector<float> x = function_arguments();
  std::vector<float> y(kFunctions * x.size());
  cuda::Card& card = cuda::Card::at(0);
  Workspace from(Device::cuda(0), x.size() * sizeof(float)), to(Device::cuda(0), y.size() * sizeof(float));
  cuda::copy_to_card(card, from.data(), x.data(), from.bytes(), nullptr);
  const jit::CudaModule loaded = jit::cuda_module(card, "weft_functions", text::functions, {"--use_fast_math"});
  const FunctionsArgs args{static_cast<const float*>(from.data()), static_cast<float*>(to.data()),
                           static_cast<int>(x.size())};
  cuda::launch(cuda::find_kernel(*loaded.module, "weft_functions", 0), {.ctas = 1, .threads = 128}, nullptr, args);
  cuda::copy_to_host(card, y.data(), to.data(), to.bytes(), nullptr);
  cuda::synchronize(card, nullptr);
  check_functions(x, y);
}

TEST_F(SimtCard, ElementsConvertAsInTheMachine) {
  for (int type = 0; type < 6; ++type) {
    const int words = type < 2 ? 1 << 15 : type < 5 ? 64 : 2, per_word = type < 2 ? 2 : type < 5 ? 4 : 8;
    memory_ = {};
    std::vector<unsigned> all(static_cast<size_t>(words), 0);
    for (int i = 0; i < words * per_word; ++i)
      all[static_cast<size_t>(i / per_word)] |= static_cast<unsigned>(i) << (32 / per_word * (i % per_word));
    const auto from = memory_.make("words", all);
    const auto floats = memory_.make<float>("floats", static_cast<size_t>(words * per_word));
    std::vector<float> numbers;
    for (int i = 0; i < 4096; ++i)
      numbers.push_back(
          std::ldexp(std::uniform_real_distribution<float>(1, 2)(random_), static_cast<int>(random_() % 44) - 26));
    const auto values = memory_.make("values", numbers);
    const auto halves = memory_.make<unsigned>("halves", 8192);
    const auto stored = memory_.make<unsigned short>("stored", 4096);
    compare(text::convert, "weft_convert", weft_convert, {.threads = 128}, [&](const auto& at) {
      return ConvertArgs{type,
                         at(from.data()),
                         words,
                         at(floats.data()),
                         at(values.data()),
                         4096,
                         at(halves.data()),
                         at(stored.data())};
    });
  }
}

TEST_F(SimtCard, RowsLieInTheirTilesAsInTheMachine) {
  for (const int columns : {24, 80, 128}) {
    memory_ = {};
    const auto from = memory_.make("from", halves(kRowsRows * columns, false, 1000));
    const auto to = memory_.make<unsigned short>("to", from.size());
    compare(text::rows, "weft_rows", weft_rows, {.threads = 64, .shared_bytes = from.size() * 2}, [&](const auto& at) {
      return RowsArgs{at(from.data()), at(to.data()), columns};
    });
  }
}

TEST_F(SimtCard, SumsOfSeveralCtasAreTheSame) {
  std::vector<float> values(5000);
  for (float& value : values) value = static_cast<float>(static_cast<int>(random_() % 201) - 100);
  const auto x = memory_.make("x", values);
  const auto shares = memory_.make<float>("shares", 4), total = memory_.make<float>("total", 1);
  const auto arrived = memory_.make("arrived", std::vector<unsigned>{0});
  compare(text::sum, "weft_sum", weft_sum, {.ctas = 4, .threads = 128, .shared_bytes = 16}, [&](const auto& at) {
    return SumArgs{at(x.data()), 5000, at(shares.data()), at(arrived.data()), at(total.data())};
  });
}

TEST_F(SimtCard, ProductsOfIntegersAreTheSame) {
  for (const Product product : products()) {
    const bool bf16 = product == Product::bf16, is_older = product == Product::older_fp16;
    memory_ = {};
    const int m = 100, n = 130, k = 96;
    const auto a = memory_.make("a", halves(m * k, bf16, 8)), b = memory_.make("b", halves(n * k, bf16, 8));
    const auto c = memory_.make<float>("c", static_cast<size_t>(m * n));
    compare(is_older ? older(text::gemm) : text::gemm, bf16 ? "weft_gemm_bf16" : "weft_gemm_fp16",
            bf16       ? weft_gemm_bf16
            : is_older ? weft_older_gemm_fp16
                       : weft_gemm_fp16,
            {.ctas = 6, .threads = 128, .shared_bytes = 16384},
            [&](const auto& at) { return GemmArgs{at(a.data()), at(b.data()), at(c.data()), m, n, k}; });
  }
}

// Exponentials differ in their last bits, and with them probabilities' rounding: the outputs are near.
TEST_F(SimtCard, AttentionIsNear) {
  for (const Product product : products()) {
    const bool bf16 = product == Product::bf16, is_older = product == Product::older_fp16;
    memory_ = {};
    const int num_queries = 70, num_keys = 100, dim = bf16 ? 64 : 80;
    const auto q = memory_.make("q", halves(num_queries * dim, bf16, 2)),
               k = memory_.make("k", halves(num_keys * dim, bf16, 2)),
               v = memory_.make("v", halves(num_keys * dim, bf16, 2));
    const auto o = memory_.make<float>("o", static_cast<size_t>(num_queries * dim + num_queries));
    const size_t shared = static_cast<size_t>((64 + 4 * 32) * dim * 2);
    compare(
        is_older ? older(text::attend) : text::attend, bf16 ? "weft_attend_bf16" : "weft_attend_fp16",
        bf16       ? weft_attend_bf16
        : is_older ? weft_older_attend_fp16
                   : weft_attend_fp16,
        {.ctas = 2, .threads = 128, .shared_bytes = shared},
        [&](const auto& at) {
          return AttendArgs{at(q.data()), at(k.data()), at(v.data()), at(o.data()), at(o.data() + num_queries * dim),
                            num_queries,  num_keys,     true,         0.125f};
        },
        "o", bf16 ? 0.02f : 0.003f);
  }
}

// Rings, grid barriers and counters, over more CTAs than the host machine's tests have; ten times, as a card's order of
// threads is any.
TEST_F(SimtCard, KernelsThatStayGiveTheSame) {
  if (cuda::Card::at(0).capability_major() != 9) GTEST_SKIP() << "the card is no sm_90a";
  struct Case {
    const char* symbol;
    void (*kernel)(PersistentArgs);
    int ctas, threads, shared, words;
  };
  const Case cases[] = {{"weft_ring", weft_ring, 12, 384, kRingShared, kRingBytes / 4},
                        {"weft_lanes_ring", weft_lanes_ring, 12, 96, kLanesRingShared, kRingBytes / 4},
                        {"weft_grid", weft_grid, 12, 320, 0, 256},
                        {"weft_chain", weft_chain, 12, 256, 1032, 256},
                        {"weft_phases", weft_phases, 1, 32, 1280, 256}};
  for (const Case& test : cases)
    for (int i = 0; i < 10; ++i) {
      const int ctas = test.ctas;
      memory_ = {};
      std::vector<unsigned> values(static_cast<size_t>(ctas * test.words));
      for (unsigned& value : values) value = static_cast<unsigned>(random_());
      const auto x = memory_.make("x", values), y = memory_.make<unsigned>("y", static_cast<size_t>(ctas * 256)),
                 counters = memory_.make("counters", std::vector<unsigned>(static_cast<size_t>(ctas)));
      const auto words = memory_.make("words", std::vector<unsigned long long>(static_cast<size_t>(4 * ctas)));
      compare(text::persistent, test.symbol, test.kernel,
              {.ctas = ctas,
               .threads = test.threads,
               .shared_bytes = static_cast<size_t>(test.shared),
               .cooperative = true},
              [&](const auto& at) {
                return PersistentArgs{at(x.data()), at(y.data()), at(counters.data()), at(words.data())};
              });
    }
}

}  // namespace
}  // namespace weft::simt
