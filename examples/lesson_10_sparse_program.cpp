// Lesson 10: a sparse program. What is computed is a few lines of text over axes that say what is stored; the compiler
// makes loops of it, and code of those. Here: each node of a graph takes the largest feature among its neighbours,
// which no library has a call for.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <random>
#include <vector>

#include "weft/sparse.h"

using namespace weft;
using namespace weft::sparse;

int main() {
  // Coordinates: i is a node, j a neighbour that is stored, k a feature. An S axis is written at, an R axis is reduced.
  const Program program = parse(R"(program largest_of_neighbours(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  N = dense_fixed(n)
  K = dense_fixed(feat)
  X = buffer(N, K): fp32
  Y = buffer(I, K): fp32
  iterate largest(I, J, K) "SRS" as (i, j, k):
    init:
      Y[i, k] = -inf
    Y[i, k] = max(Y[i, k], X[j, k])
)");
  // A schedule says how: rows are shared by the team, sixteen features are one vector and stay in registers.
  const Operator op = compile(program, R"(lower()
ko, ki = split(largest.k, 16)
reorder(ko, largest.j, ki)
vectorize(ki)
cache_write(ko, register)
parallel(largest.i)
)",
                              Device::cpu(), {.set = {{"feat", 32}}});
  // The same program call by call, where a program writes programs: each call checks what it is given.
  const Program built = ProgramBuilder("largest_of_neighbours", {"m", "n", "nnz", "feat"})
                            .dense_fixed("I", "m")
                            .sparse_variable("J", "I", "n", "nnz", "j_indptr", "j_indices")
                            .dense_fixed("N", "n")
                            .dense_fixed("K", "feat")
                            .buffer("X", {"N", "K"})
                            .buffer("Y", {"I", "K"})
                            .iterate({.name = "largest",
                                      .axes = {"I", "J", "K"},
                                      .kinds = "SRS",
                                      .iterators = {"i", "j", "k"},
                                      .init = {"Y[i, k] = -inf"},
                                      .body = {"Y[i, k] = max(Y[i, k], X[j, k])"}})
                            .build();
  if (built.text() != program.text()) return 1;
  std::printf("stage II, loops over positions:\n%s\n", op.text("stage2").c_str());

  // A random graph; node 3 has no neighbour.
  constexpr int kNodes = 200, kFeat = 32;
  std::mt19937 random(1);
  std::vector<int32_t> indptr{0}, indices;
  for (int i = 0; i < kNodes; ++i) {
    for (int32_t j = 0; j < kNodes && i != 3; ++j)
      if (random() % 16 == 0) indices.push_back(j);
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  std::vector<float> x(kNodes * kFeat), y(x.size());
  for (float& v : x) v = static_cast<float>(random() % 2000) / 1000.f - 1.f;

  const Structure graph = csr(kNodes, kNodes, indptr, indices);  // checked once
  op.run(
      {.structures = {{"J", graph}},
       .buffers = {{"X", {x.data(), DType::fp32, {kNodes, kFeat}}}, {"Y", {y.data(), DType::fp32, {kNodes, kFeat}}}}});

  for (size_t i = 0; i < kNodes; ++i)
    for (size_t k = 0; k < kFeat; ++k) {
      float want = -INFINITY;
      for (int32_t p = indptr[i]; p < indptr[i + 1]; ++p)
        want = std::max(want, x[static_cast<size_t>(indices[static_cast<size_t>(p)]) * kFeat + k]);
      if (y[i * kFeat + k] != want) {
        std::printf("node %zu, feature %zu: %f, not %f\n", i, k, double(y[i * kFeat + k]), double(want));
        return 1;
      }
    }
  std::printf("every node has its largest feature; node 3, of no neighbour, has %f\n", double(y[3 * kFeat]));
  return 0;
}
