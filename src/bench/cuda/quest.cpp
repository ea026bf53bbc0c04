#include "bench/cuda/quest.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

#include "attention/kernel.h"
#include "bench/cuda/batch.h"
#include "bench/measure.h"
#include "device/cuda/memory.h"
#include "weft/block_sparse.h"
#include "weft/quest.h"

namespace weft::bench {
namespace {

constexpr int kPageSize = 16;

struct QuestCase {
  Shape shape;
  int kv_len, budget;

  int pages() const { return kv_len / kPageSize; }
  int chosen() const { return std::min(budget, pages()); }
  int64_t token_bytes() const { return int64_t{shape.kv_heads} * shape.head_dim * 4; }
  int64_t cache_bytes() const { return kv_len * token_bytes(); }
  int64_t summary_bytes() const { return int64_t{pages()} * shape.kv_heads * shape.head_dim * 4; }
  std::string name() const {
    return fmt::format("decode quest {}q/{}kv hd{} page{} bf16 {} pages kv{}", shape.qo_heads, shape.kv_heads,
                       shape.head_dim, kPageSize, budget, kv_len);
  }
};

// Steps of one request in bf16. Each has queries, summaries and chosen pages of its own, and all share a plan, as
// layers do. Summaries and keys are whatever the pool holds: a choice takes as long whatever it falls on.
class QuestSteps {
 public:
  QuestSteps(CardBench& bench, const QuestCase& of) : bench_(bench), of_(of), kernel_(build(spec(of), bench.device())) {
    const int64_t rows = of.shape.qo_heads * of.shape.head_dim;
    o_ = Workspace(bench.device(), static_cast<size_t>(rows) * 2);
    lengths_ = Workspace(bench.device(), static_cast<size_t>(of.pages() + 1) * sizeof(int32_t));
    std::vector<int32_t> ints(static_cast<size_t>(of.pages()));
    std::iota(ints.begin(), ints.end(), 0);
    std::shuffle(ints.begin(), ints.end(), std::mt19937(1));
    ints.push_back(of.kv_len);
    cuda::copy_to_card(bench.card(), lengths_.data(), ints.data(), lengths_.bytes(),
                       static_cast<cuda::api::Stream>(bench.stream().handle()));
    auto* const table = static_cast<int32_t*>(lengths_.data());
    batch_.kv_len = TensorView(table + of.pages(), DType::int32, {1}, bench.device());
    batch_.page_table = TensorView(table, DType::int32, {1, of.pages()}, bench.device());
    batch_.num_pages = of.pages();
    scratch_ = Workspace(bench.device(), choose_pages_bytes(1, of.shape.kv_heads, of.pages()));
    plan();
    bench.stream().synchronize();
  }
  CardBench::Runs runs() const {
    return {count(), [this](int i) {
              choose(i);
              attend(i);
            }};
  }
  CardBench::Runs choices() const {
    return {count(), [this](int i) { choose(i); }};
  }

 private:
  static AttentionSpec spec(const QuestCase& of) {
    AttentionSpec spec = make_spec(DType::bf16, of.shape.head_dim, Mask::none);
    spec.kv_form = KvForm::block_sparse;
    return spec;
  }
  int count() const { return std::max(bench_.pieces(static_cast<size_t>(of_.summary_bytes())), 8); }

