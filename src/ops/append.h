// Page append as a backend gets it: checked, keys and values alike.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "weft/attention.h"
#include "weft/tensor.h"

namespace weft::ops {

// A cache tensor as [pages][slots][heads][dim] whatever its layout, or its scales.
struct CacheRows {
  char* data = nullptr;
  int64_t page_stride = 0, slot_stride = 0, head_stride = 0;  // elements
  int64_t bits = 0;
  char* at(int64_t page, int64_t slot, int64_t head) const {
    return data + (page * page_stride + slot * slot_stride + head * head_stride) * bits / 8;
  }
};

// Keys or values, and where they go.
struct AppendSide {
  TensorView rows;  // [nnz, heads, dim]
  CacheRows cache, scales;
  int64_t group = 1;  // tokens of a page that share a scale
  DType dtype = DType::fp32;
};

struct AppendCall {
  std::array<AppendSide, 2> sides;  // of one group
  std::span<const int32_t> append_indptr;
  PageTableView pages;
  TensorView places;  // instead of the two: page and slot of each row, on the device
  KvScales kv_scales = KvScales::none;
  // From token on they are written, by the largest magnitude of each, or of a group of tokens.
  bool writes_scales() const { return kv_scales >= KvScales::token; }
};

}  // namespace weft::ops
