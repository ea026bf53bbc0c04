// The family of a producer (kernels/producer.h): tiles of 128 rows, of plans that have some; what else is in such a
// plan goes by the same kernel. Other plans are wgmma's. Keys and values come row by row, by all threads that load:
// causal, 4 x 4,096 contiguous tokens of 128 dims on an H200, rows have 1.08 times the rate of boxes. Boxes come where
// the spec names them.
#include <fmt/format.h>

#include <algorithm>

#include "attention/cuda/kernels/args.h"
#include "attention/cuda/kernels/shared.h"
#include "attention/cuda/maps.h"
#include "attention/cuda/mma.h"
#include "attention/params.h"
#include "attention/variant/text.h"

namespace weft::attention::cuda {
namespace {

constexpr int kLoaders = 128, kMultipliers = 128 * kProducerGroups, kRows = 64 * kProducerGroups, kStages = 2;

bool has_few_bits(const AttentionSpec& spec) { return bits_of(spec.kv_dtype) < 16; }
bool has_vector_hooks(const AttentionSpec& spec) {
  return names_hook(spec.variant, {"query_transform", "key_transform"});
}

// Of a thread that multiplies: scores, probabilities, outputs, and what the compiler takes beside them. Of more than it
// has it makes code that waits for each product, and spills.
int registers(const AttentionSpec& spec, int keys) {
  const bool has_mask = spec.mask >= Mask::custom || names_hook(spec.variant, {"logits_mask"});
  const int of_lists = spec.kv_form != KvForm::block_sparse ? 0 : spec.variant.use_softmax ? 16 : 36;
  return keys / 2 + keys / 4 + spec.head_dim_vo / 2 + 32 + (has_mask ? 72 : 0) + of_lists;
}

int shared_bytes(const AttentionSpec& spec, const ProducerTile& tile, bool gathers) {
  return producer_shared_bytes({.dim_qk = spec.head_dim_qk,
                                .dim_vo = spec.head_dim_vo,
                                .threads = kMultipliers,
                                .rows = kRows,
                                .keys = tile.keys,
                                .stages = kStages,
                                .kv_bits = 16,
                                .scales = spec.kv_scales >= KvScales::token ? kTilesOfLogits * tile.keys : 1,
                                .is_block_sparse = spec.kv_form == KvForm::block_sparse,
                                .by_warpgroup = true},
                               tile.query_stages, gathers, has_vector_hooks(spec));
}

std::optional<ProducerTile> find_tile(const AttentionSpec& spec, const Architecture& architecture) {
  for (int keys = 128; keys >= 64; keys -= 16)
    for (const int query_stages : {2, 1}) {
      const ProducerTile tile{keys, query_stages};
      const ProducerRegisters given = producer_registers(has_few_bits(spec), has_vector_hooks(spec));
      if (registers(spec, keys) <= given.of_multipliers &&
          shared_bytes(spec, tile, true) <= architecture.most_shared_of_cta)  // the same keys by both loaders
        return tile;
    }
  return {};
}

// The tiles of most rows, which those of the family are.
TileKind largest_kind(const AttentionSpec& spec, const Architecture& architecture) {
  return mma_tiles(spec, architecture).most_rows == 128 ? TileKind::packed : TileKind::streamed;
}

Form form_of(const AttentionSpec& spec, const Architecture& architecture) {
  const ProducerTile tile = producer_tile(spec, architecture);
  const bool takes_boxes = spec.loader == Loader::tma;
  return {.name = takes_boxes ? "producer_boxes" : "producer_rows",
          .tile_kinds = kAllTileKinds,
          .loader = takes_boxes ? Loader::tma : Loader::cp_async,
          .threads = kMultipliers + kLoaders,
          .shared_bytes = shared_bytes(spec, tile, !takes_boxes),
          .resident_ctas = 1,
          .loaders = kLoaders,
          .best_for = takes_boxes ? kAllTileKinds : bit_of(largest_kind(spec, architecture)),
          .is_alike = takes_boxes,
          .constants = fmt::format("  using Multiplied = Query;\n  static constexpr int kStages = {};\n", kStages),
          .type = fmt::format("Producer<Spec, Variant, {}, {}, {}>", tile.keys, tile.query_stages, !takes_boxes)};
}

// Whose kernels run other plans.
const Family& family_beside(const AttentionSpec& spec) { return has_few_bits(spec) ? mma_family() : wgmma_family(); }

// Of keys and values of few bits, why they do not become what warpgroups multiply; empty: they do.
std::string why_no_conversion(const AttentionSpec& spec) {
  if (!has_few_bits(spec)) return {};
  if (bits_of(spec.kv_dtype) < 8)
    return fmt::format("KV is {}, and loaders make 16 bits of 8", to_string(spec.kv_dtype));
  if (spec.q_dtype != DType::bf16)
    return fmt::format("KV is {}, which becomes bf16, and queries are {}", to_string(spec.kv_dtype),
                       to_string(spec.q_dtype));
  if (spec.loader == Loader::tma)
    return fmt::format("KV is {}, and boxes bring what is multiplied as it lies", to_string(spec.kv_dtype));
  for (const int dim : {spec.head_dim_qk, spec.head_dim_vo})
    if (dim < 32 || 128 % dim != 0)
      return fmt::format("KV is {}, and head dims are not 32, 64 or 128", to_string(spec.kv_dtype));
  return {};
}

class ProducerFamily : public Family {
 public:
  std::string_view name() const override { return "producer"; }

