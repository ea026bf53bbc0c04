// Products with integer keys and values: rows of 16 bits, split into two signed bytes, times bytes as they are stored.
// The same members as those of products.h, for few rows and for many.
#pragma once

#include "attention/cpu/kernels/item.h"
#include "attention/cpu/kernels/split_int8.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

class Int8Keys {
 public:
  Int8Keys(Item& item, Arena& arena);
  static int slice_tokens(const UnitView&) { return kInt8SliceTokens; }
  // Packing reads a slice at once: without it here, decode takes 1.13 times as long.
  static long long lead_bytes(const UnitView& unit) {
    const int slice_bytes = kInt8SliceTokens * unit.heads * unit.args.head_dim_qk * bits_of(unit.args.kv_element) / 8;
    return (32 << 10) + slice_bytes;
  }
  void load_queries();
  void multiply(const Slice& slice, Prefetcher& prefetcher);

 private:
  Item& item_;
  float* query_;     // of one head
  SplitRows split_;  // of all
  unsigned* panels_;
};

class Int8Values {
 public:
  Int8Values(Item& item, Arena& arena);
  static long long columns(const AttendArgs& args) { return value_columns(args.kv_element, args.head_dim_vo); }
  static int slice_tokens(const UnitView&) { return kInt8SliceTokens; }
  void prepare(const KvTile& tile, int head);
  void multiply(const Slice& slice, Prefetcher& prefetcher);
  void finish(int head);
  void order(float* o, long long rows) const;

 private:
  int* sums_of(int head) const;
  Item& item_;
  SplitRows split_;  // probabilities times the scales of values
  int* sums_;        // of a tile
  unsigned* panels_;
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
