// How ready programs run on cards: schedules that bind rows to CTAs and features to lanes.
//
//   "lower()\n" + card_rows({.iteration = "csrmm", .cta = "i", .reductions = {"j"}, .feat = 64})
#pragma once

#include <string>
#include <vector>

#include "sparse/operators/kept.h"

namespace weft::sparse {

// How a CTA of rows of features is cut: lanes of a row, each with `vector` features at once, and rows side by side.
struct CardLanes {
  int64_t vector = 1, lanes = 1, rows_of_cta = 1;
};
CardLanes card_lanes(int64_t feat, DType dtype);

// Sums of rows of features: a row's features lie over threadIdx.x, 16 bytes each where they divide by that; the rows of
// a CTA over threadIdx.y. A thread keeps its sums in registers while the reductions pass by.
struct CardRows {
  std::string iteration = {};
  std::string cta = {};                      // the loop of CTAs, of all rows where there is no loop `row`; "": none yet
  std::string row = {};                      // within it, rows of threads; "": rows are split off `cta`
  std::vector<std::string> reductions = {};  // outer ones first; the last one's gathers are read ahead; may be none
  std::string feature = "k";
  std::string heads = {};  // a loop around, "": none
  int64_t feat = 0;
  DType dtype = DType::fp32;
};
std::string card_rows(const CardRows& rows);

// Dot products of two rows for each stored element: elements one by one, so that long rows take no longer, a part of a
// warp each, which adds up its features in pairs.
struct CardEdges {
  std::string iteration = {};
  std::string heads = {};
  int64_t feat = 0;
  DType dtype = DType::fp32;
};
// Of a program whose axes I and J the iteration is over; lower() is among the lines.
std::string card_edges(const CardEdges& edges);

// The same of blocks, axes IO and JO: a block a CTA, an element (ii, ji) of it a thread.
std::string card_blocks(const CardEdges& edges);

// A row a CTA, an element of it a thread.
std::string card_elements(const std::string& iteration, const std::string& outer, const std::string& inner);
}  // namespace weft::sparse
