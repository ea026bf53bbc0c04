// Keys or values as the products take them: found, masked, scaled, transformed.
#pragma once

#include "attention/cpu/kernels/dense.h"
#include "attention/cpu/kernels/token_scales.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

// What a key or value hook works in. Keys and values take turns.
struct HookBuffers {
  // Tokens at once: before and after, with what the hook reads of them, they stay in the first-level cache.
  static constexpr int kTokens = 8;
  HookBuffers(const UnitView& unit, int tokens, Arena& arena);

  float* dequantised;  // [kTokens][larger head dim] before the hook
  char* transformed;   // [tokens][larger head dim] after it, in fp32, or in bf16 where that is multiplied
  const char** rows;   // [tokens] of `transformed`
};

class KvSource {
 public:
  // What keys and values differ in.
  struct Side {
    const TokensView &tokens, &scale;
    int dim;
    abi::VectorFn hook;
  };
  KvSource(const UnitView& unit, const Side& side, const TileRows& rows, const Columns& columns,
           const HookBuffers& buffers, int tokens, Arena& arena);

  // Token t of the slice lies at at[t] + offset, t counted from the tile's first, as the loader reads it. Behind the
  // tile's last token, and where no row sees one, lie zeros. A later call may write over `at`.
  struct Rows {
    const char* const* at;
    long long offset;
  };
  Rows rows(const Slice& slice) const {
    if (side_.hook) return transformed(slice);
    if (slice.tile.boundary) return masked(slice);
    return {rows_.at(slice.stage), slice.head * side_.tokens.head_stride};
  }
  // The same of a boundary tile, with zeros for what is excluded: [tokens] of the head.
  Rows rows_without(const unsigned char* excluded, const Slice& slice) const;
  const Loader& loader() const { return loader_; }
  // The slice's first token in fp32; returns what it is to be multiplied by.
  float load_token(const Slice& slice, float* to) const;

  int dim() const { return side_.dim; }
  long long head_bytes() const { return side_.dim * bits_of(unit_.args.kv_element) / 8; }
  long long head_stride() const { return side_.tokens.head_stride; }
  // Bits of what is multiplied by those of what is stored, as a shift.
  int widening() const {
    return side_.hook ? __builtin_ctz((unit_.args.compute == Compute::bf16 ? 16 : 32) / bits_of(unit_.args.kv_element))
                      : 0;
  }
  // Scales that scores or probabilities are multiplied by; what a hook made is scaled already.
  bool scales_columns() const { return scales && !side_.hook; }

  TokenScales scales;

 private:
  Rows masked(const Slice& slice) const;
  Rows transformed(const Slice& slice) const;
  void dequantise(const Slice& slice, const Rows& stored, int first, int count) const;

  const UnitView& unit_;
  const Side side_;
  const TileRows& rows_;
  const Columns& columns_;
  const HookBuffers& buffers_;
  const Loader& cache_loader_;  // reads what is stored
  const Loader& loader_;        // reads what the products take
  const char** masked_;         // [tokens] of a boundary tile
};

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
