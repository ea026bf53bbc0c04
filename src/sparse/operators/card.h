// How ready programs run on cards: schedules that bind rows to CTAs and features to lanes.
//
//   "lower()\n" + card_rows({.iteration = "csrmm", .cta = "i", .reductions = {"j"}, .feat = 64})
#pragma once

#include <string>
#include <vector>

#include "sparse/operators/vector_unit.h"
#include "weft/tensor.h"

namespace weft::sparse {

// How a CTA of rows of features is cut: lanes of a row, each with `vector` features at once, and rows side by side.
struct CardLanes {
  int64_t vector = 1, lanes = 1, rows_of_cta = 1;
};
CardLanes card_lanes(int64_t feat, DType dtype, const CardCut& cut = {});

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
  CardCut cut = {};
};
std::string card_rows(const CardRows& rows);

// Dot products of two rows for each stored element: elements one by one, so that long rows take no longer, a part of a
// warp each, which adds up its features in pairs.
struct CardEdges {
  std::string iteration = {};
  std::string heads = {};
  int64_t feat = 0;
  DType dtype = DType::fp32;
  CardCut cut = {};  // of card_edges
};
// How a CTA of elements is cut: lanes of one, and elements side by side.
CardLanes card_edge_lanes(int64_t feat, DType dtype, const CardCut& cut = {});
// Of a program whose axes I and J the iteration is over; lower() is among the lines.
std::string card_edges(const CardEdges& edges);

// The same of blocks, axes IO and JO: a block a CTA, an element (ii, ji) of it a thread.
std::string card_blocks(const CardEdges& edges);

// Products of tiles by tensor cores: the sums of a CTA lie in a fragment, what it multiplies comes to shared memory
// some iterations of `stage` ahead.
struct CardProduct {
  std::string iteration = {};
  std::string cta = {};         // the loop of CTAs, whose iterations have sums of their own
  std::string stage = {};       // the reduction around a tile's product
  std::string row = "ii";       // of the tile, `rows` of them
  std::string depth = {};       // of the tile, `depths` of them
  bool is_depth_first = false;  // the first factor has its rows side by side
  std::string feature = "k";
  std::string heads = {};  // a loop around, "": none
  std::string first = "A", second = "B", sum = "C";
  int64_t rows = 0, depths = 0, feat = 0;
  bool has_init = true;  // else it adds to what is there
};
// Whether tensor cores multiply such tiles: of whole tiles of theirs, in a type that they take.
bool has_card_product(const VectorUnit& unit, int64_t rows, int64_t depths, int64_t feat, DType dtype);
std::string card_product(const CardProduct& product);
// The same of a product for each stored block, axes IO and JO: a row of blocks a CTA.
bool has_card_block_products(const VectorUnit& unit, int64_t block, int64_t feat, DType dtype);
std::string card_block_products(const std::string& iteration, int64_t block, int64_t feat);

// A row a CTA, an element of it a thread.
std::string card_elements(const std::string& iteration, const std::string& outer, const std::string& inner);
}  // namespace weft::sparse
