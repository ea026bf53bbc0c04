// Expressions of every stage of the compiler: immutable trees, compared by structure. Variables and buffers are known
// by their names, which a program keeps unique.
//
//   const Expr i = variable("i"), n = variable("n");
//   const Expr x = load("A", {i * n + 1}, Type::real) * real(2);
//   to_text(x);                                       // "A[i * n + 1] * 2.0"
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::loop {

enum class Type : uint8_t { boolean, integer, real };

enum class Op : uint8_t {
  integer_literal,
  real_literal,
  variable,
  load,  // of a buffer, at its operands
  // Two operands. floor_div rounds towards minus infinity, modulo is what it leaves: it has the sign of the divisor. By
  // 0 both are 0, and so is the quotient that does not fit 64 bits; the run then fails (Node::failure).
  add,
  subtract,
  multiply,
  divide,
  power,
  floor_div,
  modulo,
  minimum,
  maximum,
  less,
  less_equal,
  greater,
  greater_equal,
  equal,
  not_equal,
  logical_and,
  logical_or,
  // One operand.
  negate,
  logical_not,
  exponential,
  logarithm,
  hyperbolic_tangent,
  sigmoid,  // 1 / (1 + e^-x)
  square_root,
  absolute,
  to_real,
  // Evaluates its first operand, then only the second or only the third.
  select,
  // Searches in `count` elements of a sorted integer buffer, from an index on; operands: that index, count, x.
  find,         // the place of x, counted from the index; -1 where it is absent
  upper_bound,  // how many of the elements are at most x
};

struct Node;

class Expr {
 public:
  Expr() = default;                          // none
  Expr(int value) : Expr(int64_t{value}) {}  // NOLINT: literals read as in text
  Expr(int64_t value);                       // NOLINT
  explicit Expr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  explicit operator bool() const { return node_ != nullptr; }
  const Node& operator*() const { return *node_; }
  const Node* operator->() const { return node_.get(); }
  // By structure.
  friend bool operator==(const Expr& a, const Expr& b);

 private:
  std::shared_ptr<const Node> node_;
};

// What may fail while a program runs: an iteration writes a buffer where it has no element, or divides by 0.
struct Failure {
  std::string writer = {};    // the iteration
  std::string buffer = {};    // that it writes; "": it divides
  std::string division = {};  // as the program says it
  // Of a division: the iterators that stand in it, each with its axis. Their coordinates say where it fails.
  std::vector<std::pair<std::string, std::string>> iterators = {};
  friend auto operator<=>(const Failure&, const Failure&) = default;
};

struct Node {
  Op op = Op::integer_literal;
  Type type = Type::integer;
  int64_t integer = 0;
  double real = 0;
  std::string name = {};  // of a variable, or of the buffer that is loaded or searched
  std::vector<Expr> operands = {};
  // Of a division that may be by 0: what the run then says. Operands from the third on say where: the coordinates of
  // its iterators, in flat loops the one number that these are (sparse/failures.h).
  std::shared_ptr<const Failure> failure = {};
  bool may_fail = false;  // it has a failure, or something in it has
};

using Names = std::set<std::string>;
using Substitution = std::map<std::string, Expr>;

Expr real(double value);
Expr variable(std::string name, Type type = Type::integer);
Expr load(std::string buffer, std::vector<Expr> indices, Type type);
// Literals are folded, and 0 and 1 where they change nothing; reals are left as they are written.
Expr operation(Op op, std::vector<Expr> operands);
Expr select(Expr condition, Expr a, Expr b);
// `start` has as many indices as the buffer has.
Expr search(Op op, std::string buffer, std::vector<Expr> start, Expr count, Expr x);

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr floor_div(Expr a, Expr b);
Expr modulo(Expr a, Expr b);
// a // b or a % b, which fails at `at` where b is 0; a plain one where b is a literal that never fails.
Expr checked_division(Op op, Expr a, Expr b, std::shared_ptr<const Failure> failure, std::vector<Expr> at);
Expr less(Expr a, Expr b);
Expr at_least(Expr a, Expr b);

bool is_literal(const Expr& e, int64_t value);
bool is_integer(const Expr& e, int64_t* value = nullptr);  // a literal one
bool is_variable(const Expr& e, std::string_view name);
bool is_search(Op op);
bool is_division(Op op);             // of integers
bool is_of_reals(Op op);             // takes nothing else, and is one
bool divides_by_any(const Expr& e);  // by what may be 0, as far as its divisors are no literals

// What floor_div and modulo are of numbers that have one.
bool can_divide(Op op, int64_t a, int64_t b);
int64_t divided(Op op, int64_t a, int64_t b);

// Calls on every node, operands after their operation.
void visit(const Expr& e, const std::function<void(const Expr&)>& call);
// Rebuilds the tree from the leaves up; `call` gets each node with operands already rewritten.
Expr rewrite(const Expr& e, const std::function<Expr(const Expr&)>& call);
// The same operation of other operands.
Expr with_operands(const Expr& e, std::vector<Expr> operands);
Expr substitute(const Expr& e, const Substitution& values);
Names variables_of(const Expr& e);
bool uses(const Expr& e, const std::string& variable);
bool loads_from(const Expr& e, const std::string& buffer);
// Whether each division that may fail stands in the other, too: a rewrite may leave none out, or the run would not
// fail.
bool keeps_failures(const Expr& from, const Expr& to);

// What the text form writes of it; loop/parse.h reads it again.
std::string to_text(const Expr& e);
// The same for messages: of a division that may fail, the division alone.
std::string to_words(const Expr& e);

}  // namespace weft::loop
