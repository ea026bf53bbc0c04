#include <utility>

#include "loop/facts.h"
#include "loop/passes.h"

namespace weft::loop {
namespace {

// x // c and x % c, of the part of x that c divides and the rest.
Expr simplify_division(const Expr& e, const Facts& facts) {
  int64_t divisor = 0;
  if (!is_integer(e->operands[1], &divisor) || divisor <= 0 || divisor > INT32_MAX) return e;
  Linear quotient, rest;
  for (const auto& [term, coefficient] : linear_of(e->operands[0]).terms) {
    if (coefficient % divisor == 0)
      quotient.add(term, coefficient / divisor);
    else
      rest.add(term, coefficient);
  }
  const int64_t constant = linear_of(e->operands[0]).constant;
  if (constant > INT64_MAX / 2 || constant < INT64_MIN / 2) return e;  // the steps below would not fit
  rest.constant = ((constant % divisor) + divisor) % divisor;
  quotient.constant = (constant - rest.constant) / divisor;
  const Expr remainder = expr_of(rest);
  const bool is_small = facts.is_nonnegative(remainder) && facts.holds(less(remainder, divisor));
  if (e->op == Op::modulo) return is_small ? remainder : modulo(remainder, divisor);
  if (!is_small) quotient.add(floor_div(remainder, divisor), 1);
  return expr_of(quotient);
}

Expr shortened(const Expr& e, const Facts& facts) {
  switch (e->op) {
    case Op::add:
    case Op::subtract:
    case Op::multiply:
    case Op::negate: return e->type == Type::integer ? expr_of(linear_of(e)) : e;
    case Op::floor_div:
    case Op::modulo:
      if (e->failure != nullptr && facts.is_positive(e->operands[1]))
        return simplify_division(operation(e->op, {e->operands[0], e->operands[1]}), facts);
      return simplify_division(e, facts);
    case Op::minimum:
    case Op::maximum: {
      if (e->type != Type::integer) return e;
      const Expr &a = e->operands[0], &b = e->operands[1];
      if (facts.is_nonnegative(b - a)) return e->op == Op::minimum ? a : b;
      if (facts.is_nonnegative(a - b)) return e->op == Op::minimum ? b : a;
      return e;
    }
    case Op::logical_and:
      if (facts.holds(e->operands[0])) return e->operands[1];
      if (facts.holds(e->operands[1])) return e->operands[0];
      return e;
    default: return e;
  }
}

Expr simplify_node(const Expr& e, const Facts& facts) {
  if (e->op == Op::select) {  // the other one of its two values is evaluated nowhere
    const auto& x = e->operands;
    if (x[0]->may_fail) return e;
    return facts.holds(x[0]) ? x[1] : facts.fails(x[0]) ? x[2] : e;
  }
  Expr shorter = shortened(e, facts);
  const bool is_proven = e->failure != nullptr && facts.is_positive(e->operands[1]);
  return is_proven || keeps_failures(e, shorter) ? shorter : e;
}

class Simplifier {
 public:
  explicit Simplifier(const Function& function) : function_(function), facts_(function) {}

  Body simplified(const Body& body) {
    Body result;
    for (Stmt stmt : body) {
      for (Expr& index : stmt.indices) index = simplify(index, facts_);
      if (stmt.value) stmt.value = simplify(stmt.value, facts_);
      if (stmt.kind == Stmt::Kind::loop)
        add_loop(result, std::move(stmt));
      else if (stmt.kind == Stmt::Kind::condition)
        add_condition(result, std::move(stmt), body.size() == 1);
      else
        result.push_back(std::move(stmt));
    }
    return result;
  }

 private:
  void append(Body& result, Body body) {
    result.insert(result.end(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
  }

  void add_loop(Body& result, Stmt loop) {
    const bool may_fail = loop.value->may_fail;
    if (!may_fail && facts_.holds(operation(Op::less_equal, {loop.value, 0}))) return;
    if (is_literal(loop.value, 1) && loop.loop != LoopKind::bind && !declares(loop.body)) {
      substitute(loop.body, {{loop.name, 0}});
      return append(result, simplified(loop.body));
    }
    facts_.push_loop(loop.name, loop.value);
    loop.body = simplified(loop.body);
    facts_.pop_loop();
    if (loop.body.empty() && !may_fail) return;
    result.push_back(hoisted(std::move(loop)));
  }

  // Whose names would meet others in the body around.
  static bool declares(const Body& body) {
    for (const Stmt& stmt : body)
      if (stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate) return true;
    return false;
  }

  // A condition around the whole body of a loop that it does not depend on goes outside; what runs in another order is
  // left alone.
  Stmt hoisted(Stmt loop) const {
    const bool fixed = loop.loop == LoopKind::parallel || loop.loop == LoopKind::bind;
    if (fixed || loop.body.size() != 1 || loop.body[0].kind != Stmt::Kind::condition) return loop;
    const Stmt& condition = loop.body[0];
    if (uses(condition.value, loop.name)) return loop;
    bool changes = false;  // while the loop runs
    visit(condition.value, [&](const Expr& e) {
      changes |= (e->op == Op::load || is_search(e->op)) && stores_to(condition.body, e->name);
    });
    if (changes) return loop;
    // There it is asked also where the loop has no iteration.
    if (!facts_.is_positive(loop.value) && (condition.value->may_fail || !reads_inside(condition.value))) return loop;
    Stmt outer = make_condition(condition.value, {});
    Body inner = condition.body;
    loop.body = std::move(inner);
    outer.body.push_back(hoisted(std::move(loop)));
    return outer;
  }

  // Whether all that is loaded is proven to be there.
  bool reads_inside(const Expr& e) const {
    bool inside = true;
    visit(e, [&](const Expr& node) {
      if (node->op != Op::load && !is_search(node->op)) return;
      const Buffer* buffer = function_.find(node->name);
      const Expr first = node->operands[0];
      const Expr end = node->op == Op::load ? first + 1 : first + node->operands[1];
      inside = inside && buffer != nullptr && facts_.is_nonnegative(first) && facts_.is_nonnegative(buffer->size - end);
    });
    return inside;
  }

  // `is_alone`: the body around has nothing else whose names those within could meet.
  void add_condition(Body& result, Stmt stmt, bool is_alone) {
    const bool may_fail = stmt.value->may_fail;
    if (!may_fail && facts_.fails(stmt.value)) return;
    if (!may_fail && facts_.holds(stmt.value) && (is_alone || !declares(stmt.body)))
      return append(result, simplified(stmt.body));
    if (stmt.value->op == Op::logical_and) {
      Stmt inner = make_condition(stmt.value->operands[1], std::move(stmt.body));
      return add_condition(result, make_condition(stmt.value->operands[0], {std::move(inner)}), is_alone);
    }
    facts_.push_condition(stmt.value, stmt.body);
    stmt.body = simplified(stmt.body);
    facts_.pop_condition();
    if (!stmt.body.empty() || may_fail) result.push_back(std::move(stmt));
  }

  const Function& function_;
  Facts facts_;
};

}  // namespace

Expr simplify(const Expr& e, const Facts& facts) {
  return rewrite(e, [&](const Expr& node) { return simplify_node(node, facts); });
}

void simplify(Function& function) {
  const Facts facts(function);
  for (Buffer& buffer : function.buffers) buffer.size = simplify(buffer.size, facts);
  // Once more for what the first pass has brought together.
  for (int pass = 0; pass < 2; ++pass) function.body = Simplifier(function).simplified(function.body);
}

}  // namespace weft::loop
