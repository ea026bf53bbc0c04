// A program with a schedule, what is wrong with it, and the smallest case that has the same wrong.
//
//   Case c = ...;
//   Problem problem = interpreted(c);              // none: every stage computes what the program says
//   if (problem) FAIL() << report(shrunk(c, interpreted), ...);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/sparse/random/make_line.h"
#include "tests/sparse/random/program.h"
#include "weft/sparse.h"

namespace weft::sparse::random {

struct Case {
  ProgramDef program = {};
  std::vector<Line> stage1 = {}, stage2 = {};
  std::string schedule() const;
  bool has(const std::string& primitive) const;
};
std::string to_text(const Case& c);

struct Problem {
  std::string kind = {};  // "wrong", "internal error", "crash", ...; "": none
  std::string what = {};
  explicit operator bool() const { return !kind.empty(); }
};

// Structures of a program's axes, and tensors with what buffers hold at the beginning.
class Inputs {
 public:
  explicit Inputs(const ProgramDef& program);
  RunArguments arguments() const;

 private:
  const ProgramDef& program_;
  std::map<std::string, Structure> structures_;
  std::map<std::string, std::vector<char>> tensors_;
};
// Numbers as elements of a type, and back.
std::vector<char> bytes_of(const std::vector<double>& values, const std::string& dtype);
std::vector<double> numbers_of(const char* bytes, size_t count, const std::string& dtype);

// Up to its code. Throws Error where the schedule is refused.
Operator compiled_text(const Case& c);
// Where buffers hold something else than they should: "" or the first of them.
std::string difference(const std::string& buffer, const std::vector<double>& got, const std::vector<Number>& want);
// What is wrong with the error of a run, which said this; "": it did not fail.
Problem failure_problem(const Case& c, const Results& want, const std::string& said);
// What a call throws, or is ended by: Error is "refused", whatever else is wrong.
Problem tried(const std::function<Problem()>& call);
// Whether the schedule is accepted: "refused" is Error, all else is wrong; "breaks rules" is refused by the net behind
// all primitives alone.
Problem accepted(const Case& c, std::unique_ptr<Operator>* made = nullptr);
// By the interpreter, at every stage; and the text for cards is made.
Problem interpreted(const Case& c);

using Check = std::function<Problem(const Case&)>;
// Lines, iterations and operations left out while the kind of the problem stays; so many tries.
Case shrunk(const Case& c, const Check& check, int tries = 400);
std::string report(const Case& c, const Problem& problem);

// What lines were drawn, how many of them accepted, and how many cases have run with one.
struct Tally {
  struct Count {
    int64_t drawn = 0, accepted = 0, cases = 0;
  };
  std::map<std::string, Count> primitives = {};
  int64_t num_cases = 0;
  int64_t num_dividing = 0, num_missing = 0;  // those that divide by 0, and that write where a buffer stores nothing
  void add_case(const Case& c);               // one that has run
  Count all() const;
  std::string text() const;
};
// A program of one to eight accepted lines. `problem`: of a line that was neither accepted nor refused; it is the last.
struct MadeCase {
  Case c = {};
  Problem problem = {};
};
MadeCase make_case(Random& random, Tally& tally, const std::string& name = "p0");

}  // namespace weft::sparse::random
