// Sparse programs, built call by call instead of as text: whatever the text form can say.
//
//   Program spmm = ProgramBuilder("spmm", {"m", "n", "nnz", "feat"})
//       .dense_fixed("I", "m").sparse_variable("J", "I", "n", "nnz", "j_indptr", "j_indices")
//       .dense_fixed("J_", "n").dense_fixed("K", "feat")
//       .buffer("A", {"I", "J"}).buffer("B", {"J_", "K"}).buffer("C", {"I", "K"})
//       .iterate({.name = "csrmm", .axes = {"I", "J", "K"}, .kinds = "SRS", .iterators = {"i", "j", "k"},
//                 .init = {"C[i, k] = 0.0"}, .body = {"C[i, k] = C[i, k] + A[i, j] * B[j, k]"}})
//       .schedule("lower()").schedule("parallel(csrmm.i)")
//       .build();
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/tensor.h"

namespace weft::sparse {

class Program;

// An iteration, as `iterate NAME(AXES) "KINDS" as (ITERATORS) where CONDITIONS:`.
struct IterationSpec {
  std::string name = {};
  std::vector<std::string> axes = {};  // "I"; "fuse(I, J)" is one loop over both
  std::string kinds = {};              // an S (spatial) or R (reduction) for each axis
  std::vector<std::string> iterators = {};
  std::vector<std::string> where = {};     // conditions
  std::vector<std::string> init = {};      // stores, once for each spatial point
  std::vector<std::string> body = {};      // stores
  bool preprocess = false;                 // runs once for new values
  std::vector<IterationSpec> within = {};  // instead of a body: they run at each point of this one, in order
};

// A format of one's own: how rows and columns of a matrix are stored (docs/sparse.md).
struct FormatSpec {
  std::string name = {};
  std::vector<std::string> old_axes = {};     // what it calls rows and columns
  std::vector<std::string> params = {};       // what the structure tells
  std::vector<std::string> axes = {};         // "IO = dense_fixed((m + 1) // 2)", ...
  std::vector<std::string> buffer_axes = {};  // of the values, in order
  std::vector<std::string> to = {};           // "IO = I // 2", ...
  std::vector<std::string> from = {};         // "I = IO * 2 + II", ...
};

// Declares in the order of the calls. Every call throws Error(invalid_argument) that names what breaks the language's
// rules, as the parser does, and then changes nothing. Not safe to use from two threads; copies are apart.
class ProgramBuilder {
 public:
  // Parameters are integers, 0 and more: "n"; or real: "alpha: real".
  ProgramBuilder(const std::string& name, const std::vector<std::string>& params);
  ProgramBuilder(const ProgramBuilder& other);
  ProgramBuilder& operator=(const ProgramBuilder& other);
  ~ProgramBuilder();

  // Lengths and counts are integer expressions of the parameters: "n", "(m + 3) // 4". `index_type` is that of the
  // axis' arrays, int32 or int64.
  ProgramBuilder& dense_fixed(const std::string& name, const std::string& length);
  ProgramBuilder& dense_variable(const std::string& name, const std::string& parent, const std::string& length,
                                 const std::string& nnz, const std::string& indptr, DType index_type = DType::int32);
  ProgramBuilder& sparse_fixed(const std::string& name, const std::string& parent, const std::string& length,
                               const std::string& nnz_cols, const std::string& indices,
                               DType index_type = DType::int32);
  ProgramBuilder& sparse_variable(const std::string& name, const std::string& parent, const std::string& length,
                                  const std::string& nnz, const std::string& indptr, const std::string& indices,
                                  DType index_type = DType::int32);
  ProgramBuilder& buffer(const std::string& name, const std::vector<std::string>& axes, DType dtype = DType::fp32);
  // The program's own: nobody gives it.
  ProgramBuilder& temporary(const std::string& name, const std::vector<std::string>& axes, DType dtype = DType::fp32);
  // No coordinate is stored on two of these sparse axes.
  ProgramBuilder& apart(const std::vector<std::string>& axes);
  ProgramBuilder& iterate(const IterationSpec& iteration);
  ProgramBuilder& format(const FormatSpec& format);
  // A line, as in "ko, ki = split(csrmm.k, 16)". Whether it is legal is known when the program is compiled.
  ProgramBuilder& schedule(const std::string& line);

  std::string text() const;  // in the text form
  Program build() const;     // throws where nothing is computed yet

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::sparse
