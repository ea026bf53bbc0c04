// Draws on a card, in the host machine, against those of the CPU: the same ids, whatever the row is cut in.
#include "ops/cuda/draw.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "ops/draw.h"
#include "tests/ops/cuda/host_card.h"
#include "weft/error.h"

namespace weft::ops {
namespace {

constexpr float kInf = INFINITY;

class CardDraw : public testing::HostCard {
 protected:
  ~CardDraw() override {
    testing::host_multiprocessors = 1;
    testing::host_ctas_of_multiprocessor = 2;
  }

  // Row i by how[i].
  void expect_ids(const std::vector<float>& logits, const std::vector<TokenDraw>& how, const char* what) {
    const size_t columns = logits.size() / how.size();
    std::vector<int64_t> rows(how.size());
    std::iota(rows.begin(), rows.end(), 0);
    const auto vocab = static_cast<int64_t>(columns);
    const int* const ids = draws_.run({place(logits), vocab, vocab}, rows, how, Stream::cuda(nullptr));
    RowDraw on_cpu;
    for (size_t i = 0; i < how.size(); ++i)
      EXPECT_EQ(ids[i], on_cpu.draw(std::span(logits).subspan(i * columns, columns), how[i]))
          << what << ", row " << i << ": temperature " << how[i].params.temperature << ", top_k " << how[i].params.top_k
          << ", top_p " << how[i].params.top_p << ", min_p " << how[i].params.min_p
          << (how[i].params.filter_order == FilterOrder::joint ? ", joint" : "");
  }
  // The same row by each of the params.
  void expect_ids(const std::vector<float>& row, const std::vector<SamplingParams>& params, const char* what) {
    std::vector<float> logits;
    std::vector<TokenDraw> how;
    for (const SamplingParams& each : params) {
      logits.insert(logits.end(), row.begin(), row.end());
      how.push_back({.params = each, .random = {.seed = 7, .position = next_++}});
    }
    expect_ids(logits, how, what);
  }
  std::vector<float> random_row(size_t columns, float spread) {
    std::normal_distribution<float> normal(0.f, spread);
    std::vector<float> row(columns);
    for (float& logit : row) logit = normal(random_);
    return row;
  }

