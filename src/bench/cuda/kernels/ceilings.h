// What a card can do at most: reading memory, and products of warps on registers.
#pragma once

#include "tile/cuda/element.h"
#include "tile/cuda/ptx/mma.h"
#include "tile/cuda/ptx/thread.h"

namespace weft::bench {

struct CeilingArgs {
  const void* from;
  unsigned* to;     // written where a sum is a number that none is
  long long count;  // of 16 bytes, or rounds of products
};

WEFT_INLINE void read(const CeilingArgs& args) {
  const Bytes16* const from = static_cast<const Bytes16*>(args.from);
  const i64 step = static_cast<i64>(ptx::num_ctas()) * ptx::num_threads();
  u32 sum = 0;
  i64 i = static_cast<i64>(ptx::cta_index()) * ptx::num_threads() + ptx::thread_index();
  constexpr int kTogether = 8;
  const auto read_next = [&](const auto& is_there) {
    Bytes16 x[kTogether] = {};
    WEFT_UNROLL
    for (int k = 0; k < kTogether; ++k)
      if (is_there(k)) x[k] = from[i + k * step];
    WEFT_UNROLL
    for (int k = 0; k < kTogether; ++k) sum += x[k].word[0] ^ x[k].word[1] ^ x[k].word[2] ^ x[k].word[3];
  };
  for (; i + (kTogether - 1) * step < args.count; i += kTogether * step) read_next([](int) { return true; });
  read_next([&](int k) { return i + k * step < args.count; });
  if (sum == 0x9e3779b9u) *args.to = sum;
}

struct GatherCeilingArgs {
  const int* indices;
  const void* rows;
  unsigned* to;
  long long count;
  int pieces;  // of 16 bytes in a row
};

// A row by as many threads as it has pieces; each has several rows on their way.
WEFT_INLINE void gather(const GatherCeilingArgs& args) {
  const Bytes16* const rows = static_cast<const Bytes16*>(args.rows);
  const i64 thread = static_cast<i64>(ptx::cta_index()) * ptx::num_threads() + ptx::thread_index();
  const i64 piece = thread % args.pieces;
  const i64 step = static_cast<i64>(ptx::num_ctas()) * ptx::num_threads() / args.pieces;
  u32 sum = 0;
  i64 e = thread / args.pieces;
  constexpr int kTogether = 4;
  for (; e + (kTogether - 1) * step < args.count; e += kTogether * step) {
    Bytes16 x[kTogether];
    WEFT_UNROLL
    for (int k = 0; k < kTogether; ++k) x[k] = rows[static_cast<i64>(args.indices[e + k * step]) * args.pieces + piece];
    WEFT_UNROLL
    for (int k = 0; k < kTogether; ++k) sum += x[k].word[0] ^ x[k].word[1] ^ x[k].word[2] ^ x[k].word[3];
  }
  for (; e < args.count; e += step) sum += rows[static_cast<i64>(args.indices[e]) * args.pieces + piece].word[0];
  if (sum == 0x9e3779b9u) *args.to = sum;
}

// 16 products a round, each of 16 x 8 x 16 multiply-adds.
WEFT_INLINE void multiply(const CeilingArgs& args) {
  float d[16][4] = {};
  const u32 one = static_cast<u32>(ptx::lane());
  const u32 a[4] = {one, one + 1, one + 2, one + 3};
  for (i64 round = 0; round < args.count; ++round) {
    WEFT_UNROLL
    for (int i = 0; i < 16; ++i) ptx::mma_m16n8k16_fp16(d[i], a, one, one);
  }
  float sum = 0;
  WEFT_UNROLL
  for (int i = 0; i < 16; ++i) sum += d[i][0] + d[i][1] + d[i][2] + d[i][3];
  if (sum == 1.2345f) *args.to = 1;
}

}  // namespace weft::bench

WEFT_KERNEL(512, 1) void weft_read(WEFT_PARAM weft::bench::CeilingArgs args) { weft::bench::read(args); }
WEFT_KERNEL(256, 1) void weft_gather(WEFT_PARAM weft::bench::GatherCeilingArgs args) { weft::bench::gather(args); }
WEFT_KERNEL(256, 1) void weft_multiply(WEFT_PARAM weft::bench::CeilingArgs args) { weft::bench::multiply(args); }
