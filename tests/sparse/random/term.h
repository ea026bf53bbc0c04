// Expressions of the language as the tests have them: a tree, its text, and its value. Nothing of the compiler is used.
//
//   Term t = operation("//", {name("i"), literal(-2)});
//   to_text(t);             // "i // -2"
//   value_of(t, scope);     // what Python says it is; of reals also how far a program may be from it
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sparse::random {

// A real, or a whole number: what is computed lies within `error` of the value. See number.h.
struct Number {
  double value = 0, error = 0;
  double size = 0;     // the sum of the magnitudes that it was added up from
  double granule = 1;  // the power of two that all of them are multiples of
};

// How what an operation gives is rounded.
enum class Rounding { none, choice, comparison, conversion, sum, product, function };

// Types by a letter: b, i and r, for conditions, integers and reals.
struct Operation {
  enum class Form { infix, prefix, call };
  std::string_view symbol;
  Form form;
  std::string_view operands;  // a letter for each
  char result;
  double (*apply)(const double* operands);
  int weight;  // how often random terms have it
  Rounding rounding = Rounding::none;
};
// All that a program may write.
extern const std::vector<Operation> kOperations;

struct Term {
  enum class Kind { literal, name, load, operation };
  Kind kind = Kind::literal;
  char type = 'i';
  double value = 0;
  std::string name = {};  // of a variable or buffer
  const Operation* op = nullptr;
  std::vector<Term> operands = {};
};

Term literal(int64_t value);
Term real_literal(double value);
Term name(std::string variable, char type = 'i');
Term load(std::string buffer, std::vector<Term> indices, char type);
// By symbol and the types of the operands.
Term operation(std::string_view symbol, std::vector<Term> operands);

std::string to_text(const Term& term);
std::set<std::string> names_in(const Term& term);           // variables
std::vector<std::string> names_in_order(const Term& term);  // each where it stands first
std::set<std::string> buffers_in(const Term& term);         // that it loads from

// What says nothing: a value that not every type holds, an element that nobody set, what rounding decides.
struct Unusable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// What the run has to fail for, says the language: a division by zero.
struct Fails : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Meaning {
  std::function<double(const std::string& variable)> variable;
  std::function<Number(const std::string& buffer, const std::vector<int64_t>& at)> load;
  // Told of a division by 0, whose value then is 0; without it, Fails is thrown.
  std::function<void(const Term& division)> fails = {};
};
Number value_of(const Term& term, const Meaning& meaning);

}  // namespace weft::sparse::random