  CardDraws draws_{Device::cuda(0)};
  std::mt19937 random_{20261128};
  uint64_t next_ = 0;
};

// Few tokens down to where the filters end, and many.
const std::vector<SamplingParams> kFew = {
    {.top_k = 1},
    {.top_k = 20, .top_p = 0.9f},
    {.top_k = 20, .top_p = 0.05f, .min_p = 0.1f, .filter_order = FilterOrder::joint},
    {.temperature = 0.1f, .top_p = 0.8f},
    {.top_p = 1e-12f}};
const std::vector<SamplingParams> kMany = {
    {},
    {.min_p = 0.05f},
    {.top_p = 0.9f},
    {.top_k = 500, .top_p = 0.9f},
    {.top_k = 500, .top_p = 0.7f, .filter_order = FilterOrder::joint},
    {.top_k = 400, .top_p = 0.99f, .min_p = 0.3f, .filter_order = FilterOrder::joint},
    {.temperature = 20.f, .top_k = 1000},
    {.temperature = 0.f, .top_k = 3}};

TEST_F(CardDraw, IsTheOneOfTheCpu) {
  expect_ids(random_row(1, 1.f), kFew, "one token");
  expect_ids(random_row(70, 2.f), kMany, "a few tokens");
  const std::vector<float> row = random_row(1500, 2.f);
  expect_ids(row, kFew, "1,500 tokens");
  expect_ids(row, kMany, "1,500 tokens");
}

// Ties with the last token that is kept, all over the row: those with the least ids count.
TEST_F(CardDraw, KeepsTheLeastIdsOfEquals) {
  std::vector<float> row = random_row(1500, 1.f);
  for (float& logit : row) logit = std::round(logit);
  row[77] = -0.f, row[78] = 0.f;
  for (int i = 0; i < 3; ++i) expect_ids(row, kMany, "ties");
  expect_ids(row, kFew, "ties");
  expect_ids(std::vector<float>(1500, 3.f), {{.top_p = 0.5f}, {.top_k = 700}, {.top_k = 700, .top_p = 0.5f}}, "equals");
}

// Of 300 tokens that tie with the last one those with the two or three least ids are kept, and -0 ties with 0: what is
// drawn of so few shows one more, or one less. As many are all over the row whose bin holds more than are compared each
// with each.
TEST_F(CardDraw, KeepsAsManyEqualsAsFiltersSay) {
  std::vector<float> zeros(300);
  for (size_t i = 0; i < zeros.size(); i += 2) zeros[i] = -0.f;
  std::vector<float> first(zeros);
  for (size_t i = 0; i < 4; ++i) first[70 * i] = 1.f;
  const float share = 2.5f / 300, with_first = 0.0443f;  // of which the four have 0.0355, and a zero 0.0033
  for (int i = 0; i < 5; ++i) {
    expect_ids(zeros, {{.top_k = 2}, {.top_p = share}, {.top_k = 299, .top_p = share}, {.temperature = 0.f}}, "zeros");
    expect_ids(first, {{.top_k = 6}, {.top_p = with_first}}, "zeros behind others");
    std::vector<float> few(zeros.begin(), zeros.begin() + 20);
    expect_ids(few, {{.top_k = 2}, {.top_p = 0.12f}}, "few zeros");
  }
}

// Clusters of 2 and 8 CTAs, whose parts of the row differ in size.
TEST_F(CardDraw, IsTheSameHoweverTheRowIsCut) {
  const std::vector<float> row = random_row(8195, 2.f);
  testing::host_ctas_of_multiprocessor = 1;
  for (const int multiprocessors : {2, 8}) {
    testing::host_multiprocessors = multiprocessors;
    for (const SamplingParams& params : {kMany[0], kMany[4], kFew[1]}) expect_ids(row, {params}, "a cluster");
  }
}

TEST_F(CardDraw, TakesExtremesAsTheCpuDoes) {
  std::vector<float> row(300, -kInf);
  const auto expect = [&](const char* what) {
    expect_ids(row, {{}, {.top_k = 3}, {.top_p = 0.5f}, {.temperature = 1e-40f}, {.temperature = 0.f}}, what);
  };
  expect("nothing");
  row[20] = std::nanf("");
  expect("nothing but a NaN");
  row[3] = -2.f;
  expect("one");
  row[299] = -2.f, row[5] = 3e38f, row[6] = -3e38f;
  expect("the largest numbers");
  row[40] = row[41] = row[250] = kInf;
  expect("infinite");
}

TEST_F(CardDraw, ChangesLogitsFirst) {
  const std::vector<float> row = random_row(700, 0.3f);
  const std::vector<int32_t> prompt{1, 5, 600, 5}, output{5, 5, 9, 699}, ends{3, 650};
  const std::vector<std::pair<int32_t, float>> bias{{9, 2.f}, {40, -kInf}, {9, 1.5f}, {650, 3e38f}, {41, -3e38f}};
  std::vector<uint32_t> mask(22, 0x0f0f0f0fu);
  TokenDraw all{.params = {.temperature = 0.7f, .top_p = 0.95f},
                .penalties = {.repetition = 1.3f, .presence = -4.f, .frequency = 0.11f},
                .prompt = prompt,
                .output = output,
                .bias = bias,
                .ruled_out = ends};
  std::vector<float> logits;
  std::vector<TokenDraw> how;
  const auto add = [&](TokenDraw draw) {
    for (uint64_t i = 0; i < 4; ++i) {
      draw.random = {.seed = 3, .position = i};
      how.push_back(draw);
      logits.insert(logits.end(), row.begin(), row.end());
    }
  };
  add(all);
  add({.mask = mask});
  all.mask = mask;
  add(all);
  all.params = {.temperature = 0.f};
  add(all);
  std::ranges::fill(mask, 0u);
  add({.mask = mask});
  expect_ids(logits, how, "changed");
}

// Some of the rows, in any order, beside others that stay as they are.
TEST_F(CardDraw, DrawsFromTheRowsThatItIsGiven) {
  std::vector<float> logits = random_row(5 * 200, 2.f);
  float* const there = place(logits);
  const std::vector<int64_t> rows{4, 1};
  const std::vector<TokenDraw> how{{.random = {1, 2}}, {.random = {1, 3}}};
  const int* const ids = draws_.run({there, 200, 200}, rows, how, Stream::cuda(nullptr));
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_EQ(ids[i], RowDraw().draw(std::span(logits).subspan(static_cast<size_t>(200 * rows[i]), 200), how[i]));
  EXPECT_EQ(fetch(there, logits.size()), logits);
  EXPECT_EQ(draws_.run({there, 200, 200}, {}, {}, Stream::cuda(nullptr)), nullptr);
}

// Of the first rows, where none are named; ids that stay on the card, and what the next synchronisation says of them.
TEST_F(CardDraw, LeavesIdsOnTheCard) {
  std::vector<float> logits = random_row(3 * 100, 2.f);
  std::fill(logits.begin() + 100, logits.begin() + 200, -kInf);
  float* const there = place(logits);
  const auto rows_of = [](float* data, Device device) { return TensorView(data, DType::fp32, {3, 100}, device); };
  const std::vector<SamplingParams> params{{}, {.top_k = 5}, {.temperature = 0.f}};
  std::vector<Philox> on_cpu{{1, 5}, {2, 6}, {3, 7}}, on_card = on_cpu;
  std::vector<int32_t> expected(3);
  int32_t* const ids = poisoned<int32_t>(3);
  const TensorView card_ids(ids, DType::int32, {3}, Device::cuda(0));
  const auto refused = [](const auto& call, ErrorCode code, const char* named) {
    try {
      call();
      ADD_FAILURE() << "accepted: " << named;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), code) << error.what();
      EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << error.what();
    }
  };
  const Stream stream = Stream::cuda(nullptr);
  const TensorView of_cpu = rows_of(logits.data(), Device::cpu()), of_card = rows_of(there, Device::cuda(0));
  refused([&] { sample_rows(of_cpu, params, on_cpu, TensorView(expected.data(), DType::int32, {3})); },
          ErrorCode::invalid_argument, "sample_rows: row 1: each of the 100 logits");
  sample_rows(of_card, params, on_card, card_ids, stream);
  EXPECT_EQ(expected[1], -1);
  EXPECT_EQ(fetch(ids, 3), expected);
  EXPECT_EQ(on_card, on_cpu);
  EXPECT_EQ(on_card, (std::vector<Philox>{{1, 6}, {2, 7}, {3, 7}}));
  refused([&] { stream.synchronize(); }, ErrorCode::invalid_argument, "its id is -1");
  EXPECT_NO_THROW(stream.synchronize());
  std::fill(there + 100, there + 200, 1.f);
  sample_rows(of_card, params, on_card, card_ids, stream);
  EXPECT_NO_THROW(stream.synchronize());
  const auto into = [&](const TensorView& to) {
    return [&, to] { sample_rows(of_card, params, on_card, to, stream); };
  };
  refused(into({}), ErrorCode::invalid_dtype, "ids");
  refused(into(TensorView(ids, DType::fp32, {3}, Device::cuda(0))), ErrorCode::invalid_dtype, "ids");
  refused(into(TensorView(ids, DType::int32, {2}, Device::cuda(0))), ErrorCode::invalid_shape, "ids");
  refused(into(TensorView(expected.data(), DType::int32, {3})), ErrorCode::invalid_device, "ids");
}

