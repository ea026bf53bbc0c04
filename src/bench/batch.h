// Some requests over a paged cache with shuffled pages, filled with random numbers.
//
//   Batch batch(spec, {32, 8, 128}, 1, std::vector<int>(16, 8192), 16, team.num_workers());
//   kernel.run(kernel.plan(batch.input), batch.tensors, workspace);
#pragma once

#include <cstdint>
#include <vector>

#include "weft/attention.h"

namespace weft::bench {

struct Shape {
  int qo_heads, kv_heads, head_dim;
};

// All three types the same, both head dims too.
AttentionSpec make_spec(DType dtype, int head_dim, Mask mask, const Variant& variant = {});

// Random numbers of about [-1, 1] in fp32, fp16 or bf16, or any bytes for narrower types, 8 elements at a time: a large
// cache fills quickly.
void fill_random(void* data, DType dtype, int64_t n, unsigned seed);

inline constexpr int kWholePrompts = -1;

struct Batch {
  // `qo_len`: query tokens of each request, or kWholePrompts: as many as it has keys.
  // `cache`: where keys and values lie; null: in memory of their own.
  Batch(const AttentionSpec& spec, const Shape& shape, int qo_len, const std::vector<int>& kv_lens, int page_size,
        int threads, char* cache = nullptr);

  std::vector<int32_t> qo_indptr{0}, page_indptr{0}, page_indices, last_page_len;
  PlanInput input;
  Workspace q, k, v, o, scales;
  AttentionTensors tensors;
};

}  // namespace weft::bench
