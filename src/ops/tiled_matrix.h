// How a matrix of weights lies for kernels that stream it: one line of tiles, each 16 rows by 64 columns, whose bytes
// follow each other. The tile is the granule: what a worker has are whole tiles that follow each other.
//
//   band 0   | tile 0 | tile 1 | tile 2 |      a band: 16 rows of the weights, so 16 outputs
//   band 1   | tile 3 | tile 4 | tile 5 |      columns: of x
//
// What is loaded as one are many tiles that follow each other; a small tile costs no more, and small matrices divide
// evenly.
//
// A wide matrix is cut into panels of columns first, so that a worker needs the columns of its panel alone: the line
// runs panel by panel, and in each band by band. The tiles of a band in a panel are a strip.
//
//   panel 0, band 0   | tile 0 | tile 1 |     panel 1, band 0   | tile 4 | tile 5 |
//   panel 0, band 1   | tile 2 | tile 3 |     panel 1, band 1   | tile 6 | tile 7 |
//
// Rows of a type that do not fill their last band, and columns beyond the last, are padded with zeros.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "weft/weight_type.h"

namespace weft::ops {

inline constexpr int64_t kBandRows = 16;

struct TypedRows {
  WeightType type = WeightType::f32;
  int64_t rows = 0;
  friend bool operator==(const TypedRows&, const TypedRows&) = default;
};

struct TiledMatrix {
  // Rows of one type. Bands hold rows of one part alone.
  struct Part {
    WeightType type = WeightType::f32;
    int64_t first_row = 0, rows = 0, first_band = 0, tile_bytes = 0;
    int64_t first_byte = 0;  // of one panel, where the matrix has no other
    int64_t num_bands() const { return (rows + kBandRows - 1) / kBandRows; }
  };
  int64_t rows = 0, cols = 0, tile_cols = 0;
  int64_t band_tiles = 0;  // tiles of a band
  int64_t num_bands = 0, bytes = 0;
  int64_t num_panels = 1;  // a divisor of band_tiles
  std::vector<Part> parts = {};

  int64_t num_tiles() const { return num_bands * band_tiles; }
  int64_t strip_tiles() const { return band_tiles / num_panels; }
  int64_t num_strips() const { return num_panels * num_bands; }
  int64_t panel_tiles() const { return num_bands * strip_tiles(); }
  int64_t panel_bytes() const { return bytes / num_panels; }
  int64_t panel_of(int64_t tile) const { return tile / panel_tiles(); }
  int64_t band_of(int64_t tile) const { return tile / strip_tiles() % num_bands; }
  // Which of its band's tiles it is, from the left; and the other way.
  int64_t in_band(int64_t tile) const { return panel_of(tile) * strip_tiles() + tile % strip_tiles(); }
  int64_t tile_at(int64_t band, int64_t in_band) const {
    return (in_band / strip_tiles() * num_bands + band) * strip_tiles() + in_band % strip_tiles();
  }
  const Part& part_of_band(int64_t band) const;
  int64_t byte_of(int64_t tile) const;  // of tile num_tiles(): all bytes
  int64_t bytes_of(int64_t first_tile, int64_t end_tile) const { return byte_of(end_tile) - byte_of(first_tile); }
  int64_t first_row_of(int64_t band) const;
  int64_t rows_of(int64_t band) const;  // that are not padding
  int64_t band_of_row(int64_t row) const;
};

// Of rows of these types, one behind the other; neighbours differ in type. Tiles have tile_cols columns, or one block
// of the weights where that is larger: 64, of q4_g128 128, of K types 256. One panel. Throws Error(unsupported), naming
// the matrix, where a type's blocks do not divide the columns.
TiledMatrix tile(std::string_view name, int64_t cols, std::span<const TypedRows> parts, int64_t tile_cols);

}  // namespace weft::ops
