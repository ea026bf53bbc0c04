// Lesson 8: a stream without end (StreamingLLM). The cache keeps the first few tokens, on which models rest much of
// their attention, and a window of recent ones; memory and time stay the same however long the stream.
//
// Three parts that are there make it:
//  - a page table without the middle: the pages of the sinks, then a ring of pages for the window;
//  - two intervals, as in lesson 2: positions below `sinks`, and the last `window`;
//  - keys stored before their rotation, as in lesson 3, and turned by their place in the cache: sinks at 0 to 3, the
//    window behind them. `gap` is how many slots of the table lie between the two and are seen by nobody.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "weft/attention.h"

using namespace weft;

namespace {

constexpr int kSinks = 4, kWindow = 20, kPage = 8, kDim = 32, kHalf = kDim / 2;
constexpr int kSinkPages = (kSinks + kPage - 1) / kPage, kRing = (kWindow + kPage - 2) / kPage + 1;
constexpr int kPages = kSinkPages + kRing;

constexpr const char* kText = R"(struct Streaming {
  static real turned(P p, Vec x, int i, Row r) {
    const int place = r.pos < p.sinks ? r.pos : r.pos - p.gap(r.batch), half = x.size() / 2;
    const real angle = real(place) * p.frequency(i < half ? i : i - half);
    return x[i] * weft::cos(angle) + weft::pair_halves(x, i) * weft::sin(angle);
  }
  real query_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
  real key_transform(P p, Vec x, int i, Row r) { return turned(p, x, i, r); }
};
)";

float frequency(int pair) { return static_cast<float>(std::pow(10000., -double(pair) / kHalf)); }
// Token t of the stream: what its projections made of it.
float query_of(int t, int d) { return std::sin(0.31f * static_cast<float>(t % 1000 + 3 * d)); }
float key_of(int t, int d) {
  return std::sin(0.73f * static_cast<float>(t % 1000) + 0.17f * static_cast<float>(d * d));
}
float value_of(int t, int d) { return std::cos(0.11f * static_cast<float>(t % 1000 + 5 * d)); }

// By hand: the sinks and the last tokens, each turned by its place among those kept.
double by_hand(int length, int d) {
  std::vector<int> kept;
  for (int t = 0; t < length; ++t)
    if (t < kSinks || t >= length - kWindow) kept.push_back(t);
  const auto turned = [](auto of, int t, int place, int i) {
    const int pair = i % kHalf;
    const double angle = place * double{frequency(pair)}, x = of(t, i), other = of(t, (i + kHalf) % kDim);
    return x * std::cos(angle) + (i < kHalf ? -other : other) * std::sin(angle);
  };
  const int last = static_cast<int>(kept.size()) - 1;
  double sum = 0, mean = 0;
  for (int place = 0; place <= last; ++place) {
    double s = 0;
    for (int i = 0; i < kDim; ++i)
      s += turned(query_of, length - 1, last, i) * turned(key_of, kept[static_cast<size_t>(place)], place, i);
    const double p = std::exp(s / std::sqrt(double{kDim}));
    sum += p;
    mean += p * double{value_of(kept[static_cast<size_t>(place)], d)};
  }
  return mean / sum;
}

}  // namespace

int main() try {
  AttentionSpec spec{.head_dim_qk = kDim, .head_dim_vo = kDim, .mask = Mask::causal};
  spec.variant = {.name = "Streaming",
                  .text = kText,
                  .scalars = {{"sinks", ScalarKind::integer}, {"window", ScalarKind::integer}},
                  .tensors = {{"frequency"}, {"gap", DType::int32}}};
  spec.variant.intervals = {{.upper = {{.scalar = "sinks"}}},
                            {.lower = {{.q_pos = true, .constant = 1, .scalar = "window", .scalar_sign = -1}}}};
  const AttentionKernel kernel = build(spec, Device::cpu());

  std::vector<float> k(kPages * kPage * kDim, NAN), v(k), q(kDim), o(kDim), frequencies(kHalf);
  for (int i = 0; i < kHalf; ++i) frequencies[static_cast<size_t>(i)] = frequency(i);
  const TensorView keys(k.data(), DType::fp32, {kPages, kPage, 1, kDim}), values(v.data(), DType::fp32, keys.shape());
  // Which of the pool's pages holds the stream's page.
  const auto page_of = [](int page) { return page < kSinkPages ? page : kSinkPages + (page - kSinkPages) % kRing; };

  double worst = 0, early = 0, late = 0;  // costs of plans
  bool right = true;
  for (int length = 1; length <= 3000; ++length) {
    const int t = length - 1, at = (page_of(t / kPage) * kPage + t % kPage) * kDim;
    for (int d = 0; d < kDim; ++d) {
      k[static_cast<size_t>(at + d)] = key_of(t, d);
      v[static_cast<size_t>(at + d)] = value_of(t, d);
      q[static_cast<size_t>(d)] = query_of(t, d);
    }
    if (length > 100 && length < 2950) continue;  // the stream flows on

    // The table: pages of the sinks, then from the window's oldest page on. `dropped` pages lie between.
    std::vector<int32_t> ids;
    const int last = t / kPage, oldest = std::max(kSinkPages, std::max(0, length - kWindow) / kPage);
    for (int page = 0; page <= std::min(kSinkPages - 1, last); ++page) ids.push_back(page_of(page));
    for (int page = oldest; page <= last; ++page) ids.push_back(page_of(page));
    const int dropped = oldest - kSinkPages;
    const std::vector<int32_t> indptr{0, static_cast<int32_t>(ids.size())}, last_len{t % kPage + 1}, qo_indptr{0, 1};
    const std::vector<int32_t> gap{std::max(0, length - kWindow - kSinks) - dropped * kPage};

    const Plan plan = kernel.plan({.num_qo_heads = 1,
                                   .num_kv_heads = 1,
                                   .qo_indptr = qo_indptr,
                                   .pages = {kPage, kPages, indptr, ids, last_len},
                                   .num_workers = 1,
                                   .scalars = {{"sinks", kSinks}, {"window", kWindow}}});
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    kernel.run(plan,
               {.q = TensorView(q.data(), DType::fp32, {1, 1, kDim}),
                .kv = {keys, values},
                .o = TensorView(o.data(), DType::fp32, {1, 1, kDim}),
                .scalars = {{"sinks", kSinks}, {"window", kWindow}},
                .tensors = {{"frequency", TensorView(frequencies.data(), DType::fp32, {kHalf})},
                            {"gap", TensorView(gap.data(), DType::int32, {1})}}},
               workspace);
    for (int d = 0; d < kDim; ++d) {
      const double error = std::abs(double{o[static_cast<size_t>(d)]} - by_hand(length, d));
      worst = std::max(worst, error);
      right = right && error < 1e-5;
    }
    double& cost = length <= 100 ? early : late;
    cost = std::max(cost, plan.makespan());
    if (length == 100 || length == 3000)
      std::printf("%4d tokens: %zu pages in the table, cost of the plan %.0f\n", length, ids.size(), plan.makespan());
  }
  std::printf("largest difference from the stream by hand: %.1e\n", worst);
  return right && late == early ? 0 : 1;
} catch (const Error& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
