#include "bench/cuda/batch.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "attention/kernel.h"
#include "device/cuda/memory.h"
#include "weft/levels.h"

namespace weft::bench {

int64_t CardCase::cache_bytes() const {
  int64_t pages = pages_of(prefix);
  for (const int len : kv_lens) pages += pages_of(len);
  return pages * std::max(page_size, 1) * token_bytes();
}

AttentionKernel kernel_of(CardBench& bench, const CardCase& of, Mask mask) {
  AttentionSpec spec = make_spec(DType::bf16, of.shape.head_dim, mask, of.variant);
  spec.sliding_window = of.has_window;
  spec.kv_dtype = of.kv_dtype;
  spec.kv_scales = of.kv_scales;
  if (of.page_size == 0) spec.kv_form = KvForm::ragged;
  if (of.is_latent) spec.kv_form = KvForm::latent;
  spec.head_dim_vo = of.value_dim();
  spec.loader = of.loader;
  return build(spec, bench.device());
}

CardBatch::CardBatch(CardBench& bench, const CardCase& of, const AttentionKernel& kernel, char* cache, unsigned seed) {
  lay_requests(of, seed);
  set_input(of, kernel);
  set_tensors(bench, of, cache);
  give_scales(bench, of);
  give_params(bench, of);
  const bool finds_levels = of.prefix > 0 && of.finds_levels;
  const SharedLevels levels = finds_levels ? levels_from_page_tables(kernel, input) : SharedLevels();
  const Plan made = kernel.plan(levels.apply(input));
  plan = Workspace(bench.device(), made.workspace_bytes());
  made.upload(plan, bench.stream());
  bench.stream().synchronize();
}

void CardBatch::lay_requests(const CardCase& of, unsigned seed) {
  std::vector<int32_t> ids(static_cast<size_t>(of.cache_bytes() / of.token_bytes() / std::max(of.page_size, 1)));
  std::iota(ids.begin(), ids.end(), 0);
  std::shuffle(ids.begin(), ids.end(), std::mt19937(seed));
  const auto behind_prefix = ids.begin() + of.pages_of(of.prefix);
  bytes_read = of.prefix * (of.token_bytes() + of.scale_bytes());
  for (auto [r, own] = std::pair{size_t{0}, behind_prefix}; r < of.kv_lens.size(); ++r) {
    const int pages = of.pages_of(of.kv_lens[r]);
    page_indices.insert(page_indices.end(), ids.begin(), behind_prefix);
    page_indices.insert(page_indices.end(), own, own + pages);
    own += pages;
    qo_indptr.push_back(qo_indptr.back() + of.qo_lens[r]);
    kv_indptr.push_back(static_cast<int32_t>(page_indices.size()));
    last_page_len.push_back(of.kv_lens[r] - (pages - 1) * of.page_size);
    bytes_read += of.kv_lens[r] * (of.token_bytes() + of.scale_bytes());
  }
}

// With bounds: a run is captured.
void CardBatch::set_input(const CardCase& of, const AttentionKernel& kernel) {
  const int64_t pages = of.cache_bytes() / of.token_bytes() / std::max(of.page_size, 1);
  const bool paged = of.page_size > 0;
  input = {.num_qo_heads = of.shape.qo_heads, .num_kv_heads = of.shape.kv_heads, .qo_indptr = qo_indptr};
  if (paged)
    input.pages = {of.page_size, pages, kv_indptr, page_indices, last_page_len};
  else
    input.kv_indptr = kv_indptr;
  input.mode = of.mode;
  if (of.mode == PlanMode::fixed_split) input.fixed_split_size = 512;
  bounds = {.max_requests = static_cast<int>(of.kv_lens.size()),
            .max_rows = qo_indptr.back(),
            .max_qo_len = of.prefix > 0 ? 0 : *std::max_element(of.qo_lens.begin(), of.qo_lens.end()),
            .max_pages = paged ? static_cast<int64_t>(page_indices.size()) : 0,
            .max_levels = of.prefix > 0 ? 2 : 1,
            .max_kv_len = of.prefix + *std::max_element(of.kv_lens.begin(), of.kv_lens.end()),
            .page_size = of.page_size,
            .num_qo_heads = of.shape.qo_heads,
            .num_kv_heads = of.shape.kv_heads,
            .workers = kernel.impl().traits.most_default_workers(),
            .mode = of.mode,
            .fixed_split_size = input.fixed_split_size};
  input.bounds = &bounds;
}

void CardBatch::set_tensors(CardBench& bench, const CardCase& of, char* cache) {
  const int64_t rows = qo_indptr.back(), heads = of.shape.qo_heads, dim = of.shape.head_dim;
  const auto q_bytes = static_cast<size_t>(rows * heads * dim * 2);
  q = Workspace(bench.device(), q_bytes);
  o = Workspace(bench.device(), static_cast<size_t>(rows * heads * of.value_dim() * 2));
  cuda::copy_on_card(bench.card(), q.data(), bench.pool(), q_bytes,
                     static_cast<cuda::api::Stream>(bench.stream().handle()));
  tensors.q = TensorView(q.data(), DType::bf16, {rows, heads, dim}, bench.device());
  tensors.o = TensorView(o.data(), DType::bf16, {rows, heads, of.value_dim()}, bench.device());
  const int64_t tokens = of.cache_bytes() / of.token_bytes();
  if (of.is_latent) {
    const std::vector<int64_t> pages{tokens / of.page_size, of.page_size, dim};
    tensors.kv = KvCache::latent(TensorView(cache, DType::bf16, pages, bench.device()));
    tensors.sm_scale = 1 / std::sqrt(192.f);
    return;
  }
  std::vector<int64_t> shape{tokens, of.shape.kv_heads, dim};
  if (of.page_size > 0) shape = {tokens / of.page_size, of.page_size, of.shape.kv_heads, dim};
  const TensorView k(cache, of.kv_dtype, shape, bench.device());
  tensors.kv = {k, TensorView(cache + k.size() * bits_of(of.kv_dtype) / 8, of.kv_dtype, shape, bench.device())};
}

// Small ones, so that logits are of the usual size.
void CardBatch::give_scales(CardBench& bench, const CardCase& of) {
  if (of.kv_scales == KvScales::none) return;
  std::vector<int64_t> shape(tensors.kv.k.shape().begin(), tensors.kv.k.shape().end());
  shape.back() = 1;
  if (of.kv_scales != KvScales::token) std::fill(shape.begin(), shape.end(), 1);
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  const std::vector<float> small(static_cast<size_t>(2 * count), 0x1p-6f);
  scales = Workspace(bench.device(), small.size() * sizeof(float));
  cuda::copy_to_card(bench.card(), scales.data(), small.data(), scales.bytes(),
                     static_cast<cuda::api::Stream>(bench.stream().handle()));
  bench.stream().synchronize();  // then the host's copy goes
  auto* const of_keys = static_cast<float*>(scales.data());
  tensors.kv.k_scale = TensorView(of_keys, DType::fp32, shape, bench.device());
  tensors.kv.v_scale = TensorView(of_keys + count, DType::fp32, shape, bench.device());
}

// What the variants of these rows declare.
void CardBatch::give_params(CardBench& bench, const CardCase& of) {
  if (of.has_window) input.scalars = {{"window_left", kWindow}};
  for (const ScalarDecl& scalar : of.variant.scalars) tensors.scalars.push_back({scalar.name, 30.});
  if (of.variant.tensors.empty()) return;
  std::vector<float> of_heads;
  for (int head = 1; head <= of.shape.qo_heads; ++head)
    of_heads.push_back(std::exp2(-8.f * static_cast<float>(head) / static_cast<float>(of.shape.qo_heads)));
  slopes = Workspace(bench.device(), of_heads.size() * sizeof(float));
  cuda::copy_to_card(bench.card(), slopes.data(), of_heads.data(), slopes.bytes(),
                     static_cast<cuda::api::Stream>(bench.stream().handle()));
  tensors.tensors = {
      {of.variant.tensors[0].name, TensorView(slopes.data(), DType::fp32, {of.shape.qo_heads}, bench.device())}};
}

Prepared::Prepared(CardBench& bench, const CardCase& row, Mask mask)
    : bench_(bench), kernel_(kernel_of(bench, row, mask)) {
  const int64_t size = row.cache_bytes();
  for (int i = 0; i < bench.pieces(static_cast<size_t>(size)); ++i)
    batches_.push_back(
        std::make_unique<CardBatch>(bench, row, kernel_, bench.pool() + i * size, static_cast<unsigned>(i)));
}

CardBench::Runs Prepared::runs() const {
  constexpr int kFewestRuns = 8;
  return {std::max(static_cast<int>(batches_.size()), kFewestRuns), [this](int i) {
            CardBatch& batch = *batches_[static_cast<size_t>(i) % batches_.size()];
            kernel_.run(batch.plan, batch.tensors, bench_.stream());
          }};
}

}  // namespace weft::bench
