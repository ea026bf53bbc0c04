// Edges that the rows of `weft bench sparse` about relations have: generated typed graphs, maps of convolutions, and
// the typed graphs of --data.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"
#include "weft/sparse.h"

namespace weft::bench {

struct TypedGraph {
  std::string name;
  sparse::CooTensor edges;  // (relation, row, column)
};
// Relations and sources of an edge with a probability of 1 / rank, at most once each: skewed like graphs of facts.
TypedGraph typed_graph(int64_t nodes, int64_t relations, int64_t edges);
// As many nodes, relations and edges as typed graphs that are known by these names; large ones are a share.
struct KnownTypedGraph {
  const char* name;
  int64_t nodes, relations, edges;
  int64_t share = 1;  // of nodes and edges, one part of so many
};
std::span<const KnownTypedGraph> known_typed_graphs();
TypedGraph synthetic_graph(const KnownTypedGraph& graph);
// The files "*triples.csv" of the folder that the options name, each also .gz; none without one.
std::vector<TypedGraph> typed_graphs_of(const BenchOptions& options);
// Voxels of rolling hills, as a scanner finds them: an eighth of all columns, neighbours together.
std::vector<std::array<int32_t, 3>> hills(int64_t voxels);

}  // namespace weft::bench
