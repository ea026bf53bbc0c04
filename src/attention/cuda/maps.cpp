#include "attention/cuda/maps.h"

#include <fmt/format.h>

#include <numeric>

#include "attention/cuda/kernels/shared.h"
#include "jit/cuda/tensor_map.h"

namespace weft::attention::cuda {
namespace {

// Rows of a panel repeat their pattern after eight: a box of fewer begins nowhere.
constexpr int kLeastRows = 8;

abi::TensorLayout layout_of(const TokensView& view, const RunArgs& args, int num_heads, int dim,
                            const ProducerTile& tile) {
  const abi::MatrixTile panels = abi::in_wide_panels(tile.keys, dim);
  abi::TensorLayout layout = {};
  layout.data = const_cast<char*>(view.data), layout.dims = 5, layout.element_bytes = 2;
  layout.swizzle = panels.swizzle;
  const auto set = [&](int axis, long long size, long long stride, int box) {
    layout.sizes[axis] = static_cast<unsigned long long>(size);
    // Of an axis of one the stride says nothing, and may be anything.
    layout.strides[axis] = static_cast<unsigned long long>(size > 1 || axis == 0 ? stride : 16);
    layout.box[axis] = box;
  };
  const int rows = args.paged ? std::gcd(args.token_page_size, std::gcd(tile.keys, kProducerGranule)) : tile.keys;
  set(0, panels.panel_columns(), 2, panels.panel_columns());
  set(1, args.kv_tokens, view.token_stride, rows);
  set(2, panels.panels(), panels.span(), rows == tile.keys ? panels.panels() : 1);
  set(3, num_heads, view.head_stride, 1);
  set(4, args.kv_pages, view.page_stride, 1);
  return layout;
}

}  // namespace

BoxLayouts box_layouts(const AttentionSpec& spec, const RunArgs& args, const PlanHeader& plan,
                       const ProducerTile& tile) {
  return {layout_of(args.k, args, plan.num_kv_heads, spec.head_dim_qk, tile),
          layout_of(args.v, args, plan.num_kv_heads, spec.head_dim_vo, tile)};
}

std::string why_no_boxes(const BoxLayouts& layouts) {
  for (const auto& [name, layout] : {std::pair{"k", &layouts.k}, std::pair{"v", &layouts.v}}) {
    if (layout->box[1] < kLeastRows)
      return fmt::format(
          "{}: required pages of which a multiple of {} tokens divides a tile of keys, and they have {} tokens", name,
          kLeastRows, layout->sizes[1]);
    if (const std::string why = weft::cuda::why_no_map(*layout); !why.empty()) return fmt::format("{}: {}", name, why);
  }
  return {};
}

}  // namespace weft::attention::cuda
