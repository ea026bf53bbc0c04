// The matrices of a model in lines of tiles (ops/tiled_matrix.h).
#pragma once

#include <cstdint>
#include <vector>

#include "decode/program.h"
#include "decode/weights.h"
#include "ops/tiled_matrix.h"

namespace weft::decode::fused {

using ops::kBandRows;
using ops::TiledMatrix;
using ops::TypedRows;

// The types in which a matrix lies, its rows one behind the other.
struct MatrixForm {
  WeightRole role = WeightRole::embedding;
  int layer = -1;
  int64_t cols = 0;
  std::vector<TypedRows> parts = {};  // neighbours differ in type
};

// Of all matrices of a model: those of layers first, then embedding and head.
using ModelForm = std::vector<MatrixForm>;
ModelForm form_of(const Program& program, const ModelSources& sources);
ModelForm form_of(const Program& program, WeightType type);  // all of one type, as the shapes are
const MatrixForm& find_form(const ModelForm& form, WeightRole role, int layer);

TiledMatrix tile(const MatrixForm& form, int64_t tile_cols);

}  // namespace weft::decode::fused
