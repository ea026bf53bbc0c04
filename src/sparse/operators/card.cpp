#include "sparse/operators/card.h"

#include <algorithm>
#include <bit>

#include "loop/threads/fragments.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {
namespace {

constexpr int64_t kWarp = 32, kThreads = 256;
constexpr int64_t kAhead = 4;
// Elements of a thread, whose loads are on their way together. Of those that a whole warp adds up, 16 bytes a lane, two
// have as much on its way as registers of all warps that fit allow: four leave 5 CTAs of 8.
constexpr int64_t kEdgesOfThread = 4, kWideEdgesOfThread = 2;
// Rows in shared memory begin at odd multiples of 8 elements: eight of them lie in different banks.
constexpr int64_t kAlignment = 8;
constexpr int64_t kSharedBytes = 48 << 10, kMostStages = 4;

// Elements of 16 bytes, or of what a row divides by; `most` of them, where that is not 0.
int64_t vector_of(int64_t feat, DType dtype, int64_t most = 0) {
  int64_t lanes = 128 / bits_of(dtype);
  while (most > 0 && lanes > most) lanes /= 2;
  while (lanes > 1 && (feat == 0 || feat % lanes != 0)) lanes /= 2;
  return lanes;
}

int64_t power_of_two(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(n, 1))));
}

}  // namespace

CardLanes card_lanes(int64_t feat, DType dtype, const CardCut& cut) {
  const int64_t vector = vector_of(feat, dtype, cut.vector);
  const int64_t lanes = std::min(power_of_two(feat / vector), kThreads);
  return {vector, lanes, cut.rows > 0 ? cut.rows : kThreads / lanes};
}

std::string card_rows(const CardRows& rows) {
  const auto [vector, num_lanes, per_cta] = card_lanes(rows.feat, rows.dtype, rows.cut);
  const std::string& it = rows.iteration;
  std::string lanes = it + "." + rows.feature, text, order;
  for (const std::string& reduction : rows.reductions) order += fmt::format(", {}.{}", it, reduction);
  if (vector > 1 && vector < rows.feat) {
    text += fmt::format("{0}_fo, {0}_fi = split({1}, {2})\n", it, lanes, vector);
    if (!order.empty()) text += fmt::format("reorder({0}_fo{1}, {0}_fi)\n", it, order);
    text += fmt::format("vectorize({}_fi)\n", it);
    lanes = it + "_fo";
  } else if (!order.empty()) {
    text += fmt::format("reorder({}{})\n", lanes, order);
  }
  if (!rows.heads.empty()) text += fmt::format("bind({}.{}, blockIdx.y)\n", it, rows.heads);
  if (!rows.row.empty()) {
    if (!rows.cta.empty()) text += fmt::format("bind({}.{}, blockIdx.x)\n", it, rows.cta);
    text += fmt::format("bind({}.{}, threadIdx.y)\n", it, rows.row);
  } else if (per_cta > 1) {
    text += fmt::format("{0}_ro, {0}_ri = split({0}.{1}, {2})\nbind({0}_ro, blockIdx.x)\nbind({0}_ri, threadIdx.y)\n",
                        it, rows.cta, per_cta);
  } else {
    text += fmt::format("bind({}.{}, blockIdx.x)\n", it, rows.cta);
  }
  text += fmt::format("bind({}, threadIdx.x)\n", lanes);
  if (rows.reductions.empty()) return text;
  return text + fmt::format("cache_write({}, register)\nannotate({}.{}, prefetch, {})\n", lanes, it,
                            rows.reductions.back(), rows.cut.ahead > 0 ? rows.cut.ahead : kAhead);
}

CardLanes card_edge_lanes(int64_t feat, DType dtype, const CardCut& cut) {
  const int64_t vector = vector_of(feat, dtype, cut.vector), pieces = std::max<int64_t>(feat / vector, 1);
  // Of rows without vectors any number of lanes, the last of them with less to do.
  const int64_t lanes = feat <= 1 ? 1 : std::min(vector == 1 ? power_of_two(pieces) : pieces & -pieces, kWarp);
  return {vector, lanes, cut.rows > 0 ? cut.rows : kThreads / lanes};
}

std::string card_edges(const CardEdges& edges) {
  const std::string& it = edges.iteration;
  const auto [vector, lanes, per_cta] = card_edge_lanes(edges.feat, edges.dtype, edges.cut);
  const int64_t own = lanes == kWarp ? kWideEdgesOfThread : kEdgesOfThread;
  const int64_t each = edges.cut.each > 0 ? edges.cut.each : own;
  std::string text = fmt::format("sparse_fuse({0}, I, J)\nlower()\nmaterialise_rows({0}.i_j)\n", it);
  text += fmt::format("{0}_eo, {0}_ei = split({0}.i_j, {1})\n", it, per_cta * each);
  // Lanes add up once all elements of a thread are there, so that nothing waits between their loads.
  std::string edge = it + "_ei", lane = it + ".k", within;
  const auto add = [&](const std::string& loop) { within += ", " + loop; };
  if (each > 1) {
    text += fmt::format("{0}_em, {0}_er = split({0}_ei, {1})\nunroll({0}_em)\n", it, per_cta);
    edge = it + "_er";
    add(it + "_em");
  }
  if (edges.feat > lanes * vector) {
    text += fmt::format("{0}_ko, {0}_kr = split({1}, {2})\n", it, lane, lanes * vector);
    lane = it + "_kr";
    add(it + "_ko");
  }
  if (vector > 1 && lanes > 1) {
    text += fmt::format("{0}_kl, {0}_kv = split({1}, {2})\nunroll({0}_kv)\n", it, lane, vector);
    lane = it + "_kl";
  } else if (vector > 1) {
    text += fmt::format("unroll({})\n", lane);
  }
  // A loop over the features of one lane stays the innermost one.
  if (lanes > 1)
    text += fmt::format("reorder({}, {}{})\n", edge, lane, within);
  else if (!within.empty())
    text += fmt::format("reorder({}{}, {})\n", edge, within, lane);
  text += fmt::format("cache_write({}, register)\n", edge);
  if (lanes > 1) text += fmt::format("bind({}, threadIdx.x)\n", lane);
  if (!edges.heads.empty()) text += fmt::format("bind({}.{}, blockIdx.y)\n", it, edges.heads);
  return text + fmt::format("bind({0}_eo, blockIdx.x)\nbind({1}, threadIdx.y)\n", it, edge);
}

