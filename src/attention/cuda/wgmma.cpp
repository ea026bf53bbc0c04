// The family of a warpgroup's products (kernels/wgmma.h): tiles of 64 and 128 rows; those of 16 are mma's.
#include <fmt/format.h>

#include <algorithm>

#include "attention/cuda/mma.h"

namespace weft::attention::cuda {
namespace {

Form form_of_warpgroups(const AttentionSpec& spec, const Architecture& architecture) {
  const MmaTiles tiles = mma_tiles(spec, architecture);
  std::string type = fmt::format("Mma<Spec, Variant, 1, 1, 4, {}, false>", tiles.keys_of_small);
  int shared_bytes = products_bytes(spec, 16, tiles.keys_of_small, tiles.stages);
  for (int rows = 64; rows <= tiles.most_rows; rows *= 2) {
    type += fmt::format(", Wgmma<Spec, Variant, {}, {}>", rows / 64, tiles.keys);
    shared_bytes = std::max(shared_bytes, products_bytes(spec, rows, tiles.keys, tiles.stages, true));
  }
  return {.name = "warpgroup_tiles",
          .tile_kinds = kAllTileKinds,
          .loader = Loader::cp_async,
          .threads = tiles.threads,
          .shared_bytes = shared_bytes,
          .resident_ctas = architecture.resident_ctas(shared_bytes),
          .constants = fmt::format("  using Multiplied = Query;\n  static constexpr int kStages = {};\n", tiles.stages),
          .type = "Tiles<" + type + ">"};
}

class WgmmaFamily : public Family {
 public:
  std::string_view name() const override { return "wgmma"; }

  Ability ability(const AttentionSpec& spec, const Architecture& architecture) const override {
    if (!architecture.has_warpgroup_products)
      return {{}, fmt::format("{} has no products of warpgroups", architecture.name)};
    Ability ability = mma_family().ability(spec, architecture);
    if (!ability.type) return ability;
    if (spec.kv_dtype != *ability.type)
      return {{},
              fmt::format("KV is {}, and products of warpgroups take it from shared memory in {}",
                          to_string(spec.kv_dtype), to_string(*ability.type))};
    if (mma_tiles(spec, architecture).most_rows < 64)
      return {
          {},
          fmt::format("64 rows and two stages of keys and values do not fit shared memory of {}", architecture.name)};
    if (form_of_warpgroups(spec, architecture).shared_bytes > architecture.most_shared_of_cta)
      return {{}, fmt::format("its tiles do not fit shared memory of {}", architecture.name)};
    return ability;
  }

  std::vector<Form> forms(const AttentionSpec& spec, const Architecture& architecture) const override {
    return {mma_family().forms(spec, architecture).front(), form_of_warpgroups(spec, architecture)};
  }

  void describe(const AttentionSpec& spec, const Architecture& architecture, KernelTraits& traits) const override {
    mma_family().describe(spec, architecture, traits);
    const int resident_ctas = form_of_warpgroups(spec, architecture).resident_ctas;
    for (TileClass& tile_class : traits.classes)
      if (tile_class.kind != TileKind::direct) tile_class.default_workers = resident_ctas;
  }
};

}  // namespace

const Family& wgmma_family() {
  static const WgmmaFamily family;
  return family;
}

}  // namespace weft::attention::cuda
