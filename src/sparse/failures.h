// Writes at coordinates that a buffer does not store, which are found while a program runs: each is a number, the least
// of which says where the first of them is, and the run ends in an error.
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

class FailureLog {
 public:
  // Both are kept by reference.
  FailureLog(const Declarations& declared, const loop::Memory& numbers) : declared_(declared), numbers_(numbers) {}
  void add(const loop::Failure& failure, uint64_t number);
  void add(const loop::Failure& failure, const std::vector<int64_t>& coordinates);
  void raise() const;

 private:
  const Declarations& declared_;
  const loop::Memory& numbers_;
  std::map<loop::Failure, uint64_t> least_ = {};
};

}  // namespace weft::sparse
