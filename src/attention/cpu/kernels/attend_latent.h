// Many rows over latent keys and values.
#pragma once

#include "attention/cpu/kernels/item.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// Latent rows are keys and, up to head_dim_vo, values of many queries. Their scores are computed token by token, with
// the queries on the right, so that a row packed for P V is a left side as it stands: it is read and packed once. Pairs
// of bf16 run along a key's elements, and along tokens in values: there the joined rows are the left side.
class AttendLatent {
 public:
  AttendLatent(const UnitView& unit, Arena& arena);
  void attend(const WorkItem& work);
  void order(float*, long long) const {}

  Item item;

 private:
  void pack_queries();
  void attend(const Slice& latent, Prefetcher& prefetcher);
  void multiply_keys(const Slice& latent, Prefetcher& prefetcher);

  const int query_vectors_;  // of a panel line of fused rows
  float* queries_;           // [group_rows][head_dim_qk]
  float* query_panels_;      // the same, packed as keys are
  float* by_token_;          // scores [tokens][query_vectors_ vectors]
  float* rows_;              // packed as values are
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
