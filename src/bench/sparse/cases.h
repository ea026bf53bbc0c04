// Matrices that the rows of `weft bench sparse` are about.
//
//   const SparseCase a = uniform_case(32768, 16);
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bench/bench.h"

namespace weft::bench {

struct SparseCase {
  std::string name;
  int64_t rows = 0, cols = 0;
  std::vector<int32_t> indptr = {0}, indices = {};
  std::vector<float> values = {};
  sparse::Structure structure = {};
  int64_t nnz() const { return static_cast<int64_t>(indices.size()); }
  int64_t touched_cols() const;  // columns that hold something
};

// `degree` elements a row, anywhere.
SparseCase uniform_case(int64_t rows, int64_t degree);
// Both ends of an element with a probability of rank^-0.6, ranks in random order: a few rows and columns hold a lot.
SparseCase power_law_case(int64_t rows, int64_t nnz);
// As many nodes and edges as graphs that are known by these names, which are not here: a power law as above, or as many
// edges at each node; large ones are a share of both.
struct KnownGraph {
  const char* name;
  int64_t nodes, edges;
  int64_t share = 1;  // one part of so many
  bool is_even = false;
};
std::span<const KnownGraph> known_graphs();
SparseCase synthetic_case(const KnownGraph& graph);
SparseCase coo_case(std::string name, const sparse::Coo& coo);
// Of a file that bench/peers/matrices.py wrote: rows, columns, the number of elements (64 bits), indptr, indices (32).
SparseCase read_case(const std::string& path);
// Files of the folder that the options name with one of these endings, each also compressed (.gz), sorted; none without
// a folder. They are read when their turn comes.
struct MatrixFile {
  std::string name, path;  // without the ending
};
std::vector<MatrixFile> files_of(const BenchOptions& options, const std::vector<std::string>& endings);
std::vector<MatrixFile> matrix_files_of(const BenchOptions& options);
SparseCase file_case(const BenchOptions& options, const MatrixFile& file);
// Random values where the structure has elements.
void finish(SparseCase& a);

// What GraphSAGE aggregates by: rows that sum to one, equal values in each, and their transpose. It has `rows` nodes,
// of which those beyond the graph's own have no neighbours.
struct MeanGraph {
  sparse::Structure structure = {}, turned = {};
  std::vector<float> values = {}, turned_values = {};
};
MeanGraph mean_graph(const SparseCase& graph, int64_t rows);

// hyb(c, k): as SparseOptions names it; of the places of such a format, the share that holds no element.
struct Hyb {
  int64_t c = 1, k = 0;
  std::string text() const;
};
double padding_of(const SparseCase& a, const Hyb& format);
// ceil(log2(mean length)), what hyb's k is by default.
int64_t middle_k(const SparseCase& a);

// Random numbers in [-1, 1).
std::vector<float> random_floats(size_t count, uint64_t seed);

}  // namespace weft::bench