std::string card_blocks(const CardEdges& edges) {
  const std::string& it = edges.iteration;
  const int64_t vector = vector_of(edges.feat, edges.dtype);
  std::string text = fmt::format("sparse_fuse({0}, IO, JO)\nlower()\nmaterialise_rows({0}.io_jo)\n", it);
  if (vector > 1 && vector < edges.feat)
    text += fmt::format("{0}_ko, {0}_ki = split({0}.k, {1})\nunroll({0}_ki)\n", it, vector);
  return text + fmt::format(
                    "bind({0}.{1}, blockIdx.y)\nbind({0}.io_jo, blockIdx.x)\nbind({0}.ii, threadIdx.y)\n"
                    "bind({0}.ji, threadIdx.x)\ncache_write({0}.ji, register)\n",
                    it, edges.heads);
}

bool has_card_product(const VectorUnit& unit, int64_t rows, int64_t depths, int64_t feat, DType dtype) {
  return unit.is_of_card && unit.has_mma && loop::is_narrow(dtype) && rows % 8 == 0 && rows <= 64 &&
         depths % loop::kTileDepth == 0 && depths <= 64 && feat > 0 && feat % 16 == 0;
}

std::string card_product(const CardProduct& p) {
  const std::string& it = p.iteration;
  // Wide tiles read a factor less often; of few features there are more CTAs.
  int64_t width = p.feat >= 256 ? 128 : p.feat <= 96 ? p.feat : 64;
  const auto bytes = [&] { return 2 * p.depths * (p.rows + width + 2 * kAlignment); };
  while (width > 16 && (p.feat % width != 0 || 2 * bytes() > kSharedBytes)) width -= 16;
  std::string feature = it + "." + p.feature, around = it + "." + p.cta, text;
  const std::string row = it + "." + p.row, depth = it + "." + p.depth, stage = it + "." + p.stage;
  std::string tiles;
  if (width < p.feat) {
    text += fmt::format("{0}_ko, {0}_ki = split({1}, {2})\n", it, feature, width);
    feature = it + "_ki";
    around = it + "_ko";
    tiles = around + ", ";
  }
  text += p.is_depth_first ? fmt::format("reorder({}{}, {}, {}, {})\n", tiles, stage, depth, row, feature)
                           : fmt::format("reorder({}{}, {}, {}, {})\n", tiles, stage, row, depth, feature);
  text += fmt::format("cache_write({}, fragment)\n", around);
  if (p.has_init) text += fmt::format("decompose_reduction({})\n", stage);
  for (const std::string& factor : {p.first, p.second})
    text += fmt::format("cache_read({0}, {1}, shared)\nstorage_align({1}_local, {2}, {3})\n", stage, factor,
                        2 * kAlignment, kAlignment);
  text += fmt::format("tensorize({}, mma)\nannotate({}, stages, {})\n", p.is_depth_first ? depth : row, stage,
                      std::clamp<int64_t>(kSharedBytes / bytes(), 2, kMostStages));
  if (!tiles.empty()) text += fmt::format("bind({}, blockIdx.z)\n", around);
  if (!p.heads.empty()) text += fmt::format("bind({}.{}, blockIdx.y)\n", it, p.heads);
  return text + fmt::format("bind({}.{}, blockIdx.x)\n", it, p.cta);
}

bool has_card_block_products(const VectorUnit& unit, int64_t block, int64_t feat, DType dtype) {
  return has_card_product(unit, block, loop::kTileDepth, feat, dtype) && block % 16 == 0 && feat <= 256 &&
         3 * 2 * block * (feat + kAlignment) <= kSharedBytes;
}

std::string card_block_products(const std::string& iteration, int64_t block, int64_t feat) {
  const int64_t bytes = 2 * block * (feat + kAlignment);
  return fmt::format(
      "cache_read({0}.io, X, shared)\nstorage_align(X_local, {1}, {2})\ncache_read({0}.jo, Y, shared)\n"
      "storage_align(Y_local, {1}, {2})\ncache_write({0}.jo, fragment)\ndecompose_reduction({0}.ii)\n"
      "tensorize({0}.ii, mma)\nannotate({0}.jo, stages, {3})\nbind({0}.h, blockIdx.y)\nbind({0}.io, blockIdx.x)\n",
      iteration, 2 * kAlignment, kAlignment, std::clamp<int64_t>(kSharedBytes / bytes - 1, 2, kMostStages));
}

std::string card_elements(const std::string& iteration, const std::string& outer, const std::string& inner) {
  return fmt::format("bind({0}.{1}, blockIdx.x)\nbind({0}.{2}, threadIdx.x)\n", iteration, outer, inner);
}

}  // namespace weft::sparse
