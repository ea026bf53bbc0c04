// Batches of attention on a card, over some part of the bench's pool.
//
//   const AttentionKernel kernel = kernel_of(bench, batch_case, Mask::none);
//   CardBatch batch(bench, batch_case, kernel, bench.pool(), 1);
//   kernel.run(batch.plan, batch.tensors, bench.stream());
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/batch.h"
#include "bench/cuda/card.h"
#include "weft/attention.h"

namespace weft::bench {

inline constexpr int kWindow = 1024;

// Queries and outputs in bf16, NHD.
struct CardCase {
  std::string name;
  Shape shape;
  std::vector<int> qo_lens, kv_lens;
  int page_size = 16;  // 0: keys of a request follow each other, the ragged form
  PlanMode mode = PlanMode::balanced;
  int prefix = 0;            // tokens in whole pages that stand before those of every request
  bool finds_levels = true;  // or every request reads the prefix for itself
  Variant variant = {};
  bool has_window = false;
  bool is_latent = false;  // a token is one row of head_dim elements, of which all but kRope are its value
  std::optional<Loader> loader = {};
  DType kv_dtype = DType::bf16;
  KvScales kv_scales = KvScales::none;  // of tokens, or of the tensor

  static constexpr int kRope = 64;
  int value_dim() const { return is_latent ? shape.head_dim - kRope : shape.head_dim; }
  int64_t token_bytes() const {
    return int64_t{shape.kv_heads} * shape.head_dim * (is_latent ? 1 : 2) * bits_of(kv_dtype) / 8;
  }
  int64_t scale_bytes() const { return kv_scales == KvScales::token ? int64_t{8} * shape.kv_heads : 0; }
  int pages_of(int tokens) const { return page_size == 0 ? tokens : (tokens + page_size - 1) / page_size; }
  int64_t cache_bytes() const;  // of all pages, or tokens
};

AttentionKernel kernel_of(CardBench& bench, const CardCase& of, Mask mask);

struct CardBatch {
  // Keys and values lie at `cache`, pages shuffled by `seed`. The plan is uploaded.
  CardBatch(CardBench& bench, const CardCase& of, const AttentionKernel& kernel, char* cache, unsigned seed);

  CardBatch(const CardBatch&) = delete;  // its input names its own arrays
  CardBatch& operator=(const CardBatch&) = delete;

  std::vector<int32_t> qo_indptr{0}, kv_indptr{0}, page_indices, last_page_len;  // kv_indptr: in pages, or tokens
  PlanInput input;
  PlanBounds bounds;
  Workspace q, o, plan, slopes, scales;
  AttentionTensors tensors;
  int64_t bytes_read = 0;  // of the cache and its scales, at least

 private:
  void lay_requests(const CardCase& of, unsigned seed);
  void set_input(const CardCase& of, const AttentionKernel& kernel);
  void set_tensors(CardBench& bench, const CardCase& of, char* cache);
  void give_scales(CardBench& bench, const CardCase& of);
  void give_params(CardBench& bench, const CardCase& of);
};

// A row's kernel, and batches of it that lie side by side in the pool and take turns.
class Prepared {
 public:
  Prepared(CardBench& bench, const CardCase& row, Mask mask);
  double bytes() const { return static_cast<double>(batches_[0]->bytes_read); }
  CardBench::Runs runs() const;

 private:
  CardBench& bench_;
  AttentionKernel kernel_;
  std::vector<std::unique_ptr<CardBatch>> batches_;
};

}  // namespace weft::bench
