// In which type generated code computes integers: in an int what is proven to fit one, else in a long long.
//
//   Integers integers(function, facts);      // parameters are 0 to kMostOfParameter
//   integers.declare("k", {0, 63});          // "int"
//   integers.fits_int(variable("k") * 4);    // of what has ints as operands
#pragma once

#include <string>

#include "loop/facts.h"
#include "loop/ranges.h"

namespace weft::loop {

// An expression in the text. Where it is an integer: that it is an int, and that no step to it overflows.
struct Written {
  std::string text;
  bool is_int = false;
};

class Integers {
 public:
  Integers() = default;  // all have 64 bits
  // `facts`, which are to live as long, get to know how large parameters are.
  Integers(const Function& function, Facts& facts);
  bool are_ints() const { return facts_ != nullptr; }  // those that fit
  bool is_int(const std::string& variable) const { return ints_.contains(variable); }
  bool is_int(int64_t literal) const { return are_ints() && literal >= -INT32_MAX && literal <= INT32_MAX; }
  bool is_never_negative(const Expr& e) const { return ranges_.of(e).least >= 0; }
  // Whether the value does, all operands being ints.
  bool fits_int(const Expr& e) const;
  // Of what is written so.
  Interval range_of(const Expr& e, const Written& written) const;
  // "int" or "long long", of a variable with these values.
  const char* declare(const std::string& variable, const Interval& values);
  // Memory of integers holds what statements beside it, or within those, store there.
  void declare_memory(const Stmt& memory, const Body& body);

 private:
  const Facts* facts_ = nullptr;
  Ranges ranges_;
  Names ints_;  // variables that are
};

}  // namespace weft::loop
