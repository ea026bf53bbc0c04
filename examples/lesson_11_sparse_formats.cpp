// Lesson 11: formats. A matrix in CSR is rewritten by one line of the schedule: into buckets of rows of one length
// (hyb), into blocks, into a format of one's own. The program stays what it is, and so does the result.
#include <cmath>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "weft/sparse.h"

using namespace weft;
using namespace weft::sparse;

namespace {

// C = A B; and a format that stores the first two elements of each row, its structure following from the maps.
constexpr const char* kProgram = R"(program spmm(m, n, nnz, feat):
  I = dense_fixed(m)
  J = sparse_variable(I, n, nnz, indptr=j_indptr, indices=j_indices)
  J_ = dense_fixed(n)
  K = dense_fixed(feat)
  A = buffer(I, J): fp32
  B = buffer(J_, K): fp32
  C = buffer(I, K): fp32
  iterate csrmm(I, J, K) "SRS" as (i, j, k):
    init:
      C[i, k] = 0.0
    C[i, k] = C[i, k] + A[i, j] * B[j, k]
format first_two(I, J):
  I2 = dense_fixed(m)
  J2 = sparse_fixed(I2, n, 2, indices=first_two_indices)
  buffer(I2, J2)
  to I2 = I, J2 = J
  from I = I2, J = J2
)";

}  // namespace

int main() {
  // Rows of very different lengths, as real graphs have them.
  constexpr int kRows = 300, kFeat = 16;
  std::mt19937 random(2);
  std::vector<int32_t> indptr{0}, indices;
  for (int i = 0; i < kRows; ++i) {
    const unsigned one_in = i % 50 == 0 ? 2 : 60;
    for (int32_t j = 0; j < kRows; ++j)
      if (random() % one_in == 0) indices.push_back(j);
    indptr.push_back(static_cast<int32_t>(indices.size()));
  }
  const Structure matrix = csr(kRows, kRows, indptr, indices);
  std::vector<float> a(indices.size()), b(kRows * kFeat), c(kRows * kFeat);
  for (float& v : a) v = static_cast<float>(random() % 200) / 100.f - 1.f;
  for (float& v : b) v = static_cast<float>(random() % 200) / 100.f - 1.f;
  std::vector<double> want(c.size(), 0);
  for (size_t i = 0; i < kRows; ++i)
    for (int32_t p = indptr[i]; p < indptr[i + 1]; ++p)
      for (size_t k = 0; k < kFeat; ++k)
        want[i * kFeat + k] += double(a[static_cast<size_t>(p)]) *
                               double(b[static_cast<size_t>(indices[static_cast<size_t>(p)]) * kFeat + k]);

  // One format alone is a conversion; several take what those before them have left.
  for (const std::string format :
       {"csr()", "hyb(1, 3)", "hyb(2, 2)", "bsr(4)", "bsr(2), ell(2), csr()", "first_two(), csr()"}) {
    const Operator op = compile(parse(kProgram), "decompose_format(csrmm, A, " + format + ")\n");
    op.run({.structures = {{"J", matrix}},
            .buffers = {{"A", {a.data(), DType::fp32, {static_cast<int64_t>(a.size())}}},
                        {"B", {b.data(), DType::fp32, {kRows, kFeat}}},
                        {"C", {c.data(), DType::fp32, {kRows, kFeat}}}}});
    double error = 0;
    for (size_t e = 0; e < c.size(); ++e) error = std::max(error, std::fabs(c[e] - want[e]));
    const std::string text = op.text("stage1");
    int iterations = 0;
    for (size_t at = 0; (at = text.find("  iterate ", at)) != text.npos; ++at) ++iterations;
    std::printf("%-24s %d iterations, largest error %.1e\n", format.c_str(), iterations, error);
    if (!(error < 1e-4)) return 1;
  }
  return 0;
}
