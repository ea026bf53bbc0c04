// The interpreter over a compiled operator: what `weft sparse --check` and the tests compare with.
//
//   loop::Memory memory = interpret_operator(op, arguments, Stage::one);
//   memory.buffers.at("C");
#pragma once

#include "loop/interpret.h"
#include "weft/sparse.h"

namespace weft::sparse {

enum class Stage { one, two, three };

// Runs the program of one stage in double, preprocessing first, on the values of the arguments' tensors. What the program
// fills itself begins as NaN, so do `outputs`.
loop::Memory interpret_operator(const Operator& op, const RunArguments& arguments, Stage stage);

// The names of the tensors that the program writes.
std::vector<std::string> outputs_of(const Operator& op);
// The largest difference of what the tensors hold from what the interpreter of stage I computes, divided by the largest
// magnitude of that. Tensors that are read and written have to be as before the run.
double max_error(const Operator& op, const RunArguments& before, const std::map<std::string, TensorView>& after);

// Elements of a tensor of fp32, bf16, fp64, int32 or int64.
std::vector<double> values_of(const TensorView& tensor);

}  // namespace weft::sparse
