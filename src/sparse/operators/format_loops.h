// The loops that decompose_format makes of an operator's iteration, so that a schedule may name them.
//
//   for (const FormatLoops& part : loops_of_formats("sddmm", parse_formats("bsr(4), coo()")))
//     text += fmt::format("parallel({}.{})\n", part.iteration, part.outer());
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sparse/formats/format.h"

namespace weft::sparse {

// Of one part of a list of formats: of each format, of hyb each bucket of each partition.
struct FormatLoops {
  std::string iteration = {};
  std::vector<std::string> loops = {};  // those of more than one iteration over A, outer ones first, by variable
  std::string elements = {};            // the one over stored elements or blocks
  int64_t width = 1;                    // elements of a row, where all have as many
  bool has_rows_outside = false;        // each iteration of the outermost one has rows of its own
  bool has_rows_within = false;         // as those of blocks
  const std::string& outer() const { return loops.front(); }
};

// Of formats of A[I, J], which `iteration` reads. Throws Error(unsupported) for a format of no loop,
// Error(invalid_argument) for one whose numbers are out of range.
std::vector<FormatLoops> loops_of_formats(const std::string& iteration, const Formats& formats);

}  // namespace weft::sparse