  Ability ability(const AttentionSpec& spec, const Architecture& architecture) const override {
    if (spec.loader == Loader::cp_async) return {{}, "loader = cp_async"};
    if (spec.loader == Loader::elements) return {{}, "loader = elements"};
    AttentionSpec unnamed = spec;
    unnamed.loader = {};
    Ability ability = family_beside(spec).ability(unnamed, architecture);
    if (ability.type && !architecture.has_warpgroup_products)
      return {{}, fmt::format("{} has no products of warpgroups", architecture.name)};
    if (!ability.type) return ability;
    if (const std::string why = why_no_conversion(spec); !why.empty()) return {{}, why};
    if (spec.head_dim_qk % 16 != 0 || spec.head_dim_vo % 16 != 0) return {{}, "head dims are no multiples of 16"};
    if (spec.head_dim_vo > spec.head_dim_qk) return {{}, "values have more dims than keys"};
    if (spec.loader == Loader::tma && names_hook(spec.variant, {"key_transform"}))
      return {{}, "the variant has a key_transform, and boxes bring what is multiplied as it lies"};
    if (const size_t slots = Params(spec).num_slots(); spec.loader == Loader::tma && slots > kMaxBoxSlots)
      return {{}, fmt::format("parameters take {} words, and {} have room beside tensor maps", slots, kMaxBoxSlots)};
    if (!find_tile(spec, architecture))
      return {
          {},
          fmt::format("128 rows, scores of 64 keys and two stages of keys and values do not fit registers and shared "
                      "memory of {}",
                      architecture.name)};
    return ability;
  }

  std::vector<Form> forms(const AttentionSpec& spec, const Architecture& architecture) const override {
    if (spec.loader == Loader::tma) return {form_of(spec, architecture)};
    std::vector<Form> forms = family_beside(spec).forms(spec, architecture);
    forms.insert(forms.begin() + 1, form_of(spec, architecture));
    return forms;
  }

  void describe(const AttentionSpec& spec, const Architecture& architecture, KernelTraits& traits) const override {
    family_beside(spec).describe(spec, architecture, traits);
    traits.granule = kProducerGranule;
    traits.thresholds.alternates = true;
    const int dims = spec.head_dim_qk + spec.head_dim_vo;
    for (TileClass& tile_class : traits.classes) {
      const bool is_largest = tile_class.kind == largest_kind(spec, architecture);
      if (is_largest) {
        tile_class.rows = kRows;
        // From times of 1,024 to 16,384 causal tokens on an H200: a tile of 128 keys takes 1.44 us with 64
        // dims, 2.09 with 128, 3.6 with 192 and 4.1 with 256, and a tile of rows 3.5 to 4.5 us besides. Twice that, as
        // costs are those of half a multiprocessor. Numbers of 8 bits are estimated: what conversions take of shared
        // memory.
        tile_class.token = (9 + dims * 0.107) * (has_few_bits(spec) ? 1.15 : 1);
        tile_class.item = 8000;
      }
      const bool is_named = spec.loader == Loader::tma;
      if (!is_largest && !is_named) continue;
      if (!is_named) tile_class.workers_of_fixed_splits = tile_class.default_workers;  // wgmma's, which runs them
      tile_class.default_workers = 1;
    }
  }
};

}  // namespace

ProducerTile producer_tile(const AttentionSpec& spec, const Architecture& architecture) {
  return find_tile(spec, architecture).value();
}

const Family& producer_family() {
  static const ProducerFamily family;
  return family;
}

}  // namespace weft::attention::cuda