  void plan() {
    const BlockLists lists = pages_to_set({.batch = 1,
                                           .page_size = kPageSize,
                                           .num_pages = of_.pages(),
                                           .num_kv_heads = of_.shape.kv_heads,
                                           .budget = of_.chosen()});
    const BlockSparse blocks = lists.view();
    const std::vector<int32_t> qo_indptr{0, 1};
    const PlanBounds bounds{.max_requests = 1,
                            .max_rows = 1,
                            .max_pages = int64_t{of_.shape.kv_heads} * of_.chosen(),
                            .max_kv_len = of_.chosen() * kPageSize,
                            .page_size = kPageSize,
                            .num_qo_heads = of_.shape.qo_heads,
                            .num_kv_heads = of_.shape.kv_heads,
                            .workers = kernel_.impl().traits.most_default_workers(),
                            .block_rows = 1,
                            .positions_per_block = 1};
    const Plan made = kernel_.plan({.num_qo_heads = of_.shape.qo_heads,
                                    .num_kv_heads = of_.shape.kv_heads,
                                    .qo_indptr = qo_indptr,
                                    .blocks = &blocks,
                                    .bounds = &bounds});
    plan_ = Workspace(bench_.device(), made.workspace_bytes());
    made.upload(plan_, bench_.stream());
    planned_ = kernel_.planned_pages(plan_);
  }

  // The i-th of pieces of the pool, of so many bytes.
  char* piece(int i, int64_t bytes) const {
    return bench_.pool() + i % static_cast<int64_t>(bench_.pool_bytes() / static_cast<size_t>(bytes)) * bytes;
  }
  TensorView queries(int i) const {
    const int64_t heads = of_.shape.qo_heads, dim = of_.shape.head_dim;
    return TensorView(piece(i, heads * dim * 2), DType::bf16, {1, heads, dim}, bench_.device());
  }
  void choose(int i) const {
    const int64_t heads = of_.shape.kv_heads, dim = of_.shape.head_dim;
    char* const from = piece(i, of_.summary_bytes());
    const auto side = [&](char* data) {
      return TensorView(data, DType::bf16, {of_.pages(), heads, dim}, bench_.device());
    };
    choose_pages(queries(i), {side(from), side(from + of_.summary_bytes() / 2)}, batch_, planned_, scratch_,
                 bench_.stream());
  }
  void attend(int i) const {
    const int64_t heads = of_.shape.kv_heads, dim = of_.shape.head_dim;
    char* const from = piece(i, of_.cache_bytes());
    const auto side = [&](char* data) {
      return TensorView(data, DType::bf16, {of_.pages(), kPageSize, heads, dim}, bench_.device());
    };
    const TensorView o(o_.data(), DType::bf16, {1, of_.shape.qo_heads, dim}, bench_.device());
    kernel_.run(plan_, {.q = queries(i), .kv = {side(from), side(from + of_.cache_bytes() / 2)}, .o = o},
                bench_.stream());
  }

  CardBench& bench_;
  QuestCase of_;
  AttentionKernel kernel_;
  Workspace o_, lengths_, scratch_;
  mutable Workspace plan_;
  DeviceBatch batch_;
  PlannedPages planned_;
};

void measure(CardBench& bench, BenchReport& report, const QuestCase& of) {
  const QuestSteps steps(bench, of);
  const int keys = of.chosen() * kPageSize;
  const Prepared plain(bench, {"", of.shape, {1}, {keys}, kPageSize}, Mask::none);
  const CardBench::Turns turns = bench.time_in_turns(steps.runs(), plain.runs());
  const CardBench::Beside choice = bench.time_beside_read(steps.choices(), static_cast<size_t>(of.summary_bytes()));
  report.add({"attention", of.name(), "time", turns.first * 1e6, "us"});
  report.add({"attention", of.name(), "time over plain decode of as many pages", turns.first / turns.second, "x"});
  report.add({"attention", of.name(), "choice", static_cast<double>(of.summary_bytes()) / choice.seconds / 1e9, "GB/s",
              choice.ceiling / 1e9});
}

}  // namespace

void measure_quest(CardBench& bench, const BenchOptions& options, BenchReport& report) {
  for (const int kv_heads : {8, 32})
    for (const int kv_len : {4096, 32768})
      for (const int budget : {64, 128, 256, 512}) {
        const QuestCase row{{32, kv_heads, 128}, kv_len, budget};
        if (row.name().find(options.only) != std::string::npos) measure(bench, report, row);
      }
}

}  // namespace weft::bench
