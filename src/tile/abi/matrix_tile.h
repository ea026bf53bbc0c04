// A tile of 16-bit elements in shared memory, as tensor copies write it (tensor_map.h) and products of warpgroups read
// it (tile/cuda/ptx/wgmma.h). It lies in panels of as many columns as its swizzle spans, one behind the other:
//
//   panel 0: rows x span bytes | panel 1: rows x span bytes | ...        rows of a panel follow each other
//
// Within a row of a panel the 16-byte chunks are permuted, so that eight rows at one chunk lie in all banks. For host
// and kernel alike.
//
//   inline constexpr abi::MatrixTile kKeys = {.rows = 128, .columns = 64, .swizzle = abi::Swizzle::bytes_128};
//   shared + kKeys.chunk(7, 3)                       // elements 24 to 31 of row 7, of kKeys.bytes()
#pragma once

namespace weft::abi {

// What it permutes chunks within. The numbers are those of tensor maps.
enum class Swizzle : int { none = 0, bytes_32 = 1, bytes_64 = 2, bytes_128 = 3 };
// Bytes of a panel's row.
constexpr int span_of(Swizzle swizzle) { return 16 << static_cast<int>(swizzle); }
// The pattern repeats after eight rows: tiles begin at multiples of them.
constexpr int alignment_of(Swizzle swizzle) { return 8 * span_of(swizzle); }

// Which index of a product's operand runs along a tile's row: k, or that of the output (m of A, n of B). Queries and
// keys are of the first kind; values, whose rows are k, of the second.
enum class Major : int { k, mn };

// Columns of a product of a warpgroup.
constexpr bool is_product_width(int n) { return n == 8 || (n > 0 && n <= 256 && n % 16 == 0); }

struct MatrixTile {
  int rows, columns;  // rows: a multiple of 8
  Swizzle swizzle;

  constexpr int span() const { return span_of(swizzle); }
  constexpr int alignment() const { return alignment_of(swizzle); }
  constexpr int panel_columns() const { return span() / 2; }
  constexpr int panels() const { return (columns + panel_columns() - 1) / panel_columns(); }
  constexpr int panel_bytes() const { return rows * span(); }
  constexpr int bytes() const { return panels() * panel_bytes(); }
  constexpr bool is_valid() const { return rows > 0 && rows % 8 == 0 && columns > 0 && bytes() <= 1 << 18; }

  // Where the 16-byte chunk `c` of a row lies: eight columns from 8 c on.
  constexpr int chunk(int row, int c) const {
    const int chunks = span() / 16, mixed = c % chunks ^ (row * span() / 128 & (chunks - 1));
    return c / chunks * panel_bytes() + row * span() + mixed * 16;
  }

  // What a descriptor says of 16 steps of k from (row, column) on. Of Major::k the row is a multiple of 8, the column,
  // k, one of 16; of Major::mn the row, k, is a multiple of 16, and the column begins a panel.
  constexpr int offset(int row, int column) const {
    return column / panel_columns() * panel_bytes() + row * span() + column % panel_columns() * 2;
  }
  // Bytes to the next panel, or, of Major::mn without a swizzle, to the next eight steps of k. A swizzled panel has all
  // 16 steps of Major::k: the hardware wants 16.
  constexpr int leading(Major major) const {
    if (swizzle == Swizzle::none) return major == Major::k ? panel_bytes() : alignment();
    return major == Major::mn ? panel_bytes() : 16;
  }
  // Bytes to the next eight rows; without a swizzle, to the next eight of m or n.
  constexpr int stride(Major major) const {
    return swizzle == Swizzle::none && major == Major::mn ? panel_bytes() : alignment();
  }
};
// In panels as wide as they may be; columns: a multiple of 16.
constexpr MatrixTile in_wide_panels(int rows, int columns) {
  return {rows, columns,
          columns % 64 == 0   ? Swizzle::bytes_128
          : columns % 32 == 0 ? Swizzle::bytes_64
                              : Swizzle::bytes_32};
}

}  // namespace weft::abi
