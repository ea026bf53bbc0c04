// A program of stage I with its structures and values, as the tests have it, and what it computes: a walk over
// coordinates, one after another. Nothing of the compiler is used.
//
//   ProgramDef program = ...;
//   to_text(program);         // for weft::sparse::parse
//   results_of(program);      // of each buffer the values, in the order in which they are stored
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/sparse/random/term.h"

namespace weft::sparse::random {

// "dense_fixed" and so on
enum class AxisKind { dense_fixed, dense_variable, sparse_fixed, sparse_variable };

struct AxisDef {
  std::string name = {};
  AxisKind kind = AxisKind::dense_fixed;
  std::string parent = {};
  int64_t length = 0;
  std::string length_text = {};  // a parameter, or the number
  std::string count_text = {};   // below a parent: the parameter that says how many there are
  int64_t width = 0;             // sparse_fixed: below each position of the parent
  bool wide_index = false;       // int64
  // Below a parent: of each of its positions, the coordinates that are stored, which rise.
  std::vector<std::vector<int64_t>> rows = {};

  bool is_sparse() const { return kind == AxisKind::sparse_fixed || kind == AxisKind::sparse_variable; }
  bool is_variable() const { return kind == AxisKind::dense_variable || kind == AxisKind::sparse_variable; }
  int64_t num_positions() const;
  // The coordinates below a position of the parent, -1 for places that are not used, and the first one's position.
  std::vector<int64_t> coordinates_below(int64_t parent_position) const;
  int64_t first_below(int64_t parent_position) const;
};

struct BufferDef {
  std::string name = {};
  std::vector<std::string> axes = {};
  std::string dtype = "fp32";
  bool temporary = false;
  std::vector<double> values = {};  // at the beginning, in the order of storage; of a temporary one none
  char type() const { return dtype.starts_with("int") ? 'i' : 'r'; }
};

struct StoreDef {
  std::string buffer = {};
  std::vector<Term> indices = {};
  Term value = {};
};

struct IterationDef {
  std::string name = {};
  std::vector<std::string> axes = {};
  std::string kinds = {};
  std::vector<std::string> iterators = {};
  std::vector<Term> where = {};
  std::vector<StoreDef> init = {}, body = {};
  // The iteration that it is written within, which has the first axes; those with the same stand one after another.
  std::string outer = {};
  size_t num_shared = 0;
};

struct ProgramDef {
  std::string name = "p0";
  std::map<std::string, int64_t> params = {};
  std::map<std::string, double> reals = {};
  std::set<std::string> set = {};  // those of both that are fixed when it is compiled
  std::vector<AxisDef> axes = {};
  std::vector<BufferDef> buffers = {};
  std::vector<IterationDef> iterations = {};

  const AxisDef& axis(const std::string& axis) const;
  const BufferDef* find_buffer(const std::string& buffer) const;
  const BufferDef& buffer(const std::string& buffer) const;
  // From the root to the axis.
  std::vector<std::string> chain_of(const std::string& axis) const;
  // Integer parameters and real ones that are given when it is compiled, or when it runs.
  std::map<std::string, int64_t> params_that_are(bool set) const;
  std::map<std::string, double> reals_that_are(bool set) const;
};

std::string to_text(const ProgramDef& program);
std::string lower_case(std::string name);

// The coordinates of what axes store, in the order of storage; a place that is not used has a -1.
std::vector<std::vector<int64_t>> places_of(const ProgramDef& program, const std::vector<std::string>& axes);

// What a run of one iteration has to fail for.
struct Failures {
  // A division by 0: its iterators in the order in which they stand in it, and their coordinates wherever it fails.
  struct Division {
    std::vector<std::string> iterators = {};
    std::set<std::vector<int64_t>> at = {};
  };
  std::vector<Division> divisions = {};
  // The least place that is written and not stored, by buffer: -1 is all below 0, the axis' length all beyond.
  std::map<std::string, std::vector<int64_t>> writes = {};
};

struct Results {
  // Of the caller's buffers, when the run has come to its end: a division by 0 is 0, what is not stored is not written.
  std::map<std::string, std::vector<Number>> values = {};
  std::map<std::string, Failures> failures = {};  // by iteration; none: the run does not fail
  bool divides_by_zero() const;
};
// Whether a run's error is the right one: that of the first iteration by name, a division before a write, at its least
// coordinates. "" where it is; `message` is "" where the run does not fail. `in_formats`: formats compute it, each with
// names and coordinates of its own, so that the error names one of the iterations.
std::string wrong_failure(const ProgramDef& program, const Results& want, const std::string& message, bool in_formats);
// Throws Unusable where the program has no result to be compared: numbers too large, elements that nobody set, what
// rounding decides.
Results results_of(const ProgramDef& program);

}  // namespace weft::sparse::random
