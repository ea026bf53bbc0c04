// Where the chunks of swizzled tiles lie, for the host to look at.
#include "tile/cuda/swizzle.h"

namespace {

template <int kColumns>
bool is_free_of_conflicts() {
  alignas(128) static weft::u8 memory[8 * kColumns * 2 * 8];
  const weft::tile::SharedTile<kColumns> tile{memory};
  for (int first = 0; first + 8 <= 64; first += 8)
    for (int chunk = 0; chunk < tile.kChunks; ++chunk) {
      unsigned groups = 0;  // of 16 bytes in the 128 that all banks hold
      for (int row = first; row < first + 8; ++row)
        groups |= 1u << (reinterpret_cast<unsigned long>(tile.chunk(row, chunk)) / 16 % 8);
      if (groups != 0xff) return false;
    }
  return true;
}

}  // namespace

extern "C" bool weft_swizzle_is_free_of_conflicts(int columns) {
  switch (columns) {
    case 16: return is_free_of_conflicts<16>();
    case 24: return is_free_of_conflicts<24>();
    case 32: return is_free_of_conflicts<32>();
    case 40: return is_free_of_conflicts<40>();
    case 48: return is_free_of_conflicts<48>();
    case 64: return is_free_of_conflicts<64>();
    case 80: return is_free_of_conflicts<80>();
    case 96: return is_free_of_conflicts<96>();
    case 112: return is_free_of_conflicts<112>();
    case 128: return is_free_of_conflicts<128>();
    case 192: return is_free_of_conflicts<192>();
    case 256: return is_free_of_conflicts<256>();
    case 576: return is_free_of_conflicts<576>();
  }
  return false;
}
