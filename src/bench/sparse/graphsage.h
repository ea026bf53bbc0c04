// Training GraphSAGE: two layers with mean aggregation, the whole graph a step, Adam. A layer is
// x w_self + mean over neighbours (x w_neigh) + b; means are spmm, by the matrix or its transpose, dense products
// matmul, all else programs of the compiler.
//
//   SageTraining training({.graph = &graph}, sparse::vector_unit(device), device, stream, place);
//   training.run();   // an epoch; on a card it is enqueued, and may be captured once it has run
#pragma once

#include <functional>
#include <vector>

#include "bench/sparse/cases.h"
#include "sparse/operators/vector_unit.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::bench {

struct SageShape {
  const SparseCase* graph = nullptr;
  int64_t feat = 500, hidden = 128, classes = 3;
};

class SageTraining {
 public:
  // Random features and weights; node i is of class i modulo their number. Schedules are those of `unit`. `place`
  // copies to the device.
  using Place = std::function<Workspace(const void* data, size_t bytes)>;
  SageTraining(const SageShape& shape, const sparse::VectorUnit& unit, Device device, Stream stream,
               const Place& place);
  void run();
  // Of weights own1, neigh1, bias1, own2, neigh2, bias2, one behind the other, each padded to four; of nodes.
  TensorView parameters() const { return parameters_.view; }
  TensorView gradients() const { return gradients_.view; }
  TensorView losses() const { return losses_.view; }
  TensorView features() const { return x_.view; }

 private:
  struct Tensor {
    Workspace memory = {};
    TensorView view = {};
  };
  // Weights of both layers, in memory of all parameters.
  struct Weights {
    TensorView own1 = {}, neigh1 = {}, bias1 = {}, own2 = {}, neigh2 = {}, bias2 = {};
  };
  Tensor tensor(std::vector<int64_t> shape) const;
  Weights weights_in(const TensorView& all) const;
  sparse::Operator compiled(const char* program, const std::string& iteration, int64_t cols) const;
  void mean(const TensorView& of, const TensorView& into) const;
  void mean_backward(const TensorView& of, const TensorView& into) const;
  void multiply(const TensorView& a, const TensorView& b, const TensorView& c, bool add = false) const;
  void forward() const;
  void backward() const;

  SageShape shape_;
  bool is_on_card_;  // its schedules
  int64_t nodes_;
  Device device_;
  Stream stream_;
  sparse::Structure neighbours_ = {}, turned_ = {};
  Tensor means_, turned_means_, x_, ones_, labels_;
  Tensor parameters_, gradients_, first_, second_, steps_;
  Tensor own1_, neigh1_, sum1_, h_, own2_, neigh2_, sum2_, d_z_, d_h_, losses_;
  Weights w_, g_;
  Workspace scratch_;
  sparse::Operator hidden_, loss_, through_, adam_;
};

}  // namespace weft::bench
