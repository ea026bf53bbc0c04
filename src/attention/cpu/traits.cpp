#include "attention/cpu/traits.h"

#include "base/check.h"
#include "device/cpu/cpuid.h"

namespace weft {

using attention::TileKind;

namespace {

int lanes_of(Isa isa) {
  switch (isa) {
    case Isa::plain: return 4;
    case Isa::avx2: return 8;
    case Isa::avx512:
    case Isa::avx512_bf16: return 16;
  }
  return 4;
}

// Whether many rows are multiplied in tiles of registers.
bool uses_tiles(const AttentionSpec& spec, Isa isa) {
  return compute_type(spec, isa) == DType::bf16 && has_bf16_tiles();
}

// Fused rows up to which keys and values are multiplied as they are stored. That converts them anew for each 8 rows (6
// where there are 16 registers), which bf16 and fp32 bear longest; bytes are packed either way, for all heads at once.
int direct_rows(const AttentionSpec& spec, Isa isa) {
  const bool wide = lanes_of(isa) == 16;
  if (spec.kv_form == KvForm::latent) return 8;           // packed, a latent row is read once
  if (uses_tiles(spec, isa)) return 8;                    // packed, 16 rows take little longer than one
  if (compute_type(spec, isa) == DType::bf16) return 16;  // packed, both products are in bf16
  switch (spec.kv_dtype) {
    case DType::fp32:
    case DType::bf16: return wide ? 24 : 16;
    case DType::fp16:
    case DType::int8:
    case DType::int4: return wide ? 16 : 8;
    default: return 8;
  }
}

}  // namespace

KernelTraits cpu_traits(const AttentionSpec& spec, Isa isa) {
  KernelTraits traits = traits_of(spec);
  const int dims = spec.head_dim_qk + spec.head_dim_vo;
  // Costs in nanoseconds of a core at 3 GHz, as `weft bench plan --fit` finds them: products at two thirds of two
  // multiply-adds of `lanes` a cycle (bf16 pairs: one of twice as many; tiles: two thirds of 512), 12 bytes a
  // nanosecond, one exponential a score. Products with keys and values as stored add the lanes of their sums up; bf16
  // is widened for them where it is not multiplied as such.
  const double product = dims / (2. * lanes_of(isa) * 3.);
  const double packed_product = uses_tiles(spec, isa) ? dims / 1000. : product * 1.5;
  const double softmax = 6. / lanes_of(isa);
  // Of latent rows keys and values are one, read once and packed without a transpose.
  const bool latent = spec.kv_form == KvForm::latent;
  const double pack = (latent ? spec.head_dim_qk * 0.6 : dims * 1.2) / lanes_of(isa);
  const double stream = (latent ? spec.head_dim_qk : dims) * bits_of(spec.kv_dtype) / 8. / 12.;
  const TileClass direct = {.kind = TileKind::direct,
                            .rows = direct_rows(spec, isa),
                            .all_kv_heads = true,
                            .row = dims * 0.4,
                            .token = stream,
                            .row_token = compute_type(spec, isa) == DType::bf16 && !uses_tiles(spec, isa)
                                             ? product + 0.5
                                             : product * 1.4 + 1.5,
                            .item = 400};
  const auto packed = [&](TileKind kind, int rows) {
    TileClass tile_class = direct;
    tile_class.kind = kind;
    tile_class.rows = rows;
    tile_class.all_kv_heads = false;
    tile_class.token = pack + stream;
    tile_class.row_token = packed_product + softmax;
    return tile_class;
  };
  // The rows of queries and outputs and a tile of keys and values fit the second-level cache. A latent row serves all
  // heads, 128 of them in large models.
  if (latent) {
    traits.classes = {direct, packed(TileKind::streamed, 24), packed(TileKind::packed, 128)};
  } else {
    const int most_rows = dims > 512 ? 48 : uses_tiles(spec, isa) ? 192 : 96;
    TileClass streamed = packed(TileKind::streamed, most_rows);
    streamed.one_tile = true;
    streamed.all_kv_heads = true;
    streamed.most_states = (lanes_of(isa) == 16 ? 512 << 10 : 256 << 10) / (dims * static_cast<int>(sizeof(float)));
    traits.classes = {direct, streamed, packed(TileKind::packed, most_rows)};
  }
  // Chosen on machines of two cores. Predicted savings of 10 to 17 % by shared levels cost 2 to 6 %.
  traits.thresholds = {.level_enough = 1.02,
                       .granules_per_worker = 16,
                       .shared_cost_at_most = 0.8,
                       .merge_row = 3 * direct.row,
                       .prefix_tree_depth = 16};
  // The shared team keeps its size as long as the process lives, and so do kernels their traits.
  for (TileClass& tile_class : traits.classes) tile_class.default_workers = WorkerTeam::shared().num_workers();
  traits.granule = abi::kColumnStep;
  return traits;
}

}  // namespace weft
