// `weft bench plan --device cuda:0`: what a step of 256 requests costs the host before its kernels run, and an even
// plan the card that makes it.
#include <fmt/format.h>

#include <random>

#include "attention/kernel.h"
#include "bench/cuda/batch.h"
#include "bench/measure.h"
#include "device/cuda/memory.h"

namespace weft::bench {
namespace {

constexpr int kRequests = 256, kMostTokens = 1024, kPagesOfRequest = kMostTokens / 16;

CardCase decode_case(bool uniform) {
  CardCase of{.name = uniform ? "uniform" : "1024", .shape = {32, 8, 128}, .qo_lens = {}, .kv_lens = {}};
  std::mt19937 random(7);
  for (int r = 0; r < kRequests; ++r) {
    of.qo_lens.push_back(1);
    of.kv_lens.push_back(uniform ? 1 + static_cast<int>(random() % kMostTokens) : kMostTokens);
  }
  return of;
}

struct Rows {
  CardBench& bench;
  BenchReport& report;
  std::string name;
  void add(const char* metric, double seconds, double ceiling_s = 0) const {
    report.add({"plan", name, metric, seconds * 1e6, "us", ceiling_s * 1e6});
  }
};

void measure_host(const Rows& rows, const AttentionKernel& kernel, CardBatch& batch, CardBatch& other) {
  CardBench& bench = rows.bench;
  const Stream stream = bench.stream();
  batch.input.borrow_page_ids = other.input.borrow_page_ids = true;  // as the forward pass does
  batch.input.mode = PlanMode::paper;
  batch.bounds.mode = PlanMode::paper;
  const double paper = bench.host_seconds([&] { (void)kernel.plan(batch.input); });
  batch.input.mode = batch.bounds.mode = PlanMode::balanced;
  rows.add("host: plan and upload", bench.host_seconds([&] { kernel.plan(batch.input).upload(batch.plan, stream); }));
  rows.add("host: plan, by the paper's Algorithm 1", bench.host_seconds([&] { (void)kernel.plan(batch.input); }),
           paper);
  const Plan plans[] = {kernel.plan(batch.input), kernel.plan(other.input)};
  rows.add("host: upload", bench.host_seconds([&] { plans[0].upload(batch.plan, stream); }));

  const double launch = bench.host_launch_seconds();
  const auto run = [&] { kernel.run(batch.plan, batch.tensors, stream); };
  rows.add("host: eager run, by an empty launch", bench.host_seconds(run), launch);
  const cuda::Graph graph = bench.capture(run);
  int turn = 0;
  rows.add("host: upload and replay, by an empty launch", bench.host_seconds([&] {
    plans[++turn % 2].upload(batch.plan, stream);
    cuda::launch(graph, static_cast<cuda::api::Stream>(stream.handle()));
  }),
           launch);
}

// int32 numbers on the card.
struct OnCard {
  OnCard(CardBench& bench, const std::vector<int32_t>& numbers, std::initializer_list<int64_t> shape)
      : memory(bench.device(), numbers.size() * sizeof(int32_t)),
        view(memory.data(), DType::int32, shape, bench.device()) {
    cuda::copy_to_card(bench.card(), memory.data(), numbers.data(), memory.bytes(),
                       static_cast<cuda::api::Stream>(bench.stream().handle()));
    bench.stream().synchronize();
  }
  Workspace memory;
  TensorView view;
};

// Of the same lengths, which only the card knows, and pages in order.
void measure_even(const Rows& rows, const AttentionKernel& kernel, const CardBatch& batch, const CardCase& of) {
  CardBench& bench = rows.bench;
  PlanBounds bounds = batch.bounds;
  bounds.mode = PlanMode::even;
  bounds.max_kv_len = kMostTokens;
  bounds.max_pages = kRequests * kPagesOfRequest;
  std::vector<int32_t> pages(kRequests * kPagesOfRequest);
  for (size_t i = 0; i < pages.size(); ++i) pages[i] = static_cast<int32_t>(i);
  const OnCard kv_len(bench, of.kv_lens, {kRequests}), table(bench, pages, {kRequests, kPagesOfRequest});
  const DeviceBatch device_batch{
      .kv_len = kv_len.view, .page_table = table.view, .num_pages = static_cast<int64_t>(pages.size())};
  Workspace workspace(bench.device(), kernel.workspace_bytes(bounds));
  const auto plan = [&] { kernel.plan_on_device(device_batch, bounds, workspace, bench.stream()); };
  rows.add("card: even plan, by an empty node", bench.time(16, [&](int) { plan(); }), bench.node_seconds(false));
  rows.add("host: even plan enqueued", bench.host_seconds(plan));
}

}  // namespace

void measure_plan_on_card(const BenchOptions& options, BenchReport& report) {
  CardBench bench(options.device);
  report.note(fmt::format("{}: {}; host: until the call returns, nothing enqueued before it; medians",
                          to_string(options.device), bench.card().name()));
  for (const bool uniform : {false, true}) {
    if (uniform && options.quick) continue;
    const CardCase of = decode_case(uniform);
    const AttentionKernel kernel = kernel_of(bench, of, Mask::none);
    CardBatch batch(bench, of, kernel, bench.pool(), 1), other(bench, of, kernel, bench.pool(), 2);
    const Rows rows{bench, report,
                    fmt::format("{} decode requests, kv {}, page 16, {} workers", kRequests, of.name,
                                kernel.impl().traits.most_default_workers())};
    measure_host(rows, kernel, batch, other);
    measure_even(rows, kernel, batch, of);
  }
}

}  // namespace weft::bench
