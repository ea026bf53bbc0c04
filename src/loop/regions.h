// What statements read and write: of each buffer a region, which holds every element that may be accessed.
//
//   // for k in range(8): C[i, k] = A[i, j] * B[J[i, j], k]
//   Regions regions = regions_of(body);
//   to_text(regions.reads);    // "J[i, j], A[i, j], B[J[i, j], 0:8]"
//   to_text(regions.writes);   // "C[i, 0:8]"
#pragma once

#include <string>
#include <vector>

#include "loop/ir.h"

namespace weft::loop {

struct Regions {
  std::vector<Region> reads = {}, writes = {};  // one for each buffer, in the order of the first accesses
  const Region* find_read(std::string_view buffer) const;
  const Region* find_written(std::string_view buffer) const;
  friend bool operator==(const Regions&, const Regions&) = default;
};

// In terms of the variables that are declared around the statements. Where an index depends on their own loops other
// than by a sum, or on what their own `let` names, the dimension is accessed whole. Memory of their own is left out.
Regions regions_of(const Body& body);
// Of a block with its `init`.
Regions regions_of_block(const Stmt& block);
// Writes them into each block.
void find_regions(Body& body);
// Whether no element lies in both, proven; the variables of both mean the same.
bool are_apart(const Region& a, const Region& b);

std::string to_text(const std::vector<Region>& regions);

}  // namespace weft::loop
