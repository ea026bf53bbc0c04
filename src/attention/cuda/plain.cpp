// The plain family: every element type, dim, stride and hook, in fp32 on CUDA cores (kernels/plain.h).
#include <fmt/format.h>

#include <algorithm>

#include "attention/cuda/family.h"
#include "attention/cuda/kernels/shared.h"

namespace weft::attention::cuda {
namespace {

// Fused rows and keys of a tile.
TileSizes plain_tile(const AttentionSpec& spec) {
  const int most = std::max(spec.head_dim_qk, spec.head_dim_vo);
  TileSizes tile = {};
  tile.dim_qk = spec.head_dim_qk, tile.dim_vo = spec.head_dim_vo, tile.threads = 128;
  tile.rows = most <= 256 ? 16 : 8, tile.keys = most <= 128 ? 32 : most <= 256 ? 16 : 8;
  return tile;
}

class PlainFamily : public Family {
 public:
  std::string_view name() const override { return "plain"; }
  Ability ability(const AttentionSpec&, const Architecture&) const override { return {DType::fp32, {}}; }

  std::vector<Form> forms(const AttentionSpec& spec, const Architecture& architecture) const override {
    const TileSizes tile = plain_tile(spec);
    const int shared_bytes = plain_shared_bytes(tile);
    return {{.name = "plain",
             .tile_kinds = kAllTileKinds,
             .loader = Loader::elements,
             .threads = tile.threads,
             .shared_bytes = shared_bytes,
             .resident_ctas = architecture.resident_ctas(shared_bytes),
             .constants = fmt::format("  static constexpr int kRows = {}, kKeys = {};\n", tile.rows, tile.keys),
             .type = "Plain<Spec, Variant>"}};
  }

  void describe(const AttentionSpec& spec, const Architecture& architecture, KernelTraits& traits) const override {
    const int dims = spec.head_dim_qk + spec.head_dim_vo;
    // 12 bytes of memory a nanosecond; products at a quarter of what CUDA cores can do at 1.7 GHz. An item begins with
    // a chain of loads, each a trip to memory.
    const TileClass tile = {.kind = TileKind::direct,
                            .rows = plain_tile(spec).rows,
                            .row = dims * 0.1,
                            .token = dims * bits_of(spec.kv_dtype) / 8. / 12.,
                            .row_token = dims / 64.,
                            .item = 4000,
                            .default_workers = forms(spec, architecture).front().resident_ctas};
    traits.classes = {tile};
    traits.thresholds = thresholds_beside(tile);
    traits.granule = 32;
  }
};

}  // namespace

const Family& plain_family() {
  static const PlainFamily family;
  return family;
}

}  // namespace weft::attention::cuda
