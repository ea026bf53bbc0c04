// RGMS on a card by tensor cores: rows stand in tiles, a CTA each, whose sums lie in shared memory. Of a tile, the rows
// that one relation reaches are a group: what up to `slots` of them gather is one factor of a product, the relation's
// weights the other, and the warps that hold the product add its rows to the tile's, group after group.
//
//   if (has_relation_groups(unit, feat_in, feat_out, dtype)) run_in_groups(edges, arguments, stream);
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <tuple>
#include <vector>

#include "sparse/operators/ready.h"
#include "sparse/operators/vector_unit.h"

namespace weft::sparse {

inline constexpr int64_t kRowsOfTile = 128;

// Whether tensor cores multiply rows of so many features.
bool has_relation_groups(const VectorUnit& unit, int64_t feat_in, int64_t feat_out, DType dtype);

struct RelationGroups {
  // Tiles, below each its groups, which of the tile's rows are theirs, and, if they are gathered, the columns of these.
  Structure structure = {};
  std::vector<int32_t> relation = {};  // of each group
  std::vector<int32_t> column = {};    // the only one of each row; or gathered:
  std::vector<int32_t> order = {};     // where relational_from_coo's structure holds each edge
};
// Of a structure that relational_from_coo made, of which has_single_edges() where they are not gathered.
RelationGroups relation_groups(const Structure::Data& edges, bool is_gathered);
// Whether each row that a relation reaches has one edge of it, as kernels of convolutions do.
bool has_single_edges(const Structure::Data& edges);
struct RelationGroupsForm {
  int64_t slots = 32, feat_in = 0, feat_out = 0;
  DType dtype = DType::fp32;
  bool is_gathered = false, has_values = false;  // values are of gathered rows
};
// How many rows of a group a product best has, whatever the form says: few leave less of it empty, many read weights
// less often.
int64_t likely_slots(const Structure::Data& edges, RelationGroupsForm form);
ReadyProgram relation_groups_program(const RelationGroupsForm& form);

// What structures keep of it. Thread-safe.
struct KeptRelationGroups {
  bool has_single_edges = false;
  std::mutex mutex = {};
  std::map<std::tuple<int64_t, int64_t, DType, bool>, int64_t> slots = {};  // by what forms say besides
  std::map<bool, std::unique_ptr<const RelationGroups>> groups = {};        // by `is_gathered`
};

// What cards hold of relations in tiles for their calls so far, in bytes.
int64_t bytes_on_cards(const Structure& edges);

// `arguments` as rgms_program takes them.
void run_in_groups(const Structure& edges, const RunArguments& arguments, Stream stream);

}  // namespace weft::sparse
