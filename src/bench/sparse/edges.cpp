#include "bench/sparse/edges.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "bench/sparse/cases.h"
#include "bench/stop.h"

namespace weft::bench {
namespace {

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

// Ranks below `of`, each with a probability of 1 / (rank + 1).
class Ranks {
 public:
  explicit Ranks(int64_t of) : sums_(static_cast<size_t>(of)) {
    double sum = 0;
    for (size_t rank = 0; rank < sums_.size(); ++rank) sums_[rank] = sum += 1 / static_cast<double>(rank + 1);
  }
  size_t draw(std::mt19937_64& random) const {
    const double at = uniform(random) * sums_.back();
    return static_cast<size_t>(std::lower_bound(sums_.begin(), sums_.end() - 1, at) - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

}  // namespace

TypedGraph typed_graph(int64_t nodes, int64_t relations, int64_t edges) {
  std::mt19937_64 random(1);
  const Ranks relation_of(relations), source_of(nodes);
  std::vector<int32_t> node_of(static_cast<size_t>(nodes));
  std::iota(node_of.begin(), node_of.end(), 0);
  std::shuffle(node_of.begin(), node_of.end(), random);
  std::vector<std::array<int32_t, 3>> drawn;
  while (static_cast<int64_t>(drawn.size()) < edges) {
    while (static_cast<int64_t>(drawn.size()) < edges + edges / 8) {
      const auto relation = static_cast<int32_t>(relation_of.draw(random));
      const auto row = static_cast<int32_t>(random() % static_cast<uint64_t>(nodes));
      drawn.push_back({relation, row, node_of[source_of.draw(random)]});
    }
    std::sort(drawn.begin(), drawn.end());
    drawn.erase(std::unique(drawn.begin(), drawn.end()), drawn.end());
  }
  std::shuffle(drawn.begin(), drawn.end(), random);
  drawn.resize(static_cast<size_t>(edges));
  std::sort(drawn.begin(), drawn.end());
  TypedGraph graph{.name = fmt::format("typed graph of {} nodes, {} relations, {} edges", nodes, relations, edges),
                   .edges = {.extents = {relations, nodes, nodes}, .coordinates = {{}, {}, {}}}};
  for (const auto& edge : drawn)
    for (size_t d = 0; d < 3; ++d) graph.edges.coordinates[d].push_back(edge[d]);
  return graph;
}

std::span<const KnownTypedGraph> known_typed_graphs() {
  static constexpr KnownTypedGraph kGraphs[] = {
      {"AIFB", 7262, 45, 48810},        {"MUTAG", 27163, 46, 148100},
      {"BGS", 94806, 96, 672884, 8},    {"ogbl-biokg", 93773, 51, 4762678, 8},
      {"AM", 1885136, 96, 5668682, 32},
  };
  return kGraphs;
}

TypedGraph synthetic_graph(const KnownTypedGraph& graph) {
  TypedGraph made = typed_graph(graph.nodes / graph.share, graph.relations, graph.edges / graph.share);
  made.name = graph.share == 1 ? fmt::format("synthetic {}", graph.name)
                               : fmt::format("synthetic {} 1/{}", graph.name, graph.share);
  return made;
}

std::vector<TypedGraph> typed_graphs_of(const BenchOptions& options) {
  std::vector<TypedGraph> graphs;
  for (const MatrixFile& file : files_of(options, {"_triples.csv"})) {
    stop_if_asked();
    graphs.push_back({file.name, options.read_tensor(file.path)});
    // A destination gathers: relation, destination, source.
    std::swap(graphs.back().edges.coordinates[1], graphs.back().edges.coordinates[2]);
    std::swap(graphs.back().edges.extents[1], graphs.back().edges.extents[2]);
  }
  return graphs;
}

std::vector<std::array<int32_t, 3>> hills(int64_t voxels) {
  std::mt19937_64 random(1);
  const auto size = static_cast<int64_t>(std::sqrt(static_cast<double>(voxels * 8)));
  std::vector<std::pair<double, int64_t>> seen;  // how well, and which column
  for (int64_t at = 0; at < size * size; ++at) {
    const auto x = static_cast<double>(at / size), y = static_cast<double>(at % size);
    double noise = -6;  // about normal
    for (int i = 0; i < 12; ++i) noise += uniform(random);
    seen.emplace_back(-(std::sin(x / 37) * std::sin(y / 23) + 0.3 * noise), at);
  }
  std::sort(seen.begin(), seen.end());
  seen.resize(static_cast<size_t>(std::min(voxels, size * size)));
  std::vector<std::array<int32_t, 3>> places;
  for (const auto& [unseen, at] : seen) {
    const auto x = static_cast<double>(at / size), y = static_cast<double>(at % size);
    const auto height = static_cast<int32_t>(12 + 6 * std::sin(x / 60) + 6 * std::cos(y / 45));
    places.push_back({height, static_cast<int32_t>(at / size), static_cast<int32_t>(at % size)});
  }
  std::sort(places.begin(), places.end());
  return places;
}

}  // namespace weft::bench
