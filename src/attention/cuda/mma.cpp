#include "attention/cuda/mma.h"

#include <fmt/format.h>

#include <algorithm>

#include "attention/cuda/kernels/shared.h"
#include "attention/variant/text.h"

namespace weft::attention::cuda {

int products_bytes(const AttentionSpec& spec, int rows, int keys, int stages, bool by_warpgroup) {
  return products_shared_bytes({.dim_qk = spec.head_dim_qk,
                                .dim_vo = spec.head_dim_vo,
                                .threads = kMmaThreads,
                                .rows = rows,
                                .keys = keys,
                                .stages = stages,
                                .kv_bits = static_cast<int>(bits_of(spec.kv_dtype)),
                                .scales = spec.kv_scales >= KvScales::token ? (stages + 1) * keys : 1,
                                .is_block_sparse = spec.kv_form == KvForm::block_sparse,
                                .by_warpgroup = by_warpgroup});
}

namespace {

constexpr int kSmall = 16;
// Fewer keys than the small tiles', which four warps share, can have.
constexpr int kKeys = 64, kFewKeys = 32;

bool fits(const AttentionSpec& spec, int rows, int stages, int bytes, int keys = kKeys) {
  return products_bytes(spec, rows, keys, stages) <= bytes;
}

int bytes_of(const AttentionSpec& spec, const MmaTiles& tiles, bool small) {
  const int stages = small ? tiles.stages_of_small : tiles.stages;
  int bytes = products_bytes(spec, kSmall, tiles.keys_of_small, stages);
  for (int rows = 64; !small && rows <= tiles.most_rows; rows *= 2)
    bytes = std::max(bytes, products_bytes(spec, rows, tiles.keys, stages));
  return bytes;
}

// Two warps of a scheduler hide too little of each other's waits where memory brings a tile sooner than its
// instructions are through: of keys and values of 4 bits a third CTA is worth more than a stage. It leaves a thread 168
// registers, which functors and masks exceed.
bool wants_three(const AttentionSpec& spec, const Architecture& architecture, int keys) {
  return bits_of(spec.kv_dtype) == 4 && std::max(spec.head_dim_qk, spec.head_dim_vo) <= 128 &&
         spec.variant.name.empty() && spec.mask < Mask::custom && spec.kv_form != KvForm::block_sparse &&
         fits(spec, kSmall, 2, architecture.third_of_shared(), keys);
}

Form form_of(const AttentionSpec& spec, const Architecture& architecture, bool small) {
  const MmaTiles tiles = mma_tiles(spec, architecture);
  const int stages = small ? tiles.stages_of_small : tiles.stages;
  const int most_rows = small ? kSmall : tiles.most_rows;
  std::string type = fmt::format("Mma<Spec, Variant, 1, 1, 4, {}, {}>", tiles.keys_of_small, most_rows == kSmall);
  if (most_rows > kSmall) type += fmt::format(", Mma<Spec, Variant, 1, 4, 1, {}>", tiles.keys);
  if (most_rows > 64) type += fmt::format(", Mma<Spec, Variant, 2, 4, 1, {}>", tiles.keys);
  const int shared_bytes = bytes_of(spec, tiles, small);
  return {.name = small ? "small_tiles" : "all_tiles",
          .tile_kinds = small ? bit_of(TileKind::direct) : kAllTileKinds,
          .loader = Loader::cp_async,
          .threads = tiles.threads,
          .shared_bytes = shared_bytes,
          .resident_ctas = small && wants_three(spec, architecture, tiles.keys_of_small)
                               ? 3
                               : architecture.resident_ctas(shared_bytes),
          .constants = fmt::format("  using Multiplied = Query;\n  static constexpr int kStages = {};\n", stages),
          .type = "Tiles<" + type + ">"};
}

class MmaFamily : public Family {
 public:
  std::string_view name() const override { return "mma"; }

  Ability ability(const AttentionSpec& spec, const Architecture& architecture) const override {
    if (spec.loader == Loader::elements) return {{}, "loader = elements"};
    const DType type = spec.q_dtype;
    if (type != DType::fp16 && (type != DType::bf16 || !architecture.has_bf16_products))
      return {{}, fmt::format("{} has no products in {}", architecture.name, to_string(type))};
    const bool few_bits = bits_of(spec.kv_dtype) < 16;
    if (spec.kv_dtype != type && !few_bits)
      return {{}, "keys and values are stored in another type of 16 bits or more than queries"};
    if (type == DType::fp16 && !spec.variant.use_softmax && !few_bits)
      return {{}, "probabilities without softmax may be too large for fp16"};
    if (spec.kv_form == KvForm::latent) return {{}, "KV is latent"};
    // A lane keeps an eighth of 16 outputs in registers.
    if (spec.head_dim_vo > 256 || spec.head_dim_qk > 256) return {{}, "head dims are above 256"};
    if (names_hook(spec.variant, {"value_transform"})) return {{}, "the variant has a value_transform"};
    if (few_bits && names_hook(spec.variant, {"key_transform"}))
      return {{},
              fmt::format("the variant has a key_transform, and KV stays {} until it is multiplied",
                          to_string(spec.kv_dtype))};
    if (!fits(spec, kSmall, 2, architecture.most_shared_of_cta))
      return {{}, fmt::format("two stages of keys and values do not fit shared memory of {}", architecture.name)};
    return {type, {}};
  }

