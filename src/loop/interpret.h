// Runs statements slowly, in double, one after another: what every lowering is compared with.
//
//   Memory memory{.scalars = {{"n", 4}}, .buffers = {{"A", {...}}}};
//   interpret(function, memory);
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "loop/ir.h"

namespace weft::loop {

struct Memory {
  std::map<std::string, int64_t> scalars = {};
  std::map<std::string, double> reals = {};
  std::map<std::string, std::vector<double>> buffers = {};  // integers, too: exact up to 2^53
};

// Statements over buffers that may have several dimensions. `place` says where an element lies, from the buffer's name
// and its indices, or that it is absent: then 0 is read, and writing is a failure, of no writer. Local buffers have
// places in row-major order. What fails is told to `failed`, and goes on; `at` of a division ends with 0 where the
// divisor is 0, and with 1 where the quotient does not fit. Throws InternalError where a block accesses what is in none
// of its regions, if it has any, and Error(invalid_argument) for a division that fails and has no Failure.
class Interpreter {
 public:
  using Place = std::function<std::optional<int64_t>(const std::string& buffer, const std::vector<int64_t>& indices)>;
  using Failed = std::function<void(const Failure& failure, const std::vector<int64_t>& indices)>;
  Interpreter(Memory& memory, Place place, Failed failed = {});
  void run(const Body& body);
  int64_t integer(const Expr& e);
  double real(const Expr& e);
  bool condition(const Expr& e);
  void set(const std::string& variable, int64_t value) { variables_[variable] = value; }

 private:
  // A block that runs, and the memory that is its own.
  struct Running {
    const Stmt* block = nullptr;
    Names own = {};
  };
  void run_block(const Stmt& block);
  void check_regions(const std::string& buffer, const std::vector<int64_t>& at, bool writes);
  bool is_within(const Range& range, int64_t index);
  std::vector<int64_t> integers(std::span<const Expr> list);
  // Null: absent.
  double* element(const std::string& buffer, const std::vector<int64_t>& at, bool writes);
  double read(const std::string& buffer, const std::vector<int64_t>& at);
  int64_t search(const Expr& e);
  int64_t divide(const Expr& e);
  void fail_at(const std::string& writer, const std::string& buffer, const std::vector<Expr>& indices);
  Memory& memory_;
  Place place_;
  Failed failed_;
  std::map<std::string, int64_t> variables_;
  std::map<std::string, std::vector<int64_t>> local_;  // extents
  std::vector<Running> running_;
};

void interpret(const Function& function, Memory& memory, Interpreter::Failed failed = {});

}  // namespace weft::loop
