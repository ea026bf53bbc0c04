// `weft bench attention`: lists of blocks instead of page tables: chosen pages, masked tiles, trees of tokens.
#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "attention/kernel.h"
#include "bench/calls.h"
#include "weft/block_sparse.h"
#include "weft/quest.h"

namespace weft::bench {
namespace {

// Steps of Quest over one request: each over pages that its own query chose, so many that none of them is still in the
// caches when its turn comes again.
struct QuestSteps {
  Job attention;
  std::vector<BlockLists> lists;
  std::vector<BlockSparse> blocks;
  double choice_s;
};

QuestSteps quest_steps(AttentionBench& bench, AttentionSpec spec, const Shape& shape, int kv_len, int page_size,
                       int budget) {
  spec.kv_form = KvForm::block_sparse;
  QuestSteps steps{.attention = {.kernel = build(spec, Device::cpu()), .batches = {}, .workspaces = {}},
                   .lists = {},
                   .blocks = {},
                   .choice_s = 0};
  std::vector<Batch>& batches = steps.attention.batches;
  const int64_t token_bytes = int64_t{2} * shape.kv_heads * shape.head_dim * bits_of(spec.kv_dtype) / 8;
  const int64_t held = kv_len * token_bytes, read = budget * page_size * token_bytes;
  const int64_t caches = bench.pool().bytes() / held, wanted = std::max(caches, bench.pool().bytes() / read);
  for (int64_t i = 0; i < wanted; ++i)
    batches.emplace_back(spec, shape, 1, std::vector<int>{kv_len}, page_size, bench.team.num_workers(),
                         bench.pool().data() + i % caches * held);

  const PageTableView& first = batches[0].input.pages;
  const TensorView sized(nullptr, DType::fp32, {first.num_pages, shape.kv_heads, shape.head_dim});
  std::vector<float> low(static_cast<size_t>(sized.size())), high(low.size());
  const PageSummaries summaries{TensorView(low.data(), DType::fp32, sized.shape()),
                                TensorView(high.data(), DType::fp32, sized.shape())};
  const std::vector<int32_t> all{0, kv_len};
  update_page_summaries(batches[0].tensors.kv.k, all, first, spec.layout, summaries, Stream::cpu(bench.team));
  std::vector<double> choice_s;
  for (Batch& batch : batches) {  // all by the first cache's summaries: any pages will do
    std::vector<float> q(static_cast<size_t>(shape.qo_heads * shape.head_dim));
    fill_random(q.data(), DType::fp32, static_cast<int64_t>(q.size()), static_cast<uint32_t>(choice_s.size()));
    std::vector<int32_t> selected;
    choice_s.push_back(seconds_of([&] {
      selected = choose_pages(TensorView(q.data(), DType::fp32, {1, shape.qo_heads, shape.head_dim}), summaries,
                              batch.qo_indptr, batch.input.pages, shape.kv_heads, budget, Stream::cpu(bench.team));
    }));
    steps.lists.push_back(select_pages(batch.input.pages, batch.qo_indptr, shape.kv_heads, selected, budget));
  }
  steps.choice_s = median(choice_s);
  for (const BlockLists& lists : steps.lists) steps.blocks.push_back(lists.view());
  for (size_t i = 0; i < batches.size(); ++i) {
    batches[i].input.pages = {};
    batches[i].input.blocks = &steps.blocks[i];
  }
  steps.attention.plan();
  return steps;
}

// Quest beside attention over everything: a step of a long context by the same step of a short one, by plain attention
// over as many keys, and with the choice of pages by attention over all of them.
void measure_quest(AttentionBench& bench, Layout layout, int budget) {
  const Shape shape{32, 8, 128};
  const int page_size = 16, longest = bench.options.quick ? 4096 : 65536;
  const std::string name =
      fmt::format("decode quest {}q/{}kv hd{} {} pages of {} {}, kv{}", shape.qo_heads, shape.kv_heads, shape.head_dim,
                  budget, page_size, layout == Layout::nhd ? "NHD" : "HND", longest);
  if (!bench.wants(name)) return;
  AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::none);
  spec.layout = layout;
  QuestSteps far = quest_steps(bench, spec, shape, longest, page_size, budget);
  const auto compare = [&](const std::string& by, Job& other, double choice_s = 0) {
    const auto [far_s, other_s] =
        bench.time_in_turns([&] { far.attention.run(bench.team); }, [&] { other.run(bench.team); });
    bench.report.add({"attention", fmt::format("{}{}", name, by), "rate", 1 / (far_s + choice_s), "1/s", 1 / other_s});
  };
  int64_t bytes;
  QuestSteps near = quest_steps(bench, spec, shape, longest / 8, page_size, budget);
  compare(fmt::format(" by kv{}", longest / 8), near.attention);
  Job plain = decode_job(bench, spec, shape, {budget * page_size}, page_size, bytes);
  compare(" by plain of as many keys", plain);
  Job whole = decode_job(bench, spec, shape, {longest}, page_size, bytes);
  compare(": choice and attention by all pages", whole, far.choice_s);
}

// A prompt of which half the tiles below the diagonal are masked, at random, beside the whole prompt, by the work left.
void measure_masked_tiles(AttentionBench& bench) {
  const int len = bench.options.quick ? 512 : 4096, rows = 64;
  for (const int head_dim : {64, 128})
    for (const int page_size : {64, 16}) {
      const Shape shape{32, 8, head_dim};
      const std::string name = fmt::format("prefill half of tiles of {}x{} by plain, {}q/{}kv hd{} {} tokens bf16",
                                           rows, page_size, shape.qo_heads, shape.kv_heads, head_dim, len);
      if (!bench.wants(name)) continue;
      AttentionSpec spec = make_spec(DType::bf16, head_dim, Mask::causal);
      const AttentionKernel plain = build(spec, Device::cpu());
      Batch batch(spec, shape, kWholePrompts, {len}, page_size, bench.team.num_workers());
      const int pages = len / page_size;
      std::vector<uint8_t> kept(static_cast<size_t>(len / rows * pages));
      std::mt19937 random(3);
      double pairs = 0;  // of a query and a key that it sees
      for (int block = 0; block < len / rows; ++block)
        for (int page = 0; page * page_size < (block + 1) * rows; ++page) {
          const bool below = (page + 1) * page_size <= block * rows;
          if (below && random() % 2 == 0) continue;
          kept[static_cast<size_t>(block * pages + page)] = 1;
          for (int row = block * rows; row < (block + 1) * rows; ++row)
            pairs += std::clamp(row + 1 - page * page_size, 0, page_size);
        }
      const BlockLists lists = blocks_from_importance(batch.input.pages, batch.qo_indptr, rows, kept);
      const BlockSparse blocks = lists.view();
      PlanInput input = batch.input;
      input.pages = {};
      input.blocks = &blocks;
      spec.kv_form = KvForm::block_sparse;
      const AttentionKernel masked = build(spec, Device::cpu());
      Workspace whole = placed(plain.plan(batch.input)), part = placed(masked.plan(input));
      const auto [part_s, whole_s] =
          bench.time_in_turns([&] { masked.run(part, batch.tensors, Stream::cpu(bench.team)); },
                              [&] { plain.run(whole, batch.tensors, Stream::cpu(bench.team)); }, 5);
      bench.report.add({"attention", name, "rate", 4. * shape.qo_heads * head_dim * pairs / part_s / 1e9, "GFLOP/s",
                        prefill_flops(shape, len, len) / whole_s / 1e9});
    }
}

// A tree of 64 draft tokens beside 64 tokens in a row.
void measure_tree(AttentionBench& bench) {
  const Shape shape{32, 8, 128};
  const int nodes = 64, kv_len = bench.options.quick ? 1024 : 4096;
  const std::string name = fmt::format("tree of {} nodes by as many tokens in a row, {}q/{}kv hd{} kv{} bf16", nodes,
                                       shape.qo_heads, shape.kv_heads, shape.head_dim, kv_len);
  if (!bench.wants(name)) return;
  AttentionSpec spec = make_spec(DType::bf16, shape.head_dim, Mask::causal);
  const AttentionKernel row_kernel = build(spec, Device::cpu());
  Batch batch(spec, shape, nodes, {kv_len}, 16, bench.team.num_workers());
  std::vector<int32_t> parent(static_cast<size_t>(nodes));
  for (int i = 0; i < nodes; ++i) parent[static_cast<size_t>(i)] = (i + 1) / 2 - 1;  // two children each
  const BlockLists lists = blocks_from_tree(batch.input.pages, batch.qo_indptr, parent);
  const BlockSparse blocks = lists.view();
  PlanInput input = batch.input;
  input.pages = {};
  input.blocks = &blocks;
  spec.kv_form = KvForm::block_sparse;
  spec.mask = Mask::none;
  const AttentionKernel tree_kernel = build(spec, Device::cpu());
  Workspace row = placed(row_kernel.plan(batch.input)), tree = placed(tree_kernel.plan(input));
  const auto [tree_s, row_s] =
      bench.time_in_turns([&] { tree_kernel.run(tree, batch.tensors, Stream::cpu(bench.team)); },
                          [&] { row_kernel.run(row, batch.tensors, Stream::cpu(bench.team)); });
  bench.report.add({"attention", name, "rate", 1 / tree_s, "1/s", 1 / row_s});
}

}  // namespace

void measure_block_lists(AttentionBench& bench) {
  for (const Layout layout : {Layout::nhd, Layout::hnd})
    for (const int budget : bench.options.quick ? std::vector{16} : std::vector{64, 512})
      measure_quest(bench, layout, budget);
  measure_masked_tiles(bench);
  measure_tree(bench);
}

}  // namespace weft::bench
