// Runs any of the three stages slowly, in double: what every lowering is compared with.
//
//   interpret(program, memory);      // stage I: coordinates, no lowering involved
//   interpret(stage2, memory);       // positions
//   interpret(program, stage3, memory);
#pragma once

#include "loop/interpret.h"
#include "sparse/stage1/program.h"
#include "sparse/stage2/lower_buffers.h"

namespace weft::sparse {

// `memory` holds the parameters, the arrays of axes by their names, and the values of buffers.
void interpret(const Stage1& program, loop::Memory& memory);
void interpret(Stage2 stage, loop::Memory& memory);
// `declared`: what the flat loops were made of.
void interpret(const Declarations& declared, const Stage3& stage, loop::Memory& memory);

// The number an expression of parameters is.
int64_t evaluate(const Expr& e, const loop::Memory& memory);
// The same of one expression after another, while parameters change.
class Evaluator {
 public:
  Evaluator() : Evaluator(loop::Memory{}) {}
  explicit Evaluator(loop::Memory memory);
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;
  void set(const std::string& parameter, int64_t value) { interpreter_.set(parameter, value); }
  int64_t operator()(const Expr& e) { return interpreter_.integer(e); }

 private:
  loop::Memory memory_;
  loop::Interpreter interpreter_;
};
// How many values a buffer has.
int64_t num_values(const Declarations& declared, const SparseBuffer& buffer, const loop::Memory& memory);

}  // namespace weft::sparse
