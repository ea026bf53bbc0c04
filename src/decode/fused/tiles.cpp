#include "decode/fused/tiles.h"

#include <algorithm>

#include "base/check.h"

namespace weft::decode::fused {
namespace {

void add_rows(MatrixForm& form, WeightType type, int64_t rows) {
  if (form.parts.empty() || form.parts.back().type != type) form.parts.push_back({type, 0});
  form.parts.back().rows += rows;
}

const Sources& sources_of(const ModelSources& sources, WeightRole role, int layer) {
  const bool is_tied = role == WeightRole::head && sources.own_head.empty();
  return matrix_of(sources, is_tied ? WeightRole::embedding : role, layer);
}

// The matrices of the program's products and of its embedding; the last product's is called head, even where it is the
// embedding.
template <class AddParts>
ModelForm forms(const Program& program, const AddParts& add_parts) {
  ModelForm form;
  const auto add = [&](WeightRole role, int layer, const Weight& weight) {
    MatrixForm& matrix = form.emplace_back(MatrixForm{role, layer, weight.cols, {}});
    add_parts(matrix, weight);
  };
  for (const Operation& operation : program.operations) {
    if (operation.kind == OperationKind::embed) add(WeightRole::embedding, -1, operation.weights[0]);
    if (operation.kind == OperationKind::project)
      add(operation.layer < 0 ? WeightRole::head : operation.weights[0].role, operation.layer, operation.weights[0]);
  }
  return form;
}

}  // namespace

ModelForm form_of(const Program& program, const ModelSources& sources) {
  return forms(program, [&](MatrixForm& matrix, const Weight&) {
    for (const ops::WeightSource& source : sources_of(sources, matrix.role, matrix.layer))
      add_rows(matrix, source.type, source.rows);
  });
}

ModelForm form_of(const Program& program, WeightType type) {
  return forms(program, [&](MatrixForm& matrix, const Weight& weight) { add_rows(matrix, type, weight.rows); });
}

const MatrixForm& find_form(const ModelForm& form, WeightRole role, int layer) {
  const auto found = std::ranges::find_if(
      form, [&](const MatrixForm& matrix) { return matrix.role == role && matrix.layer == layer; });
  ensure(found != form.end(), "a model's form has no matrix {} of layer {}", to_string(role), layer);
  return *found;
}

TiledMatrix tile(const MatrixForm& form, int64_t tile_cols) {
  int64_t block_cols = 1;
  for (const TypedRows& part : form.parts) block_cols = std::max(block_cols, weight_block(part.type).inputs);
  TiledMatrix matrix{.cols = form.cols, .tile_cols = std::max(tile_cols / block_cols, int64_t{1}) * block_cols};
  matrix.band_tiles = (form.cols + matrix.tile_cols - 1) / matrix.tile_cols;
  for (const TypedRows& part : form.parts) {
    const WeightBlock& block = weight_block(part.type);
    check(form.cols % block.inputs == 0, ErrorCode::unsupported,
          "{}: required {} columns in groups of {} ({}); supported are whole groups; missing: the last one",
          to_string(form.role), form.cols, block.inputs, weft::to_string(part.type));
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

}  // namespace weft::decode::fused