  std::vector<Form> forms(const AttentionSpec& spec, const Architecture& architecture) const override {
    return {form_of(spec, architecture, true), form_of(spec, architecture, false)};
  }

  void describe(const AttentionSpec& spec, const Architecture& architecture, KernelTraits& traits) const override {
    const int dims = spec.head_dim_qk + spec.head_dim_vo;
    const std::vector<Form> kernels = forms(spec, architecture);
    // 12 bytes of memory a nanosecond; products at a quarter of what tensor cores can do at 1.7 GHz. An item begins
    // with a chain of loads, each a trip to memory.
    const TileClass small = {.kind = TileKind::direct,
                             .rows = kSmall,
                             .row = dims * 0.1,
                             .token = dims * bits_of(spec.kv_dtype) / 8. / 12. * kernels.front().resident_ctas / 2,
                             .row_token = dims / 512.,
                             .item = 4000,
                             .default_workers = kernels.front().resident_ctas};
    traits.classes = {small};
    const MmaTiles tiles = mma_tiles(spec, architecture);
    // By instructions: 1,150 of 8 bits, 700 of 4 become numbers beside 1,915 of a tile of 16 bits.
    const double of_conversion = bits_of(spec.kv_dtype) == 8 ? 1.6 : bits_of(spec.kv_dtype) == 4 ? 1.37 : 1;
    const auto add = [&](TileKind kind, int rows) {
      TileClass tile_class = small;
      tile_class.kind = kind;
      tile_class.rows = rows;
      // Of many rows the products bind, and what lies before and behind them is not hidden: measured on an H100. A tile
      // takes as long however few of its rows are there: all are multiplied.
      tile_class.item = 8000 + small.row * rows;
      tile_class.token = dims * (0.06 + rows / 600.) * of_conversion;
      tile_class.row = tile_class.row_token = 0;
      tile_class.default_workers = kernels.back().resident_ctas;
      traits.classes.push_back(tile_class);
    };
    if (tiles.most_rows >= 64) add(TileKind::streamed, 64);
    if (tiles.most_rows >= 128) add(TileKind::packed, 128);
    traits.thresholds = thresholds_beside(small);
    // A tile of many rows that is cut is written, read and merged row by row: on an H100 the busiest worker loses tens
    // of us.
    traits.thresholds.cut = 40000;
    traits.thresholds.dealt_at_once = 4;                             // their keys and values are in the card's cache
    traits.thresholds.least_share = small.item + 140 * small.token;  // measured: some 128 keys
    traits.granule = 64;
  }
};

}  // namespace

MmaTiles mma_tiles(const AttentionSpec& spec, const Architecture& architecture) {
  const int half = architecture.half_of_shared();
  MmaTiles tiles{.keys_of_small = kKeys,
                 .keys = kKeys,
                 .threads = kMmaThreads,
                 .stages_of_small = 2,
                 .stages = 2,
                 .most_rows = kSmall};
  // A tile costs a warp some time whatever it has: of short rows it has more, so that memory is what binds. Where
  // numbers are converted that is worth a stage: two of so many keys are 64 KB.
  const bool is_short = std::max(spec.head_dim_qk, spec.head_dim_vo) * bits_of(spec.kv_dtype) / 8 <= 128;
  AttentionSpec paged = spec;  // every form has the same tiles: the same keys make the same bits in each
  paged.kv_form = KvForm::paged;
  if (is_short && fits(paged, kSmall, bits_of(spec.kv_dtype) < 16 ? 2 : 3, half, 2 * kKeys))
    tiles.keys_of_small = 2 * kKeys;
  const int of_small = wants_three(spec, architecture, tiles.keys_of_small) ? architecture.third_of_shared() : half;
  for (const int stages : {3, 4})
    if (fits(spec, kSmall, stages, of_small, tiles.keys_of_small)) tiles.stages_of_small = stages;
  for (const int rows : {64, 128})
    if (fits(spec, rows, tiles.stages, architecture.most_shared_of_cta) && (rows == 64 || spec.head_dim_vo <= 128))
      tiles.most_rows = rows;
  // Two CTAs hide each other's waits: fewer keys where that makes room for the second.
  MmaTiles narrow = tiles;
  narrow.keys = kFewKeys;
  if (bytes_of(paged, tiles, false) > half && bytes_of(paged, narrow, false) <= half) return narrow;
  return tiles;
}

const Family& mma_family() {
  static const MmaFamily family;
  return family;
}

}  // namespace weft::attention::cuda
