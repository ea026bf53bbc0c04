// Formats that a program's text defines:
//
//   format tiles(I, J) with (blocks):
//     IO = dense_fixed((m + 3) // 4)
//     JO = sparse_variable(IO, (n + 3) // 4, blocks, indptr=tiles_indptr, indices=tiles_indices)
//     II = dense_fixed(4)
//     JI = dense_fixed(4)
//     buffer(IO, JO, II, JI)
//     to IO = I // 4, JO = J // 4, II = I % 4, JI = J % 4
//     from I = IO * 4 + II, J = JO * 4 + JI
//
// The structure follows from the maps: every element goes to the coordinates that `to` says, each axis stores those
// that come to it. A sparse_fixed axis takes the first of a row; the others are left to the formats after it.
#pragma once

#include <string>
#include <vector>

#include "sparse/formats/format.h"
#include "sparse/formats/rule.h"

namespace weft::sparse {

struct FormatDefinition {
  std::string name = {};
  std::vector<std::string> old_axes = {};     // what the text calls rows and columns
  std::vector<std::string> new_params = {};   // what the structure tells
  Declarations declared = {};                 // the new axes, and all parameters
  std::vector<std::string> buffer_axes = {};  // of the new buffer
  std::map<std::string, Expr> to_new = {}, to_old = {};
  friend bool operator==(const FormatDefinition&, const FormatDefinition&) = default;
};

// "" where it can be a rule, else what it lacks.
std::string problem_of(const FormatDefinition& definition);
// Throws Error(unsupported) for lengths that speak of other than the matrix' extents.
FormatRewriteRule rule_of(const FormatDefinition& definition, const MatrixAxes& matrix);
// Of a format of the library, or of one that is in `defined`; hyb has several.
std::vector<FormatRewriteRule> rules_of(const Format& format, const MatrixAxes& matrix,
                                        const std::vector<FormatDefinition>& defined);

}  // namespace weft::sparse
