// Keys or values as the products take them: found, masked, scaled, transformed.
#include "attention/cpu/kernels/kv_source.h"

namespace weft::attention::cpu::WEFT_ISA_NAME {

HookBuffers::HookBuffers(const UnitView& unit, int tokens, Arena& arena) {
  const AttendArgs& args = unit.args;
  const bool bf16 = args.compute == Compute::bf16;
  const long long larger = max_of(args.head_dim_qk, args.head_dim_vo);
  const long long count = args.leaf->key || args.leaf->value ? tokens : 0;
  dequantised = arena.allocate<float>(count > 0 && !bf16 ? kTokens * larger : 0);
  transformed = arena.allocate<char>(count * larger * (bf16 ? 2 : 4));
  rows = arena.allocate<const char*>(count);
}

KvSource::KvSource(const UnitView& unit, const Side& side, const TileRows& rows, const Columns& columns,
                   const HookBuffers& buffers, int tokens, Arena& arena)
    : scales(unit, side.scale, tokens, arena),
      unit_(unit),
      side_(side),
      rows_(rows),
      columns_(columns),
      buffers_(buffers),
      cache_loader_(loader_for(unit.args.kv_element, unit.args.compute == Compute::bf16)),
      loader_(side.hook && unit.args.compute != Compute::bf16 ? loader_for(Element::fp32, false) : cache_loader_),
      masked_(arena.allocate<const char*>(tokens)) {}

// Those that some row sees, of a boundary tile.
KvSource::Rows KvSource::masked(const Slice& slice) const {
  const auto& [tile, stage, head, begin, n] = slice;
  const char* const* rows = rows_.at(stage);
  const long long offset = head * side_.tokens.head_stride;
  const int end = begin + n < tile.n ? begin + n : round_up(tile.n, abi::kColumnStep);
  for (int i = begin; i < end; ++i) masked_[i] = i < tile.n && columns_.marks[i] ? rows[i] + offset : kZeros;
  return {masked_, 0};
}

// What the hook makes of them, a few at a time, which it reads in fp32 or, for products in bf16, as they are stored.
KvSource::Rows KvSource::transformed(const Slice& slice) const {
  const auto& [tile, stage, head, begin, n] = slice;
  const Rows from = tile.boundary ? masked(slice) : Rows{rows_.at(stage), head * side_.tokens.head_stride};
  const bool bf16 = unit_.args.compute == Compute::bf16;
  const int dim = side_.dim, end = begin + n;
  const long long row_bytes = dim * (bf16 ? 2 : 4);
  for (int first = begin; first < end; first += HookBuffers::kTokens) {
    const int count = min_of(HookBuffers::kTokens, end - first);
    char* to = buffers_.transformed + (first - begin) * row_bytes;
    for (int i = 0; i < count; ++i) {
      columns_.vectors[first + i].head = unit_.first_head + head;
      buffers_.rows[first + i] = to + i * row_bytes;
    }
    const char* dequantised[HookBuffers::kTokens];
    abi::VectorTile vectors = {unit_.args.params, columns_.vectors + first, count, dim, dequantised, 0, to, dim};
    if (bf16) {
      vectors.from = from.at + first;
      vectors.offset = from.offset;
    } else {
      dequantise(slice, from, first, count);
      for (int i = 0; i < count; ++i)
        dequantised[i] = reinterpret_cast<const char*>(buffers_.dequantised + static_cast<long long>(i) * dim);
    }
    side_.hook(&vectors);
  }
  if (tile.boundary)
    for (int i = begin; i < (end < tile.n ? end : round_up(end, abi::kColumnStep)); ++i)
      if (i >= tile.n || !columns_.marks[i]) buffers_.rows[i] = kZeros;
  return {buffers_.rows, 0};
}

// Tokens [first, first + count) in fp32, scaled.
void KvSource::dequantise(const Slice& slice, const Rows& from, int first, int count) const {
  const int dim = side_.dim;
  cache_loader_.widen_rows(from.at + first, from.offset, count, dim, buffers_.dequantised, dim);
  if (unit_.args.scaling == Scaling::head)
    scale_vector(buffers_.dequantised, static_cast<long long>(count) * dim,
                 head_scale(side_.scale, unit_.first_head + slice.head));
  if (!scales) return;
  for (int i = 0; i < count; ++i)
    scale_vector(buffers_.dequantised + static_cast<long long>(i) * dim, dim, scales.of(slice.head)[first + i]);
}

KvSource::Rows KvSource::rows_without(const unsigned char* excluded, const Slice& slice) const {
  const Rows all = rows(slice);
  const char** rows = side_.hook ? buffers_.rows : masked_;
  for (int t = slice.begin; t < slice.begin + slice.n; ++t)
    if (excluded[t]) rows[t] = kZeros;
  return all;
}

float KvSource::load_token(const Slice& slice, float* to) const {
  const Rows one = rows(slice);
  loader_.widen_rows(one.at + slice.begin, one.offset, 1, side_.dim, to, side_.dim);
  return scales_columns() ? scales.stored(slice) : 1.f;
}

}  // namespace weft::attention::cpu::WEFT_ISA_NAME
