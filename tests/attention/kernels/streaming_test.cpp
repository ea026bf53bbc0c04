// StreamingLLM from parts that are there: a page table without the middle, two intervals, keys turned by their place.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/attention/kernels/target.h"
#include "weft/attention.h"

namespace weft {
namespace {

using testing::Target;

constexpr int kSinks = 5, kWindow = 70, kPage = 16, kHeads = 2, kGroup = 3, kDim = 16, kHalf = kDim / 2;
constexpr int kSinkPages = 1, kRing = (kWindow + kPage - 2) / kPage + 1, kPages = 2 * (kSinkPages + kRing);

const Variant& streaming() {
  static const Variant v{
      .name = "Streaming",
      .text = R"(struct Streaming {
  static real turned(P p, Vec x, int i, Row r) {
    const int place = r.pos < p.sinks ? r.pos : r.pos - p.gap(r.batch), half = x.size() / 2;
    const real angle = real(place) * p.frequency(i < half ? i : i - half);
    return x[i] * weft::cos(angle) + weft::pair_halves(x, i) * weft::sin(angle);
  }
  real query_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
  real key_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
};
)",
      .scalars = {{"sinks", ScalarKind::integer}, {"window", ScalarKind::integer}},
      .tensors = {{"frequency"}, {"gap", DType::int32}},
      .intervals = {{.upper = {{.scalar = "sinks"}}},
                    {.lower = {{.q_pos = true, .constant = 1, .scalar = "window", .scalar_sign = -1}}}}};
  return v;
}

// Token t of stream r, element d of head h.
double number(int what, int r, int t, int h, int d) {
  uint32_t x = 0;
  for (const int part : {what, r, t, h, d}) x = (x ^ x >> 16 ^ static_cast<uint32_t>(part)) * 0x9e3779b9u;
  x = (x ^ x >> 15) * 0x85ebca6bu;
  return static_cast<double>((x ^ x >> 13) % 2001) / 1000 - 1;
}

double turned(int what, int r, int t, int h, int place, int d) {
  const double angle = place * std::pow(100., -static_cast<double>(d % kHalf) / kHalf);
  const double other = number(what, r, t, h, (d + kHalf) % kDim);
  return number(what, r, t, h, d) * std::cos(angle) + (d < kHalf ? -other : other) * std::sin(angle);
}

TEST(Streaming, AttendsSinksAndWindowAtTheirPlacesHoweverLongTheStream) {
  const std::vector<ScalarArg> scalars{{"sinks", kSinks}, {"window", kWindow}};
  std::vector<float> frequencies;
  for (int i = 0; i < kHalf; ++i) frequencies.push_back(static_cast<float>(std::pow(100., -double(i) / kHalf)));
  for (const auto& lengths : {std::pair{3, 75}, {76, 80}, {160, 333}, {81, 100000}}) {
    const int length[2] = {lengths.first, lengths.second};
    // What is not kept is NaN.
    std::vector<float> k(kPages * kPage * kHeads * kDim, NAN), v(k), q, o(2 * kHeads * kGroup * kDim);
    std::vector<int32_t> ids, indptr{0}, last_len, gap;
    for (int r = 0; r < 2; ++r) {
      const int last = (length[r] - 1) / kPage, oldest = std::max(kSinkPages, std::max(0, length[r] - kWindow) / kPage);
      const auto page_of = [&](int page) {
        return r * (kSinkPages + kRing) + (page < kSinkPages ? page : kSinkPages + (page - kSinkPages) % kRing);
      };
      for (int page = 0; page <= last; page = page + 1 == kSinkPages ? oldest : page + 1) ids.push_back(page_of(page));
      indptr.push_back(static_cast<int32_t>(ids.size()));
      last_len.push_back((length[r] - 1) % kPage + 1);
      gap.push_back(std::max(0, length[r] - kWindow - kSinks) - (oldest - kSinkPages) * kPage);
      for (int t = 0; t < length[r]; t = t + 1 == kSinks ? std::max(t + 1, length[r] - kWindow) : t + 1)
        for (int h = 0; h < kHeads; ++h)
          for (int d = 0; d < kDim; ++d) {
            const auto at = static_cast<size_t>(((page_of(t / kPage) * kPage + t % kPage) * kHeads + h) * kDim + d);
            k[at] = static_cast<float>(number(0, r, t, h, d));
            v[at] = static_cast<float>(number(1, r, t, h, d));
          }
      for (int h = 0; h < kHeads * kGroup; ++h)
        for (int d = 0; d < kDim; ++d) q.push_back(static_cast<float>(number(2, r, length[r] - 1, h, d)));
    }
    const TensorView keys(k.data(), DType::fp32, {kPages, kPage, kHeads, kDim});
    for (const Target* target : testing::targets()) {
      const AttentionKernel kernel =
          build_on(*target, {.head_dim_qk = kDim, .head_dim_vo = kDim, .variant = streaming()});
      const std::vector<int32_t> qo_indptr{0, 1, 2};
      const Plan plan = kernel.plan({.num_qo_heads = kHeads * kGroup,
                                     .num_kv_heads = kHeads,
                                     .qo_indptr = qo_indptr,
                                     .pages = {kPage, kPages, indptr, ids, last_len},
                                     .num_workers = 2,
                                     .scalars = scalars});
      run_on(*target, kernel, plan,
             {.q = TensorView(q.data(), DType::fp32, {2, kHeads * kGroup, kDim}),
              .kv = {keys, TensorView(v.data(), DType::fp32, keys.shape())},
              .o = TensorView(o.data(), DType::fp32, {2, kHeads * kGroup, kDim}),
              .scalars = scalars,
              .tensors = {{"frequency", TensorView(frequencies.data(), DType::fp32, {kHalf})},
                          {"gap", TensorView(gap.data(), DType::int32, {2})}}});
      for (int r = 0; r < 2; ++r)
        for (int h = 0; h < kHeads * kGroup; ++h) {
          std::vector<double> mean(kDim, 0.);
          double sum = 0;
          const int kept = std::min(length[r], kSinks + kWindow);
          for (int place = 0; place < kept; ++place) {
            const int t = place < kSinks ? place : length[r] - kept + place;
            double s = 0;
            for (int d = 0; d < kDim; ++d)
              s += turned(2, r, length[r] - 1, h, kept - 1, d) * turned(0, r, t, h / kGroup, place, d);
            const double p = std::exp(s / std::sqrt(double{kDim}));
            sum += p;
            for (int d = 0; d < kDim; ++d) mean[static_cast<size_t>(d)] += p * number(1, r, t, h / kGroup, d);
          }
          for (int d = 0; d < kDim; ++d)
            ASSERT_NEAR(o[static_cast<size_t>((r * kHeads * kGroup + h) * kDim + d)],
                        mean[static_cast<size_t>(d)] / sum, 1e-5)
                << target->name() << " stream " << r << " of " << length[r] << " head " << h;
        }
    }
  }
}

}  // namespace
}  // namespace weft
