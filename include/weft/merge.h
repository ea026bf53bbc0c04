// States of attention over parts of the keys, merged into the state over all of them (FlashInfer, section 2.2); and
// custom masks as bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/device.h"
#include "weft/tensor.h"

namespace weft {

// Merges n states a row: o [n, rows, heads, dim] (fp32, fp16 or bf16), lse [n, rows, heads] fp32 into
// o_out [rows, heads, dim], lse_out [rows, heads]. Associative and commutative up to rounding; the empty
// state is its identity. Weights follow from lse alone: beside a number of 1e9 float does not tell log(n). (FlashInfer,
// section 2.2.)
void merge_states(const TensorView& o, const TensorView& lse, const TensorView& o_out, const TensorView& lse_out,
                  Stream stream = {});
// A variable number a row: row r merges states [indptr[r], indptr[r + 1]) of o [nnz, heads, dim], lse [nnz, heads].
void merge_states(const TensorView& o, const TensorView& lse, std::span<const int32_t> indptr, const TensorView& o_out,
                  const TensorView& lse_out, Stream stream = {});

// Packs a flat bool mask, request r at [mask_indptr[r], mask_indptr[r + 1]), into little-endian bits, each
// request starting on a byte. Returns the bytes; `byte_indptr` [batch + 1] receives where each request starts.
// The bytes end with 4 of padding, so that a kernel may read words.
std::vector<uint8_t> pack_mask(std::span<const uint8_t> mask, std::span<const int64_t> mask_indptr,
                               std::vector<int64_t>& byte_indptr);

}  // namespace weft
