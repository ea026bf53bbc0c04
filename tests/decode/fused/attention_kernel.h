// A step's attention as a kernel of its own, made of the parts of the fused one: each CTA runs its items and merges its
// share of cells, while the last CTA brings the sums, as the phase before would. Readers look at cells that hold older
// phases until they hold what is expected.
#pragma once

#include "decode/fused/cuda/kernels/attention_args.h"

namespace weft::decode::fused {

struct AttentionKernelArgs {
  AttendArgs attend;
  MergeArgs merge;
  const CardItem* items = nullptr;
  const int* worker_indptr = nullptr;
  const CardHead* heads = nullptr;
  const CardRound* rounds = nullptr;
  const int* round_indptr = nullptr;
  const float* plain_sums = nullptr;  // [slots, rows, 16], which become `sums`
  unsigned long long *sums = nullptr, *states = nullptr, *attended = nullptr;
  int num_sums = 0, rows = 0;                         // rows: of the step
  int workers = 0, entry_bytes = 0, round_bytes = 0;  // round_bytes: of the heads of a round
  int shares = 1;                                     // of a cell's states: warps that would merge it
  unsigned phase = 0;                                 // of the sums; states have the next, attended the one behind it
  unsigned long long limit_ns = 0;
  unsigned* gave_up = nullptr;  // [workers]
};

}  // namespace weft::decode::fused

// each(symbol, element, head_dim, tokens of an item at most)
#define WEFT_ATTENTIONS(each)                                                                       \
  each(weft_attention_bf16_64, bf16, 64, 64) each(weft_attention_bf16_80, bf16, 80, 64)             \
      each(weft_attention_bf16_96, bf16, 96, 64) each(weft_attention_bf16_128, bf16, 128, 64)       \
          each(weft_attention_bf16_256, bf16, 256, 32) each(weft_attention_fp16_128, fp16, 128, 64) \
              each(weft_attention_bf16_32, bf16, 32, 32) each(weft_attention_bf16_16, bf16, 16, 32)
