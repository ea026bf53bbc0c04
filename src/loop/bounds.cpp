#include "base/check.h"
#include "loop/copies.h"
#include "loop/facts.h"
#include "loop/passes.h"

namespace weft::loop {
namespace {

class Checker {
 public:
  explicit Checker(const Function& function)
      : function_(function), copies_(function.body, Facts(function)), facts_(function) {}

  void check_body(const Body& body) {
    size_t lets = 0;
    for (const Stmt& stmt : body) {
      stmt_ = &stmt;
      for (const Expr& index : stmt.indices) check_expr(index);
      if (stmt.value) check_expr(stmt.value);
      if (stmt.kind == Stmt::Kind::store) check_access(stmt.name, stmt.indices[0]);
      if (stmt.kind == Stmt::Kind::loop) facts_.push_loop(stmt.name, original(stmt.value));
      if (stmt.kind == Stmt::Kind::condition) facts_.push_condition(original(stmt.value), stmt.body);
      check_body(stmt.body);
      if (stmt.kind == Stmt::Kind::loop) facts_.pop_loop();
      if (stmt.kind == Stmt::Kind::condition) facts_.pop_condition();
      if (stmt.kind == Stmt::Kind::let) facts_.push_let(stmt.name, stmt.value), ++lets;
    }
    while (lets-- > 0) facts_.pop_let();
  }

  BoundsReport report;

 private:
  Expr original(const Expr& e) const { return copies_.original(e, *stmt_); }

  void check_expr(const Expr& e) {
    if (e->op == Op::select) {  // only one of the two is evaluated
      check_expr(e->operands[0]);
      facts_.push_condition(original(e->operands[0]));
      check_expr(e->operands[1]);
      facts_.pop_condition();
      return check_expr(e->operands[2]);
    }
    if (e->op == Op::logical_and) {  // the second is evaluated where the first holds
      check_expr(e->operands[0]);
      facts_.push_condition(original(e->operands[0]));
      check_expr(e->operands[1]);
      return facts_.pop_condition();
    }
    for (const Expr& operand : e->operands) check_expr(operand);
    if (e->op == Op::load) check_access(e->name, e->operands[0]);
  }

  void check_access(const std::string& name, const Expr& written) {
    const Buffer* buffer = function_.find(name);
    if (buffer == nullptr) return;
    ++report.total;
    const Expr index = original(written);
    const Expr last = buffer->size - 1;
    // Where conditions exclude each other, both are proven: nothing is accessed there.
    if (facts_.is_nonnegative(index) && facts_.is_nonnegative(last - index)) {
      ++report.proven;
      return;
    }
    const bool outside = facts_.holds(less(index, 0)) || facts_.holds(less(last, index));
    if (outside && facts_.is_never_reached()) {
      ++report.proven;
      return;
    }
    check(!outside, ErrorCode::invalid_argument, "{}: '{}' is accessed at {}, outside of its {} elements",
          function_.name, name, to_words(written), to_words(buffer->size));
    report.others.push_back(fmt::format("{}[{}] of {} elements", name, to_words(written), to_words(buffer->size)));
  }

  const Function& function_;
  const Copies copies_;
  Facts facts_;
  const Stmt* stmt_ = nullptr;  // that is looked at
};

}  // namespace

BoundsReport check_bounds(const Function& function) {
  Checker checker(function);
  checker.check_body(function.body);
  return checker.report;
}

}  // namespace weft::loop