// sample_rows of a card's tensor, whose rows have gaps between them.
TEST_F(CardDraw, IsWhatSampleRowsGives) {
  std::vector<float> logits = random_row(3 * 100, 2.f);
  const std::array<int64_t, 2> shape{3, 90}, strides{100, 1};
  const auto rows_of = [&](float* data, Device device) {
    return TensorView(data, DType::fp32, shape, strides, device);
  };
  const std::vector<SamplingParams> params{{}, {.top_k = 5}, {.temperature = 0.f}};
  std::vector<Philox> on_cpu{{1, 5}, {2, 6}, {3, 7}}, on_card = on_cpu;
  float* const there = place(logits);
  const TensorView of_card = rows_of(there, Device::cuda(0));
  EXPECT_EQ(sample_rows(of_card, params, on_card, Stream::cuda(nullptr)),
            sample_rows(rows_of(logits.data(), Device::cpu()), params, on_cpu));
  EXPECT_EQ(on_card, on_cpu);
  EXPECT_EQ(on_card, (std::vector<Philox>{{1, 6}, {2, 7}, {3, 7}}));
  std::fill(there + 100, there + 200, -kInf);
  try {
    sample_rows(of_card, params, on_card, Stream::cuda(nullptr));
    ADD_FAILURE() << "a row without a token was drawn from";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sample_rows: row 1: each of the 90 logits"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(on_card, on_cpu);
}

// Few tokens down to where filters end and many, ties, no filter, rows in any order, and rows that are no
// probabilities.
TEST_F(CardDraw, OfProbabilitiesIsTheOneOfTheCpu) {
  constexpr int64_t kRows = 7, kVocab = 1500;
  std::vector<float> probs;
  for (int64_t row = 0; row < kRows; ++row) {
    std::vector<float> made = random_row(kVocab, row < 3 ? 3.f : 0.5f);
    for (float& x : made) x = std::exp(row == 2 ? std::round(x) : x);
    const float sum = std::accumulate(made.begin(), made.end(), 0.f);
    for (float& x : made) x /= row == 4 ? 1.f : row == 0 ? 2 * sum : sum;  // also less in all than top_p
    probs.insert(probs.end(), made.begin(), made.end());
  }
  probs[5 * kVocab + 11] = NAN;
  std::fill(probs.begin() + 6 * kVocab, probs.end(), 0.f);
  const std::vector<int32_t> rows{3, 0, 0, 2, 6, 5, 4, 7, -1, 1};
  const auto count = static_cast<int64_t>(rows.size());
  std::vector<int64_t> bits(rows.size());
  for (int64_t& x : bits) x = static_cast<int64_t>(static_cast<uint64_t>(random_()) << 32 | random_());
  const auto draw = [&](Device device, FilterOrder order, const std::vector<int32_t>& top_k,
                        const std::vector<float>& top_p, const std::vector<float>& min_p, bool are_named) {
    const auto there = [&](const auto& x) {
      auto* const data = const_cast<std::remove_cvref_t<decltype(x[0])>*>(x.data());
      return device == Device::cpu() ? data : place(x);
    };
    const auto view = [&](const auto& x, DType dtype) {
      return x.empty() ? TensorView() : TensorView(there(x), dtype, {static_cast<int64_t>(x.size())}, device);
    };
    std::vector<int32_t> ids(are_named ? rows.size() : static_cast<size_t>(kRows), -7);
    ProbabilityDraws draws{.probs = TensorView(there(probs), DType::fp32, {kRows, kVocab}, device),
                           .top_k = view(top_k, DType::int32),
                           .top_p = view(top_p, DType::fp32),
                           .min_p = view(min_p, DType::fp32),
                           .filter_order = order,
                           .rows = are_named ? view(rows, DType::int32) : TensorView(),
                           .bits = view(bits, DType::int64).slice(0, 0, static_cast<int64_t>(ids.size())),
                           .ids = view(ids, DType::int32)};
    sample_probabilities(draws, device == Device::cpu() ? Stream{} : Stream::cuda(nullptr));
    return device == Device::cpu() ? ids : fetch(draws.ids.as<int32_t>(), ids.size());
  };
  const auto expect = [&](FilterOrder order, const std::vector<int32_t>& top_k, const std::vector<float>& top_p,
                          const std::vector<float>& min_p, bool are_named, const char* what) {
    EXPECT_EQ(draw(Device::cuda(0), order, top_k, top_p, min_p, are_named),
              draw(Device::cpu(), order, top_k, top_p, min_p, are_named))
        << what;
  };
  EXPECT_EQ(count, 10);
  const std::vector<int32_t> few{3, 50, 4, 20, 9, 1, 1}, many{500, 700, 600, 1000, 400, 0, 9999};
  const std::vector<float> most{0.9f, 0.99f, 0.4f, 0.3f, 0.8f, 1.f, 0.f},
      least{0.01f, 0.5f, 0.f, 0.2f, 1.f, 0.1f, 0.1f};
  expect(FilterOrder::top_k_first, {}, {}, {}, false, "no filter");
  expect(FilterOrder::top_k_first, {}, {}, least, true, "min_p");
  expect(FilterOrder::top_k_first, few, {}, {}, true, "few");
  expect(FilterOrder::joint, {}, most, {}, true, "top_p");
  expect(FilterOrder::top_k_first, few, most, least, true, "few by all filters");
  expect(FilterOrder::top_k_first, many, most, {}, true, "many");
  testing::host_ctas_of_multiprocessor = 1;
  testing::host_multiprocessors = 2;
  expect(FilterOrder::joint, many, most, least, true, "many, joint, two CTAs a row");
}

}  // namespace
}  // namespace weft::ops
