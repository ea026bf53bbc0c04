// Cases as code: many in one text, so that the compiler starts rarely, each over tensors that end where a page begins
// that nobody may touch.
//
//   std::vector<Problem> problems = run_compiled(cases);   // one for each
#pragma once

#include <vector>

#include "loop/interpret.h"
#include "tests/sparse/random/case.h"

namespace weft::sparse::random {

// What the host's compiler makes of their C++, on teams of one and of three workers, who go in both orders.
// Names of programs differ.
std::vector<Problem> run_compiled(const std::vector<Case>& cases);
inline Problem compiled(const Case& c) { return run_compiled({c})[0]; }

// Where a program's memory is, and what its kernels take.
class Bench {
 public:
  // `make` gives memory of so many bytes under a name.
  using Make = std::function<char*(const std::string& name, size_t bytes)>;
  Bench(const Case& c, const Operator& op, const Make& make);
  // As at the beginning; what nobody has set is NaN, or -1.
  void restore();
  // Of a function: its buffers, as the code takes them; its scalars, real ones as the bits of a double.
  std::vector<void*> buffers_of(const loop::Function& function) const;
  std::vector<long long> scalars_of(const loop::Function& function) const;
  // A number for each of its failures.
  uint64_t* failures_of(const loop::Function& function) const { return failed_.at(function.name); }
  // In the order in which they run.
  const std::vector<const loop::Function*>& functions() const { return functions_; }
  // What is wrong with what a run has left.
  Problem problem_of(const Results& want) const;

 private:
  std::string failure() const;  // what the run's error says; "": none
  struct Array {
    char* data = nullptr;
    std::vector<char> start = {};
  };
  const Case& case_;
  const Declarations& declared_;
  loop::Memory numbers_;
  std::map<std::string, Array> arrays_;
  std::vector<const loop::Function*> functions_;
  std::map<std::string, uint64_t*> failed_;  // by function
};

}  // namespace weft::sparse::random
