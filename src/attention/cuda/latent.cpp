// The family of latent rows (kernels/latent.h): tiles of 64 rows of heads, whose outputs two warpgroups share.
#include <fmt/format.h>

#include "attention/cuda/family.h"
#include "attention/cuda/kernels/shared.h"
#include "attention/variant/text.h"

namespace weft::attention::cuda {
namespace {

// One CTA for up to 64 rows; of more, two of neighbouring multiprocessors have 64 each, and read the same latent rows.
Form form_of_latent(const AttentionSpec& spec, bool pairs) {
  return {.name = pairs ? "latent_pairs" : "latent_tiles",
          .tile_kinds = pairs ? kAllTileKinds : bit_of(TileKind::direct),
          .loader = Loader::cp_async,
          .threads = kLatentThreads,
          .shared_bytes = latent_shared_bytes(spec.head_dim_qk),
          .resident_ctas = 1,
          .ctas_of_worker = pairs ? 2 : 1,
          .merges_apart = true,
          .constants = fmt::format("  using Multiplied = Query;\n"
                                   "  static constexpr int kVectorDim = {};\n"
                                   "  static constexpr bool kMergesApart = true;\n",
                                   kDimWithoutHooks),
          .type = "Latent<Spec, Variant>"};
}

class LatentFamily : public Family {
 public:
  std::string_view name() const override { return "latent"; }

  Ability ability(const AttentionSpec& spec, const Architecture& architecture) const override {
    if (spec.kv_form != KvForm::latent) return {{}, "KV is not latent"};
    if (!architecture.has_warpgroup_products)
      return {{}, fmt::format("{} has no products of warpgroups", architecture.name)};
    if (spec.loader && spec.loader != Loader::cp_async)
      return {{}, fmt::format("loader = {}", to_string(*spec.loader))};
    const DType type = spec.q_dtype;
    if (type != DType::fp16 && type != DType::bf16)
      return {{}, fmt::format("{} has no products in {}", architecture.name, to_string(type))};
    if (spec.kv_dtype != type) return {{}, "latent rows are stored in another type than queries"};
    if (type == DType::fp16 && !spec.variant.use_softmax)
      return {{}, "probabilities without softmax may be too large for fp16"};
    const int vo = spec.head_dim_vo;
    if ((vo != 128 && vo != 256 && vo != 512) || spec.head_dim_qk != vo + 64)
      return {{}, "head_dim_vo is not 128, 256 or 512, or head_dim_qk is not 64 more"};
    if (names_hook(spec.variant, {"query_transform", "key_transform", "value_transform", "output_transform"}))
      return {{}, "the variant changes queries, keys, values or outputs"};
    return {type, {}};
  }

  std::vector<Form> forms(const AttentionSpec& spec, const Architecture&) const override {
    return {form_of_latent(spec, false), form_of_latent(spec, true)};
  }

  void describe(const AttentionSpec& spec, const Architecture&, KernelTraits& traits) const override {
    // A CTA has a multiprocessor for itself: 24 bytes of memory a nanosecond. A tile's products take a third to a half
    // of that time, however few of its rows are there. Two that read the same rows share the time of memory, and are
    // bound by products and by the cache that all CTAs share.
    const int dims = spec.head_dim_qk + spec.head_dim_vo;
    const TileClass one = {.kind = TileKind::direct,
                           .rows = kLatentRows,
                           .row = dims * 0.05,
                           .token = spec.head_dim_qk * bits_of(spec.kv_dtype) / 8. / 24.,
                           .item = 5000,
                           .default_workers = 1};
    TileClass two = one;
    two.kind = TileKind::streamed;
    two.rows = 2 * kLatentRows;
    two.row = one.row / 2;
    two.token = one.token * 0.6;
    traits.classes = {one, two};
    traits.thresholds = thresholds_beside(one);
    // An item begins and ends as long as 200 tokens take one multiprocessor alone, and its states are merged by all.
    traits.thresholds.least_share = one.item + 128 * one.token;
    traits.granule = kLatentKeys;
  }
};

}  // namespace

const Family& latent_family() {
  static const LatentFamily family;
  return family;
}

}  // namespace weft::attention::cuda
