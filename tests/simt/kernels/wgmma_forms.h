// Products of a warpgroup in every form that is in use: width, type, where A lies, which way the operands run, and how
// they are swizzled. With integers the same bytes on a card and in the host machine say that the machine believes the
// right thing of descriptors, swizzles and fragments.
#pragma once

#include "tests/simt/kernels/args.h"
#include "tile/cuda/ptx/barrier.h"
#include "tile/cuda/ptx/proxy_fence.h"
#include "tile/cuda/warpgroup.h"

namespace weft {

template <abi::MatrixTile kTile>
WEFT_INLINE void fill(const tile::PanelTile<kTile>& to, const void* from) {
  constexpr int kChunks = kTile.columns / 8;
  for (int i = ptx::thread_index(); i < kTile.rows * kChunks; i += 128)
    *reinterpret_cast<Bytes16*>(to.chunk(i / kChunks, i % kChunks)) = static_cast<const Bytes16*>(from)[i];
}

template <abi::Major major, abi::MatrixTile kTile>
WEFT_INLINE ptx::MatrixDescriptor<major> operand_of(const tile::PanelTile<kTile>& from, int k) {
  if constexpr (major == abi::Major::k)
    return from.rows(0, k);
  else
    return from.columns(k, 0);
}

// Four registers of A, rows of kFormDepth elements, for steps k to k + 15.
WEFT_INLINE void load_form_a(u32 (&a)[4], const void* from, int k) {
  for (int r = 0; r < 4; ++r) {
    const int row = tile::warpgroup_row(2 * (r % 2)), column = k + ptx::lane() % 4 * 2 + r / 2 * 8;
    a[r] = static_cast<const u32*>(from)[(row * kFormDepth + column) / 2];
  }
}

template <class T, int form>
WEFT_INLINE void run_form(const WgmmaFormArgs& args) {
  constexpr WgmmaForm kForm = forms::kAll[form];
  const tile::PanelTile<kForm.a_tile()> a{ptx::shared_memory()};
  const tile::PanelTile<kForm.b_tile()> b{ptx::shared_memory() + 64 * 128};
  if (!kForm.a_in_registers) fill(a, args.a);
  fill(b, args.b);
  ptx::fence_async_shared();
  ptx::cta_sync();
  u32 own[kFormDepth / 16][4];
  if constexpr (kForm.a_in_registers) {
    WEFT_UNROLL
    for (int k = 0; k < kFormDepth; k += 16) load_form_a(own[k / 16], args.a, k);
    ptx::hold_registers(own);
  }
  float d[kForm.n / 2];
  WEFT_UNROLL
  for (int r = 0; r < kForm.n / 2; ++r) d[r] = static_cast<float>(7 - tile::warpgroup_row(r));
  ptx::wgmma_fence(d);
  WEFT_UNROLL
  for (int k = 0; k < kFormDepth; k += 16) {
    const bool accumulates = k > 0 || form % 2 == 1;
    const auto of_b = operand_of<kForm.b>(b, k);
    if constexpr (kForm.a_in_registers)
      tile::multiply_async<T>(d, own[k / 16], of_b, accumulates);
    else
      tile::multiply_async<T>(d, operand_of<kForm.a>(a, k), of_b, accumulates);
  }
  ptx::wgmma_commit();
  ptx::wgmma_wait<0>(d);
  WEFT_UNROLL
  for (int r = 0; r < kForm.n / 2; ++r) args.d[tile::warpgroup_row(r) * kForm.n + tile::warpgroup_column(r)] = d[r];
}

}  // namespace weft

// A kernel of its own for each form, which takes up to a second to compile: WEFT_WGMMA_FORM(8) is weft_wgmma_form_8.
#define WEFT_WGMMA_FORM(i)                                                            \
  WEFT_KERNEL(128, 1) void weft_wgmma_form_##i(WEFT_PARAM weft::WgmmaFormArgs args) { \
    if constexpr (weft::forms::kAll[i].bf16)                                          \
      weft::run_form<weft::bf16, i>(args);                                            \
    else                                                                              \
      weft::run_form<weft::fp16, i>(args);                                            \
  }
