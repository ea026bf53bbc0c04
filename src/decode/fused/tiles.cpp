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
  return ops::tile(to_string(form.role), form.cols, form.parts, tile_cols);
}

}  // namespace weft::decode::fused
