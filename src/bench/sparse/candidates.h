// How an ablation makes its candidates and what they read.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "bench/sparse/ablation.h"

namespace weft::bench {

struct CandidateProgram {
  std::string text = {}, schedule = {};
  std::map<std::string, int64_t> set = {};
  std::vector<std::string> skip = {};  // passes
};
// Compiled at the first run; formats keep their values from then on.
Candidate candidate_of(std::string name, CandidateProgram program, sparse::RunArguments arguments);

// Brings matrices into a format and does nothing else: an SpMM of no features. Values are those of the case.
class Conversion {
 public:
  explicit Conversion(const std::string& format);
  // Of making the structure and copying the values; of copying them alone. The least of some runs.
  double seconds(const SparseCase& a, Stream stream) const;
  double copy_seconds(const SparseCase& a, Stream stream) const;

 private:
  void run(const SparseCase& a, const sparse::Structure& structure, Stream stream) const;
  sparse::Operator op_;
};

// c = a x and out = a (x y^T) with all that is said of them but the candidates, and their arguments.
Ablation spmm_ablation(std::string name, const SparseCase& a, int64_t feat);
Ablation sddmm_ablation(std::string name, const SparseCase& a, int64_t feat);
sparse::RunArguments arguments_of(const Ablation& ablation);

// A structure with values in its order; 0 where it holds no element.
struct Stored {
  sparse::Structure structure = {};
  std::vector<float> values = {};
  double padding() const;  // the share that no element fills
  TensorView view(std::vector<int64_t> shape) const { return {values.data(), DType::fp32, std::move(shape)}; }
  int64_t num_elements = 0;
};
std::shared_ptr<const Stored> stored(const sparse::Converted& made, const std::vector<float>& values);

}  // namespace weft::bench
