#include "vec_probe.h"

#include "tile/cpu/convert.h"
#include "tile/cpu/exp.h"
#include "tile/cpu/int_dot.h"

namespace weft::testing::WEFT_ISA_NAME {
namespace {

using namespace weft::tile::WEFT_ISA_NAME;

void probe_exp(const float* x, float* y) { store(y, exp(load(x))); }
void probe_expm1(const float* x, float* y) { store(y, expm1(load(x))); }
#if defined(WEFT_HAS_BF16_DOT)
void probe_exp2_for_bf16(const float* x, float* y) { store(y, exp2_for_bf16(load(x))); }
#else
constexpr void (*probe_exp2_for_bf16)(const float*, float*) = nullptr;
#endif
void probe_transpose(const float* x, float* y) {
  F32 rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = load(x + i * kLanes);
  transpose(rows);
  for (int i = 0; i < kLanes; ++i) store(y + i * kLanes, rows[i]);
}
void probe_sum_each(const float* x, float* y) {
  F32 rows[kLanes];
  for (int i = 0; i < kLanes; ++i) rows[i] = load(x + i * kLanes);
  store(y, sum_each(rows));
}
void probe_widen(const void* x, int element, int n, float* y) {
  const char* from = static_cast<const char*>(x);
  if (element == 0) return widen<Fp32>(from, n, y);
  if (element == 1) return widen<Fp16>(from, n, y);
  if (element == 3) return widen<E4m3>(from, n, y);
  if (element == 4) return widen<E5m2>(from, n, y);
  if (element == 5) return widen<Int8>(from, n, y);
  if (element == 6) return widen<Int4>(from, n, y);
  widen<Bf16>(from, n, y);
}
void probe_narrow(const float* x, int n, void* y, int element) {
  char* to = static_cast<char*>(y);
  if (element == 0) return narrow<Fp32>(x, n, to);
  if (element == 1) return narrow<Fp16>(x, n, to);
  narrow<Bf16>(x, n, to);
}
void probe_split_i16(const int* x, signed char* high, signed char* low) {
  const SplitI16 split = split_i16(load_u32(x) + 128u);
  store_u8(high, split.high);
  store_u8(low, split.low);
}
void probe_dot_shorts(const int* acc, const void* a, const void* b, int* sum) {
  store_u32(sum, reinterpret_cast<U32>(dot_shorts(reinterpret_cast<I32>(load_u32(acc)), load_u32(a), load_u32(b))));
}

}  // namespace

extern const VecProbe kProbe;
const VecProbe kProbe = {kLanes,         probe_exp,   probe_expm1,  probe_exp2_for_bf16, probe_transpose,
                         probe_sum_each, probe_widen, probe_narrow, probe_split_i16,     probe_dot_shorts};

}  // namespace weft::testing::WEFT_ISA_NAME
