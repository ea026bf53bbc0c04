// What each instruction of tile/cuda/ptx does with known numbers: the same words on a card and in the host machine say
// that the machine believes the right thing of it (fragment layouts above all).
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/element.h"
#include "tile/cuda/ptx/atomic.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/cp_async.h"
#include "tile/cuda/ptx/cvt.h"
#include "tile/cuda/ptx/ldmatrix.h"
#include "tile/cuda/ptx/math.h"
#include "tile/cuda/ptx/mma.h"
#include "tile/cuda/ptx/shuffle.h"

namespace weft {

// Small integers, different in every register of every lane, as halves.
template <bool bf16>
WEFT_INLINE u32 small(int lane, int i) {
  const float low = static_cast<float>((lane * 7 + i * 3) % 13 - 6),
              high = static_cast<float>((lane * 5 + i * 11) % 17 - 8);
  return bf16 ? ptx::to_bf16x2(low, high) : ptx::to_fp16x2(low, high);
}

}  // namespace weft

WEFT_KERNEL(32, 1) void weft_instructions(WEFT_PARAM weft::InstructionsArgs args) {
  using namespace weft;
  const int lane = ptx::lane();
  u8* const shared = ptx::shared_memory();
  int at = 0;
  // Words of all lanes, one behind the other, in the order of what follows.
  const auto tell = [&](u32 word) { args.words[32 * at++ + lane] = word; };
  const auto tell_all = [&](const float(&d)[4]) {
    for (int i = 0; i < 4; ++i) tell(ptx::to_bits(d[i]));
  };

  tell(ptx::shuffle_xor(static_cast<u32>(lane * lane), 5));
  tell(ptx::shuffle(static_cast<u32>(lane * lane), (lane + 7) % 32));
  tell(ptx::ballot(lane * lane % 3 == 1));

  // Rows of 16 bytes, each lane's own, in an order that no layout has by itself.
  u16* const halves = reinterpret_cast<u16*>(shared);
  for (int i = 0; i < 8; ++i) halves[8 * lane + i] = static_cast<u16>(1000 * lane + i);
  ptx::warp_sync();
  u32 r[4];
  ptx::ldmatrix_x4(r, halves + 8 * (lane * 5 % 32));
  for (int i = 0; i < 4; ++i) tell(r[i]);
  ptx::ldmatrix_x4_trans(r, halves + 8 * (lane * 5 % 32));
  for (int i = 0; i < 4; ++i) tell(r[i]);

  const u32 a[4] = {small<false>(lane, 0), small<false>(lane, 1), small<false>(lane, 2), small<false>(lane, 3)};
  float d[4] = {static_cast<float>(lane), 0.f, -1.f, 2.f};
  ptx::mma_m16n8k8_fp16(d, a[0], a[1], small<false>(lane, 4));
  tell_all(d);
  ptx::mma_m16n8k16_fp16(d, a, small<false>(lane, 4), small<false>(lane, 5));
  tell_all(d);
#if WEFT_SM >= 80
  const u32 b[4] = {small<true>(lane, 0), small<true>(lane, 1), small<true>(lane, 2), small<true>(lane, 3)};
  ptx::mma_m16n8k8_bf16(d, b[0], b[1], small<true>(lane, 4));
  tell_all(d);
  ptx::mma_m16n8k16_bf16(d, b, small<true>(lane, 4), small<true>(lane, 5));
  tell_all(d);
#else
  at += 8;
#endif

  ptx::warp_sync();
  ptx::cp_async_16(shared + 16 * lane, args.numbers + 4 * lane, lane % 17);
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  for (int i = 0; i < 4; ++i) tell(reinterpret_cast<const u32*>(shared)[4 * lane + i]);

  tell(ptx::atomic_add(args.counters + lane, 3));
  tell(ptx::atomic_add_acq_rel(args.counters + lane, 4));
  tell(ptx::atomic_or(args.counters + lane, 0x100));
  tell(ptx::load_acquire(args.counters + lane));
  ptx::store_release(args.counters + lane, static_cast<u32>(lane));
  ptx::fence_gpu();

  for (int i = 0; i < 4; ++i) {
    const float x = args.numbers[4 * lane + i], y = args.numbers[(4 * lane + i + 1) % 128];
    tell(ptx::to_fp16x2(x, y));
    tell(ptx::to_bf16x2(x, y));
    tell(ptx::to_bits(ptx::from_fp16(static_cast<u16>((lane * 1019 + i * 7) & 0xbfff))));
    tell(ptx::to_bits(ptx::larger(x, y)));
    tell(ptx::to_bits(ptx::square_root(x < 0.f ? -x : x)));
    tell(ptx::and_or(ptx::to_bits(x), 0x0f0ff00fu, ptx::to_bits(y)));
#if WEFT_SM >= 80
    tell(ptx::multiply_add_bf16x2(ptx::to_bf16x2(x, 128.f + static_cast<float>(lane)), ptx::to_bf16x2(y, 1.f),
                                  ptx::to_bf16x2(x, -136.f)));
#else
    ++at;
#endif
    tell(ptx::permute(ptx::to_bits(x), ptx::to_bits(y), 0x2715u));
#if WEFT_SM >= 89
    u32 low, high;
    ptx::from_e4m3x4(static_cast<u32>(lane * 0x04040404 + i * 0x01010101 + 0x03020100), low, high);
    tell(low);
    tell(high);
#else
    at += 2;
#endif
    args.near[32 * i + lane] = ptx::exp2_fast(static_cast<float>(lane) * 0.37f - 3.f * static_cast<float>(i));
    args.near[128 + 32 * i + lane] = ptx::log2_fast(static_cast<float>(lane + 32 * i) * 0.37f + 0.01f);
  }
  tell(static_cast<u32>(ptx::least_of_lanes(lane * 7 % 32 - 9)));
  tell(ptx::shuffle_among<8>(static_cast<u32>(lane * lane), 3) +
       3 * ptx::shuffle_among<32>(static_cast<u32>(lane), 19));
#if WEFT_SM >= 80
  u32 t[6];
  for (int i = 0; i < 6; ++i) t[i] = ptx::to_bits(static_cast<float>((lane * 7 + i * 3) % 13 - 6));
  float s[4] = {static_cast<float>(lane), 0.f, -1.f, 2.f};
  ptx::mma_m16n8k8_tf32(s, {t[0], t[1], t[2], t[3]}, t[4], t[5]);
  tell_all(s);
#endif
}
