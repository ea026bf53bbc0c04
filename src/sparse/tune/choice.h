// What operators that gather a row for every element, SpMM and SDDMM, can be run as, and what each is expected to cost.
//
//   const GatherCall call{.feat = 64, .keeps_values = true};
//   const FormatChoice choice = likely_choice(row_lengths(*structure.data(), call), call);
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sparse/formats/structure.h"
#include "sparse/tune/format_choice.h"

namespace weft::sparse {

// "csr prefetch 16 tile 0 lanes 0 group 0", and back; what does not read so is Error(invalid_argument).
std::string to_text(const FormatChoice& choice);
FormatChoice parse_choice(const std::string& text);

enum class GatherOperator : uint8_t { spmm, sddmm };
const char* to_string(GatherOperator op);
struct GatherCall {
  int64_t feat = 0;
  int64_t element_bytes = 4;
  bool keeps_values = false;  // else formats take the values anew at each call
  int64_t workers = 1;        // 0: a card's
  Device device = {};
  GatherOperator op = GatherOperator::spmm;
  bool is_on_card() const { return device != Device::cpu(); }
  DType dtype() const { return element_bytes == 4 ? DType::fp32 : DType::bf16; }
};
// What results of such calls are kept by.
std::string to_text(const GatherCall& call);
// How long the rows of a matrix in CSR are, and how they fill blocks.
struct RowLengths {
  int64_t num_rows = 0, num_cols = 0, nnz = 0;
  // By the power of two that holds a row's length: bucket i has lengths in (2^(i-1), 2^i], none the empty rows.
  std::array<int64_t, 32> rows = {}, elements = {};
  // The share of elements whose row of the other matrix misses the first cache of a core, which fetches the next row by
  // itself.
  double misses = 0;
  // Elements in a block of 2, 4, 8 rows and columns that holds some, on average over a sample of rows.
  std::array<double, 3> fill = {1, 1, 1};
};
// Throws Error(unsupported) for what is no CSR.
void check_is_csr(const Structure::Data& structure, const char* op);
RowLengths row_lengths(const Structure::Data& structure, const GatherCall& call);

// Nanoseconds of one worker, all together: a sum over elements, rows and phases, of costs that cache sizes tell. It
// ranks; it does not predict.
double expected_cost(const RowLengths& rows, const FormatChoice& choice, const GatherCall& call);
// Everything that a search tries, the cheapest by expectation first: CSR and blocks; hyb(c, k) of c in {1, 2, 4, 8, 16}
// and k from one below ceil(log2(nnz / rows)) to three above; each at several distances, CSR and hyb also with half of
// the lanes and with rows that the team shares in groups; SpMM in CSR also by tiles of features.
std::vector<FormatChoice> candidates_of(const RowLengths& rows, const GatherCall& call);
// Whether one iteration of SpMM adds up a whole row, so that sums of bf16 are rounded once.
bool sums_in_fp32(const FormatChoice& choice);
FormatChoice likely_choice(const RowLengths& rows, const GatherCall& call);

}  // namespace weft::sparse
