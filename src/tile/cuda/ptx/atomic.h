// Words that several threads change, in global memory unless said otherwise. What an acquire reads orders what lies
// behind it after all that lay before the release.
#pragma once

#include "tile/cuda/ptx/thread.h"

namespace weft::ptx {

// The old value. Releases what this thread did and saw before, acquires what others released.
WEFT_INLINE u32 atomic_add_acq_rel(u32* p, u32 x) {
  u32 old;
  asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(p)), "r"(x)
               : "memory");
  return old;
}
// The old value. Releases, acquires nothing: one more of those whom somebody waits for.
WEFT_INLINE u32 atomic_add_release(u32* p, u32 x) {
  u32 old;
  asm volatile("atom.release.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(p)), "r"(x)
               : "memory");
  return old;
}
// The old value; orders nothing.
WEFT_INLINE u32 atomic_add(u32* p, u32 x) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(p)), "r"(x)
               : "memory");
  return old;
}
// The same in shared memory of the CTA.
WEFT_INLINE u32 atomic_add_shared(u32* p, u32 x) {
  u32 old;
  asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], %2;"
               : "=r"(old)
               : "r"(shared_address(p)), "r"(x)
               : "memory");
  return old;
}
WEFT_INLINE u32 atomic_or(u32* p, u32 x) {
  u32 old;
  asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], %2;"
               : "=r"(old)
               : "l"(__cvta_generic_to_global(p)), "r"(x)
               : "memory");
  return old;
}
WEFT_INLINE u32 load_acquire(const u32* p) {
  u32 x;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(x) : "l"(__cvta_generic_to_global(p)) : "memory");
  return x;
}
WEFT_INLINE void store_release(u32* p, u32 x) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "r"(x) : "memory");
}
// Of 8 bytes at once, which order nothing: a value beside the number that says which one it is.
WEFT_INLINE u64 load_relaxed(const u64* p) {
  u64 x;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(x) : "l"(__cvta_generic_to_global(p)) : "memory");
  return x;
}
// Two that lie side by side, 16-byte aligned: each is whole, and either may be the older one.
WEFT_INLINE void load_relaxed(const u64* p, u64 (&x)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.b64 {%0, %1}, [%2];"
               : "=l"(x[0]), "=l"(x[1])
               : "l"(__cvta_generic_to_global(p))
               : "memory");
}
WEFT_INLINE void store_relaxed(u64* p, u64 x) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(p)), "l"(x) : "memory");
}
// Two that lie side by side, 16-byte aligned: each becomes visible whole, and either may first.
WEFT_INLINE void store_relaxed(u64* p, const u64 (&x)[2]) {
  asm volatile("st.relaxed.gpu.global.v2.b64 [%0], {%1, %2};" ::"l"(__cvta_generic_to_global(p)), "l"(x[0]), "l"(x[1])
               : "memory");
}
// Words of shared memory by which threads of a CTA tell each other how far they are; they order nothing.
WEFT_INLINE u32 load_relaxed_shared(const u32* p) {
  u32 x;
  asm volatile("ld.relaxed.cta.shared::cta.u32 %0, [%1];" : "=r"(x) : "r"(shared_address(p)) : "memory");
  return x;
}
WEFT_INLINE void store_relaxed_shared(u32* p, u32 x) {
  asm volatile("st.relaxed.cta.shared::cta.u32 [%0], %1;" ::"r"(shared_address(p)), "r"(x) : "memory");
}
// Between plain accesses and a relaxed atomic on either side makes of it a release or an acquire.
WEFT_INLINE void fence_gpu() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace weft::ptx
