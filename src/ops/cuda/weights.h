// A matrix of weights on a card: quantised as in its file, in tiles where its types have them and the card multiplies
// from them (sm_80 and later; ops/cuda/tiled_weights.h), else in planes that kernels read without gaps
// (ops/cuda/kernels/weights.h). Either is the only copy, whoever reads it.
//
//   CardMatrix matrix = form_matrix(device, "qkv", sources);
//   load(matrix, memory, sources, team);                           // matrix.bytes of the card's memory
//   const CardMatrix alone = load_matrix(device, sources, team);   // both, with memory of its own
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ops/cuda/kernels/args.h"
#include "ops/tiled_matrix.h"
#include "ops/weight_source.h"
#include "weft/device.h"

namespace weft::ops {

struct CardMatrix {
  // Of neighbouring sources of one type.
  struct TypedRows {
    WeightType type = WeightType::f32;
    int64_t first_row = 0, rows = 0;
    // Where they lie: one of the two.
    WeightPlanes planes = {};
    CardTiles tiles = {};
  };
  Device device = {};
  std::string name = {};
  int64_t rows = 0, cols = 0, bytes = 0;
  std::vector<TypedRows> typed_rows = {};
  TiledMatrix tiles = {};       // of no parts: rows lie in planes
  std::string not_finite = {};  // of tiles: which scale is no finite number, in words; "": all are
  Workspace memory = {};        // of a matrix that has its own

  bool is_tiled() const { return !tiles.parts.empty(); }
};

// What the sources become, each one's rows behind those before it. Throws Error(invalid_shape) for sources of several
// widths or columns that are no whole blocks.
CardMatrix form_matrix(Device device, std::string_view name, std::span<const WeightSource> sources);
// In these tiles, which are the sources' rows; throws what check_tiles throws.
CardMatrix form_matrix(Device device, std::string_view name, std::span<const WeightSource> sources, TiledMatrix tiles);
CardMatrix form_planes(Device device, std::string_view name, std::span<const WeightSource> sources);

// Reads and packs with the team. Throws what reading throws.
void load(CardMatrix& matrix, void* memory, std::span<const WeightSource> sources, WorkerTeam& team);
// Throws Error(out_of_memory) too.
CardMatrix load_matrix(CardMatrix form, std::span<const WeightSource> sources, WorkerTeam& team);
CardMatrix load_matrix(Device device, std::span<const WeightSource> sources, WorkerTeam& team);

// For the host's eyes: what lies in the planes of one row, and how large that is.
struct PlaneBytes {
  int64_t quants = 0, high = 0, scales = 0, supers = 0;
};
PlaneBytes plane_bytes(WeightType type, int64_t cols);  // of a row
int64_t file_row_bytes(WeightType type, int64_t cols);
struct PlanesOfRow {
  char *quants, *high, *scales, *supers;
};
void pack_row(WeightType type, const char* file_row, int64_t cols, const PlanesOfRow& to);

}  // namespace weft::ops
