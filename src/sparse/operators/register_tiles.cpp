#include "sparse/operators/register_tiles.h"

#include "base/check.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {
namespace {

// Copied in the order in which they are stored, row by row; then multiplied column by column.
std::string widened(const FeatureTile& tile, const std::string& last) {
  const std::string stem = tile.block + "_" + tile.widened;
  return fmt::format(
      "cache_read({0}.{1}, {2}, register)\n{3}o, {3}i = split({0}_fetch.{4}, {5})\nvectorize({3}i)\n"
      "reorder({6}, {7})\n",
      tile.block, tile.within.front(), tile.widened, stem, tile.within.back(), tile.unit.lanes, last, tile.rows);
}

}  // namespace

std::string tiled(const FeatureTile& tile) {
  // Half of the registers hold sums, the others what is multiplied.
  const int64_t one = tile.unit.lanes, most = tile.unit.registers / 2 * one;
  const auto fits = [&](int64_t width) { return tile.feat % width == 0 && width * tile.num_rows <= most; };
  int64_t width = tile.most_vectors * one;
  while (width > one && !fits(width)) width /= 2;
  const bool has_tail = tile.feat % one != 0 || tile.feat == 0;
  const bool several = has_tail || tile.feat > width;
  const std::string loop = tile.block + "." + tile.loop, stem = tile.block + "_" + tile.loop;
  const std::string outer = stem + "o", part = stem + "t", vectors = stem + "u", vector = stem + "i";
  std::string text, inner = loop;
  if (several) {
    inner = !has_tail && width > one ? part : vector;
    text += fmt::format("{}, {} = split({}, {})\n", outer, inner, loop, has_tail ? one : width);
  }
  const bool has_vectors = !has_tail && width > one;
  if (has_vectors) text += fmt::format("{}, {} = split({}, {})\n", vectors, vector, inner, one);
  const std::string lanes = has_vectors ? vector : inner;
  std::string order = several ? outer + ", " : "";
  const std::string last = tile.within.empty() ? "" : tile.block + "." + tile.within.back();
  const bool widens = !tile.widened.empty() && !tile.rows.empty();
  for (const std::string& reduction : tile.within) order += fmt::format("{}.{}, ", tile.block, reduction);
  if (widens) order.resize(order.size() - last.size() - 2);
  if (!tile.rows.empty()) order += tile.rows + ", ";
  if (widens) order += last + ", ";
  if (has_vectors) order += vectors + ", ";
  if (!tile.pairs.empty()) order += tile.pairs + ", ";
  if (!order.empty()) text += fmt::format("reorder({}{})\n", order, lanes);
  text += fmt::format("vectorize({})\n", lanes);
  if (has_vectors) text += fmt::format("unroll({})\n", vectors);
  if (!tile.rows.empty() && tile.num_rows > 1) text += fmt::format("unroll({})\n", tile.rows);
  if (!tile.pairs.empty()) text += fmt::format("annotate({}, dot)\n", tile.pairs);
  text += fmt::format("cache_write({}, register)\n", several ? outer : tile.around);
  return text + (widens ? widened(tile, last) : "");
}

std::string block_tiled(BlockTile tile) {
  const int64_t tall = tile.tile.unit.registers / 2;
  int64_t rows = tile.rows > 0 ? tile.rows : tile.is_tall && tile.block % tall == 0 ? tall : 4;
  while (tile.block % rows != 0) rows /= 2;
  std::string text;
  tile.tile.block = tile.name;
  tile.tile.num_rows = rows;
  tile.tile.around = tile.name + ".ii";
  if (rows > 1 && rows < tile.block) {
    text = fmt::format("{0}_ro, {0}_ri = split({0}.ii, {1})\n", tile.name, rows);
    tile.tile.rows = tile.name + "_ri";
    tile.tile.around = tile.name + "_ro";
  } else if (rows > 1) {
    tile.tile.rows = tile.name + ".ii";
    tile.tile.around = tile.name + "." + tile.above;
  }
  return text + tiled(tile.tile);
}

bool has_vectors(int64_t feat, int64_t lanes) { return feat > 0 && feat % lanes == 0; }

bool has_pairs(int64_t block, int64_t feat, DType dtype, bool dots, const VectorUnit& unit) {
  return dots && dtype == DType::bf16 && unit.lanes == 16 && has_vectors(block, 2) && has_vectors(feat, 16);
}

std::string in_pairs(BlockTile& tile) {
  std::string& last = tile.tile.within.back();
  const std::string text = fmt::format("{0}_jp, {0}_jj = split({0}.{1}, 2)\n", tile.name, last);
  last = tile.name + "_jp";
  tile.tile.pairs = tile.name + "_jj";
  return text;
}

bool has_widened(int64_t block, int64_t feat, DType dtype, bool pairs, const VectorUnit& unit) {
  return dtype == DType::bf16 && !pairs && has_vectors(block, unit.lanes) && has_vectors(feat, unit.lanes);
}

std::string block_rows_tiled(BlockTile tile, DType dtype, bool dots) {
  const bool pairs = has_pairs(tile.block, tile.tile.feat, dtype, dots, tile.tile.unit);
  const bool widens = has_widened(tile.block, tile.tile.feat, dtype, pairs, tile.tile.unit);
  tile.is_tall = pairs || widens || dtype == DType::fp32;
  if (widens) tile.tile.widened = "A";
  const std::string split = pairs ? in_pairs(tile) : "";
  return split + block_tiled(tile);
}

std::string partial_sums(const std::string& block, int64_t feat, const VectorUnit& unit) {
  if (!has_vectors(feat, unit.lanes) || feat == unit.lanes) return {};
  std::string text = fmt::format(
      "{0}_ko, {0}_ki = split({0}.k, {1})\nrfactor({0}_ki, register)\nvectorize({0}_zero.{0}_ki)\n"
      "vectorize({0}_ki)\nvectorize({0}_sum.{0}_ki_sum)\n",
      block, unit.lanes);
  if (feat <= unit.lanes * unit.registers) text += fmt::format("unroll({}_ko)\n", block);
  return text;
}

}  // namespace weft::sparse
