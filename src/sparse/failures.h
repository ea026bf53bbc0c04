// What is found while a program runs, writes at coordinates that a buffer does not store and divisions by 0: each is a
// number, the least of which says where the first of them is, and the run ends in an error.
//
//   FailureLog log(program, numbers);
//   log.add({"move", "Y"}, number);
//   log.raise();                      // Error(invalid_argument) of the first writer, where there is any
#pragma once

#include <map>
#include <vector>

#include "loop/interpret.h"
#include "sparse/stage1/program.h"

namespace weft::sparse {

// Numbers rise with coordinates, the first dimension's first. Of each, all below 0 count as -1, all beyond as the
// axis' length.
Expr failure_number(const Declarations& declared, const std::string& buffer, const std::vector<Expr>& coordinates);
// Of a division, from the coordinates of its iterators; why it fails is one more digit behind it, as loop/interpret.h
// has it.
Expr failure_number(const Declarations& declared, const loop::Failure& division, const std::vector<Expr>& coordinates);

// The same with what each integer division is to say where its divisor is 0. In terms of the iterators.
Iteration with_failures(Iteration it);

class FailureLog {
 public:
  // Both are kept by reference.
  FailureLog(const Declarations& declared, const loop::Memory& numbers) : declared_(declared), numbers_(numbers) {}
  void add(const loop::Failure& failure, uint64_t number);
  // Of a division, why it fails stands behind them.
  void add(const loop::Failure& failure, const std::vector<int64_t>& coordinates);
  void raise() const;

 private:
  std::string place_of(const loop::Failure& failure, uint64_t number) const;
  const Declarations& declared_;
  const loop::Memory& numbers_;
  std::map<loop::Failure, uint64_t> least_ = {};
};

}  // namespace weft::sparse
