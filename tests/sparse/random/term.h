// Expressions of the language as the tests have them: a tree, its text, and its value. Nothing of the compiler is used.
//
//   Term t = operation("//", {name("i"), literal(-2)});
//   to_text(t);             // "i // -2"
//   value_of(t, scope);     // what Python says it is
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace weft::sparse::random {

// Types by a letter: b, i and r, for conditions, integers and reals.
struct Operation {
  enum class Form { infix, prefix, call };
  std::string_view symbol;
  Form form;
  std::string_view operands;  // a letter for each
  char result;
  double (*apply)(const double* operands);
  int weight;  // how often random terms have it
};
// All that a program may write, but for what rounds.
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
Term name(std::string variable);
Term load(std::string buffer, std::vector<Term> indices, char type);
// By symbol and the types of the operands.
Term operation(std::string_view symbol, std::vector<Term> operands);

std::string to_text(const Term& term);
std::set<std::string> names_in(const Term& term);    // variables
std::set<std::string> buffers_in(const Term& term);  // that it loads from

// What says nothing: a value that not every type holds exactly, an element that nobody set.
struct Unusable : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// What the run has to fail for, says the language: a division by zero.
struct Fails : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Meaning {
  std::function<double(const std::string& variable)> variable;
  std::function<double(const std::string& buffer, const std::vector<int64_t>& at)> load;
  // Magnitudes beyond are unusable.
  double most_real = 1e15, most_integer = 1e15;
};
// Numbers are whole, so doubles hold them exactly.
double value_of(const Term& term, const Meaning& meaning);

}  // namespace weft::sparse::random
