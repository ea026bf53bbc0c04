// The interpreter over a compiled operator: what `weft sparse --check` and the tests compare with.
//
//   loop::Memory memory = interpret_operator(op, arguments, Stage::one);
//   memory.buffers.at("C");
#pragma once

#include "loop/interpret.h"
#include "weft/sparse.h"

namespace weft::sparse {

enum class Stage { source, one, two, three };  // source: without its schedule

// Runs the program of one stage in double, preprocessing first, on the values of the arguments' tensors. What the
// program fills itself begins as NaN, so do `outputs`.
loop::Memory interpret_operator(const Operator& op, const RunArguments& arguments, Stage stage);

// What a run of the unscheduled program is: sizes of the caller's buffers, arithmetic on reals, bytes of buffers and
// arrays. From structures and scalars alone.
struct RunSize {
  struct Tensor {
    std::string name;
    DType dtype = DType::fp32;
    int64_t count = 0;
  };
  std::vector<Tensor> tensors = {};
  double flops = 0, bytes = 0;
};
RunSize size_of_run(const Operator& op, const RunArguments& arguments);

// The names of the tensors that the program writes.
std::vector<std::string> outputs_of(const Operator& op);
// The largest difference of what the tensors hold from what the interpreter computes of the program without its
// schedule, divided by the largest magnitude of that. Tensors that are read and written have to be as before the run.
double max_error(const Operator& op, const RunArguments& before, const std::map<std::string, TensorView>& after);

// Elements of a tensor of fp32, bf16, fp64, int32 or int64.
std::vector<double> values_of(const TensorView& tensor);

}  // namespace weft::sparse
