// What a sparse format or a line of a schedule is worth: several candidates, which compute the same from the same
// operands.
//
//   const Ablation ablation = empty_block_rows({.size = 2048, .block = 32, .density = 0.1, .empty = 0.5}, 512);
//   for (const Candidate& candidate : ablation.candidates) candidate.run(stream);   // each writes ablation.out
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/sparse/cases.h"
#include "weft/sparse.h"

namespace weft::bench {

// A tensor of fp32 in memory of its own, of random numbers in [-1, 1).
struct Floats {
  Floats() = default;
  Floats(std::vector<int64_t> shape, uint64_t seed);
  Workspace memory = {};
  TensorView view = {};
};

// The first run makes what the candidate stores, and compiles. Not thread-safe.
struct Candidate {
  std::string name = {};
  std::function<void(Stream)> run = {};
  double padding = 0;  // the share of its stored values that are no elements; 0: none, or not counted
};

// SpMM, SDDMM or RGMS: out[i] = sum over elements e = (i, j) of values[e] x[j]; out[e] = values[e] dot(x[i], y[j]);
// out[i] = sum over elements (r, i, j) of x[j] y[r].
struct Ablation {
  std::string name = {};
  std::vector<Candidate> candidates = {};  // the first is what others are held against
  double flops = 0, bytes = 0;             // that no candidate does without
  const SparseCase* gathers = nullptr;     // bound by gathering x's rows (SDDMM: y's); null: by multiplying
  int64_t feat = 0;                        // of such a row
  std::shared_ptr<Floats> x = {}, y = {}, out = {};
  sparse::CooTensor elements = {};  // (row, column), or (relation, row, column); of a SparseCase none: it has them
  std::shared_ptr<std::vector<float>> values = {};
};

// ---------------------------------------------------------------- formats

// SpMM in CSR, and in each of the other formats. The case outlives it.
Ablation formats_of_spmm(const SparseCase& a, int64_t feat, const std::vector<Hyb>& formats);

struct EmptyBlockRows {
  int64_t size = 2048, block = 32;
  double density = 0.1, empty = 0;  // of blocks in rows that hold some; the share of block rows that hold none
};
// BSR, DBSR.
Ablation empty_block_rows(const EmptyBlockRows& shape, int64_t feat);

struct PrunedWeights {
  int64_t rows = 768, cols = 3072;
  double density = 0.1;  // of elements, each at random
};
// BSR of blocks of 32, SR-BCRS(8, 32), CSR.
Ablation pruned_weights(const PrunedWeights& shape, int64_t feat);

// ---------------------------------------------------------------- schedules

// SpMM over CSR: rows in parallel; vectors; sums in registers; rows of x prefetched.
Ablation schedules_of_spmm(const SparseCase& a, int64_t feat);
// SDDMM: rows in parallel; one loop over all elements; a sum in a register; sums of lanes, then of the lanes (rfactor);
// rows of y prefetched.
Ablation schedules_of_sddmm(const SparseCase& a, int64_t feat);
// hyb(1, k): a phase for each bucket; buckets joined, as rows are apart (horizontal fusion).
Ablation joined_phases(const SparseCase& a, int64_t feat, int64_t k);
// hyb(c, k): partitions in order; all at once by atomic sums.
Ablation atomic_sums(const SparseCase& a, int64_t feat, int64_t c, int64_t k);

// ---------------------------------------------------------------- relations

// RGMS. For each relation a product of all nodes and an SpMM; a product of what relations gather, kept, and one SpMM;
// 3-D hyb(1, 5), fused; tiles of rows, which is rgms().
Ablation relational(const std::string& name, const sparse::CooTensor& edges, int64_t feat_in, int64_t feat_out);

// The text of Y += A T of one relation, over the rows that have edges, `feat_out` features.
extern const char* const kAddOfRelation;
// Each relation that has edges, and these in DCSR.
std::vector<std::pair<int64_t, sparse::Structure>> edges_by_relation(const sparse::CooTensor& edges);

}  // namespace weft::bench
