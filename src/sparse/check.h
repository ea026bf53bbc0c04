// The interpreter over a compiled operator: what `weft sparse --check` and the tests compare with.
//
//   loop::Memory memory = interpret_operator(op, arguments, Stage::one);
//   memory.buffers.at("C");
#pragma once

#include "loop/interpret.h"
#include "sparse/argument_names.h"
#include "sparse/stage1/program.h"
#include "weft/sparse.h"

namespace weft::sparse {

enum class Stage { source, one, two, three };  // source: without its schedule

// The values of the arguments' tensors, and the arrays of their structures; what the program fills itself is NaN.
loop::Memory memory_of(const Operator& op, const RunArguments& arguments);
// Runs the program of one stage in double, preprocessing first. Throws what `run` would, at its end.
void interpret_operator(const Operator& op, Stage stage, loop::Memory& memory);
loop::Memory interpret_operator(const Operator& op, const RunArguments& arguments, Stage stage);

// What a run of the unscheduled program is: the caller's buffers with the lengths of their chains of axes, arithmetic
// on reals, bytes of buffers and arrays. From structures, scalars and those buffers that are given.
struct RunSize {
  struct Tensor {
    std::string name;
    DType dtype = DType::fp32;
    int64_t count = 0;
    std::vector<int64_t> shape = {};
  };
  std::vector<Tensor> tensors = {};
  double flops = 0, bytes = 0;
};
RunSize size_of_run(const Operator& op, const RunArguments& arguments,
                    const ArgumentNames& names = ArgumentNames::of_library());
// Throws what `run` would, before it computes anything, in these words.
void check_arguments(const Operator& op, const RunArguments& arguments, const ArgumentNames& names);

// The names of the tensors that the program writes, and of those whose values it reads before it writes any.
std::vector<std::string> outputs_of(const Operator& op);
std::vector<std::string> inputs_of(const Stage1& program);
// The largest difference of what the tensors hold from what the interpreter computes of the program without its
// schedule, divided by the largest magnitude of that. Tensors that are read and written have to be as before the run.
double max_error(const Operator& op, const RunArguments& before, const std::map<std::string, TensorView>& after);

// Elements of a tensor of fp32, fp16, bf16, fp64, int32 or int64.
std::vector<double> values_of(const TensorView& tensor);

}  // namespace weft::sparse
