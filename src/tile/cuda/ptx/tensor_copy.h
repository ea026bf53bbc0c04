// Copies of boxes of tensors, which one thread starts by coordinates and the card makes behind its back (from sm_90
// on). In shared memory a box lies as its map's swizzle says, at a multiple of abi::alignment_of. They go through the
// async proxy (proxy_fence.h).
//
//   mbarrier_arrive_expect(full, args.keys.layout.box_bytes());
//   tensor_load(tile, args.keys, {0, first_key}, full);
#pragma once

#include "tile/abi/tensor_map.h"
#include "tile/cuda/ptx/bulk_copy.h"

namespace weft::ptx {

#if WEFT_SM >= 90
// A member of the kernel's argument (WEFT_PARAM), and never a copy of it.
using abi::TensorMap;

// Asked for before the first copy needs it.
WEFT_INLINE void prefetch_map(const TensorMap& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }

#define WEFT_TENSOR_LOAD(dims_, coordinates, ...)                                                              \
  if constexpr (dims == dims_)                                                                                 \
  asm volatile("cp.async.bulk.tensor." #dims_                                                                  \
               "d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, {" coordinates \
               "}], [%2], %3;" ::"r"(shared_address(shared)),                                                  \
               "l"(&map), "r"(shared_address(barrier)), "l"(policy), __VA_ARGS__                               \
               : "memory")
// The box whose least corner is at(0), at(1), ... of its dimensions, of which at(0) is a multiple of 16 bytes: a card
// takes others for an illegal instruction. What lies outside of the tensor is zeros. All its bytes count at `barrier`
// (mbarrier.h), whose phase under way expects them.
template <int dims>
WEFT_INLINE void tensor_load(void* shared, const TensorMap& map, const int (&at)[dims], u64* barrier,
                             CachePolicy policy) {
  WEFT_TENSOR_LOAD(1, "%4", "r"(at[0]));
  WEFT_TENSOR_LOAD(2, "%4, %5", "r"(at[0]), "r"(at[1]));
  WEFT_TENSOR_LOAD(3, "%4, %5, %6", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  WEFT_TENSOR_LOAD(4, "%4, %5, %6, %7", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  WEFT_TENSOR_LOAD(5, "%4, %5, %6, %7, %8", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]));
}
#undef WEFT_TENSOR_LOAD

#define WEFT_TENSOR_STORE(dims_, coordinates, ...)                                                 \
  if constexpr (dims == dims_)                                                                     \
  asm volatile("cp.async.bulk.tensor." #dims_ "d.global.shared::cta.bulk_group [%0, {" coordinates \
               "}], [%1];" ::"l"(&map),                                                            \
               "r"(shared_address(shared)), __VA_ARGS__                                            \
               : "memory")
// The other way, from no corner before the tensor; what lies behind it is left out. bulk_commit and bulk_wait
// (bulk_copy.h) count it.
template <int dims>
WEFT_INLINE void tensor_store(const TensorMap& map, const int (&at)[dims], const void* shared) {
  WEFT_TENSOR_STORE(1, "%2", "r"(at[0]));
  WEFT_TENSOR_STORE(2, "%2, %3", "r"(at[0]), "r"(at[1]));
  WEFT_TENSOR_STORE(3, "%2, %3, %4", "r"(at[0]), "r"(at[1]), "r"(at[2]));
  WEFT_TENSOR_STORE(4, "%2, %3, %4, %5", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]));
  WEFT_TENSOR_STORE(5, "%2, %3, %4, %5, %6", "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]));
}
#undef WEFT_TENSOR_STORE
#endif

}  // namespace weft::ptx
