#include "ops/tiled_matrix.h"

#include <algorithm>

#include "base/check.h"

namespace weft::ops {

TiledMatrix tile(std::string_view name, int64_t cols, std::span<const TypedRows> parts, int64_t tile_cols) {
  int64_t block_cols = 1;
  for (const TypedRows& part : parts) block_cols = std::max(block_cols, weight_block(part.type).inputs);
  TiledMatrix matrix{.cols = cols, .tile_cols = std::max(tile_cols / block_cols, int64_t{1}) * block_cols};
  matrix.band_tiles = (cols + matrix.tile_cols - 1) / matrix.tile_cols;
  for (const TypedRows& part : parts) {
    const WeightBlock& block = weight_block(part.type);
    check(cols % block.inputs == 0, ErrorCode::unsupported,
          "{}: required {} columns in groups of {} ({}); supported are whole groups; missing: the last one", name, cols,
          block.inputs, weft::to_string(part.type));
    matrix.parts.push_back({.type = part.type,
                            .first_row = matrix.rows,
                            .rows = part.rows,
                            .first_band = matrix.num_bands,
                            .tile_bytes = kBandRows * matrix.tile_cols / block.inputs * block.bytes,
                            .first_byte = matrix.bytes});
    const TiledMatrix::Part& added = matrix.parts.back();
    matrix.rows += part.rows;
    matrix.num_bands += added.num_bands();
    matrix.bytes += added.num_bands() * matrix.band_tiles * added.tile_bytes;
  }
  return matrix;
}

const TiledMatrix::Part& TiledMatrix::part_of_band(int64_t band) const {
  size_t part = parts.size() - 1;
  while (part > 0 && parts[part].first_band > band) --part;
  return parts[part];
}

int64_t TiledMatrix::byte_of(int64_t tile) const {
  const int64_t panel = std::min(panel_of(tile), num_panels - 1), in_panel = tile - panel * panel_tiles();
  const Part& part = part_of_band(std::min(in_panel / strip_tiles(), num_bands - 1));
  return panel * panel_bytes() + part.first_byte / num_panels +
         (in_panel - part.first_band * strip_tiles()) * part.tile_bytes;
}

int64_t TiledMatrix::first_row_of(int64_t band) const {
  const Part& part = part_of_band(band);
  return part.first_row + (band - part.first_band) * kBandRows;
}

int64_t TiledMatrix::rows_of(int64_t band) const {
  const Part& part = part_of_band(band);
  return std::min(kBandRows, part.rows - (band - part.first_band) * kBandRows);
}

int64_t TiledMatrix::band_of_row(int64_t row) const {
  size_t part = parts.size() - 1;
  while (part > 0 && parts[part].first_row > row) --part;
  return parts[part].first_band + (row - parts[part].first_row) / kBandRows;
}

}  // namespace weft::ops
