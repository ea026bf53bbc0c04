#include "attention/cuda/traits.h"

#include "attention/backend.h"
#include "attention/cuda/text.h"
#include "attention/variant/text.h"
#include "base/check.h"

namespace weft::text {
extern const char* const k_cpu_float_bits;
extern const char* const k_reference_card_tanh;
}  // namespace weft::text

namespace weft::attention::cuda {
namespace {

// The functors' math on a host, no more exact than a card's (tile/cuda/math.h).
std::string float_math_text() {
  return text_part("tile/cpu/float_bits.h", text::k_cpu_float_bits) +
         text_part("tile/variant/float_math.h", text::k_variant_float_math) +
         text_part("tile/variant/float_exp.h", text::k_variant_float_exp) +
         text_part("tile/reference/card_tanh.h", text::k_reference_card_tanh);
}

}  // namespace

DType compute_type(const AttentionSpec& spec, const std::string& architecture) {
  const std::optional<DType> products = mma_type(spec, architecture);
  const DType compute = spec.compute.value_or(products.value_or(DType::fp32));
  const std::string_view name = to_string(compute);
  check(compute == DType::fp32 || compute == products, ErrorCode::unsupported,
        "compute = {}: required products in {} of q {} and KV {} with head dims {} and {}, supported on {} {}, missing "
        "{}; leave compute out, or choose fp32",
        name, name, to_string(spec.q_dtype), to_string(spec.kv_dtype), spec.head_dim_qk, spec.head_dim_vo, architecture,
        products ? fmt::format("fp32 and {}", to_string(*products)) : "fp32", name);
  check(spec.loader != Loader::cp_async || compute != DType::fp32, ErrorCode::unsupported,
        "loader = cp_async: required products of q {} and KV {} with head dims {} and {} as they are stored, supported "
        "on {} for {} up to 256 dims, missing here; leave loader out, or choose elements",
        to_string(spec.q_dtype), to_string(spec.kv_dtype), spec.head_dim_qk, spec.head_dim_vo, architecture,
        architecture == "sm_75" ? "fp16" : "fp16 and bf16");
  return compute;
}

KernelTraits traits(const AttentionSpec& spec, const std::string& architecture, int num_multiprocessors) {
  KernelTraits traits = traits_of(spec);
  const int dims = spec.head_dim_qk + spec.head_dim_vo;
  // Costs in nanoseconds of a CTA, of which a multiprocessor has two: 12 bytes of memory a nanosecond; products at a
  // quarter of what its CUDA cores or tensor cores can do at 1.7 GHz. An item begins with a chain of loads, each a trip
  // to memory.
  const bool is_plain = compute_type(spec, architecture) == DType::fp32;
  // Those that run at once: one more would wait for another's end, its share cut off and merged for nothing.
  const auto workers = [&](Path path) { return resident_ctas(spec, architecture, path) * num_multiprocessors; };
  const TileClass small = {.kind = TileKind::direct,
                           .rows = is_plain ? plain_tile(spec).rows : 16,
                           .row = dims * 0.1,
                           .token = dims * bits_of(spec.kv_dtype) / 8. / 12.,
                           .row_token = is_plain ? dims / 64. : dims / 512.,
                           .item = 4000,
                           .default_workers = workers(is_plain ? Path::plain : Path::small_tiles)};
  traits.classes = {small};
  if (!is_plain) {
    const MmaTiles tiles = mma_tiles(spec, architecture);
    const auto add = [&](TileKind kind, int rows) {
      TileClass tile_class = small;
      tile_class.kind = kind;
      tile_class.rows = rows;
      // Of many rows the products bind, and what lies before and behind them is not hidden: measured on an H100. A tile
      // takes as long however few of its rows are there: all are multiplied.
      tile_class.item = 8000 + small.row * rows;
      tile_class.token = dims * (0.06 + rows / 600.);
      tile_class.row = tile_class.row_token = 0;
      tile_class.default_workers = workers(Path::all_tiles);
      traits.classes.push_back(tile_class);
    };
    if (tiles.most_rows >= 64) add(TileKind::streamed, 64);
    if (tiles.most_rows >= 128) add(TileKind::packed, 128);
  }
  // A tile of many rows that is cut is written, read and merged row by row: on an H100 the busiest worker loses tens of
  // us. Of 16 requests with 32 KV heads levels took 2.6 times a plain plan's time after 64 shared tokens (which save a
  // worker 5 us of costs), 0.6 after 1,024 (78 us).
  traits.thresholds = {.level_enough = 1.1,
                       .cut = is_plain ? 0. : 40000.,
                       .dealt_at_once = is_plain ? 0 : 4,  // their keys and values are in the card's cache
                       .least_share = is_plain ? 0. : small.item + 140 * small.token,  // measured: some 128 keys
                       .granules_per_worker = 4,
                       .shared_cost_at_most = 0.9,
                       .least_saving = 50000,
                       .merge_row = 3 * small.row,
                       .prefix_tree_depth = 16};
  traits.granule = is_plain ? 32 : 64;
  traits.item_records = traits.walks_heads = true;
  return traits;
}

// Sums, and the functors' text, are float as on the host.
Rounding rounding(const AttentionSpec& spec, DType compute) {
  Rounding rounding = backend_of(Device::cpu()).rounding(spec, DType::fp32);
  rounding.tanh_ulps = 0;
  rounding.tanh_absolute = 4e-7;
  rounding.math = float_math_text();
  if (compute == DType::bf16) rounding.probabilities = rounding.vectors = 0x1p-8;
  if (compute == DType::fp16) rounding.probabilities = rounding.vectors = 0x1p-11;
  return rounding;
}

}  // namespace weft::attention::cuda
