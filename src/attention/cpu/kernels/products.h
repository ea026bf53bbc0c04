// Products with keys and values as floats: as they are stored for few rows, packed for many. int8_products.h has those
// with integers. A way through the tiles (attend_direct.h, attend_packed.h) is made for one class of keys and one of
// values:
//
//   keys.load_queries();                     // once an item
//   keys.multiply(slice, prefetcher);        // scores of a head's tokens
//   values.prepare(tile, head);              // its probabilities, as the products take them; o moves on by alpha
//   values.multiply(slice, prefetcher);      // o += p v
//   values.finish(head);                     // once a tile
//   values.order(o, rows);                   // columns of o into the head's order, from that of the products
#pragma once

#include "attention/cpu/kernels/item.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// ---------------------------------------------------------------- as stored

class DirectKeys {
 public:
  DirectKeys(Item& item, Arena& arena);
  // Of which a slice stays in the first-level cache.
  static int slice_tokens(const UnitView& unit);
  // How far ahead of what is worked on memory is fetched; a slice more takes 1.08 times as long.
  static long long lead_bytes(const UnitView&) { return 32 << 10; }
  void load_queries();
  void multiply(const Slice& slice, Prefetcher& prefetcher);

 private:
  long long head_floats() const {
    return static_cast<long long>(item_.unit.group_rows) * direct_query_size(item_.keys.dim());
  }
  Item& item_;
  float *query_, *queries_;  // of one head, and of all as Loader::dot wants them
};

class DirectValues {
 public:
  DirectValues(Item& item, Arena&) : item_(item) {}
  static long long columns(const AttendArgs& args) { return round_up(args.head_dim_vo, kPanel); }
  static int slice_tokens(const UnitView& unit) { return DirectKeys::slice_tokens(unit); }
  void prepare(const KvTile& tile, int head);
  void multiply(const Slice& slice, Prefetcher& prefetcher);
  void finish(int) {}
  void order(float* o, long long rows) const;

 private:
  Item& item_;
};

// ---------------------------------------------------------------- packed

class PackedKeys {
 public:
  PackedKeys(Item& item, Arena& arena);
  void load_queries();
  void multiply(const Slice& slice, Prefetcher& prefetcher);

 private:
  float* queries_of(int head) const {
    return queries_ + static_cast<long long>(head) * item_.unit.group_rows * item_.keys.dim();
  }
  Item& item_;
  // Panels are multiplied as soon as they are packed, from the first-level cache.
  static constexpr int kPanelsAtOnce = 2;
  float *queries_, *panels_;
};

class PackedValues {
 public:
  PackedValues(Item& item, Arena& arena);
  static long long columns(const AttendArgs& args) { return round_up(args.head_dim_vo, kPanel); }
  void prepare(const KvTile& tile, int head);
  void multiply(const Slice& slice, Prefetcher& prefetcher);
  void finish(int) {}
  void order(float*, long long) const {}

 private:
  Item& item_;
  float* panels_;
};

// o = alpha o + p v of a head and a tile, values packed as Loader::pack_values does.
void multiply_packed_values(Item& item, const KvTile& tile, int head, const float* panels, Prefetcher& prefetcher);

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
