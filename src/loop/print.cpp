// The text form of expressions, statements and functions.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>

#include "base/names.h"
#include "loop/ir.h"
#include "loop/operators.h"
#include "loop/regions.h"

namespace weft::loop {
namespace {

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

}  // namespace

int precedence_of(const Node& node) {
  if (node.failure != nullptr) return kPostfixPrecedence;
  if (node.op == Op::integer_literal && node.integer < 0) return kUnaryPrecedence;
  if (node.op == Op::real_literal && (node.real < 0 || std::signbit(node.real))) return kUnaryPrecedence;
  for (const InfixOperator& op : kInfixOperators)
    if (op.op == node.op) return op.precedence;
  if (node.op == Op::negate) return kUnaryPrecedence;
  if (node.op == Op::logical_not) return kNotPrecedence;
  return kPostfixPrecedence;
}

namespace {

class ExprPrinter {
 public:
  explicit ExprPrinter(bool says_failures) : says_failures_(says_failures) {}

  std::string text(const Expr& e) const {
    if (e->failure != nullptr) return says_failures_ ? checked(e) : text(division_of(e));
    switch (e->op) {
      case Op::integer_literal: return fmt::format("{}", e->integer);
      case Op::real_literal: return real_text(e->real);
      case Op::variable: return e->name;
      case Op::load: return fmt::format("{}[{}]", e->name, list(e->operands));
      case Op::negate: return "-" + operand(e->operands[0], kPostfixPrecedence);
      case Op::logical_not: return "not " + operand(e->operands[0], kNotPrecedence);
      default: break;
    }
    for (const InfixOperator& op : kInfixOperators)
      if (op.op == e->op)
        return fmt::format("{} {} {}", operand(e->operands[0], op.precedence), op.symbol,
                           operand(e->operands[1], op.precedence + 1));
    std::string_view function;
    for (const NamedFunction& f : kNamedFunctions)
      if (f.op == e->op) function = f.name;
    if (!is_search(e->op)) return fmt::format("{}({})", function, list(e->operands));
    const std::vector<Expr> start(e->operands.begin(), e->operands.end() - 2);
    return fmt::format("{}({}[{}], {}, {})", function, e->name, list(start), text(*(e->operands.end() - 2)),
                       text(e->operands.back()));
  }

  std::string list(const std::vector<Expr>& all) const {
    return joined(all, [this](const Expr& e) { return text(e); });
  }

 private:
  static Expr division_of(const Expr& e) { return operation(e->op, {e->operands[0], e->operands[1]}); }

  std::string operand(const Expr& e, int precedence) const {
    const Expr shown = e->failure != nullptr && !says_failures_ ? division_of(e) : e;
    return precedence_of(*shown) < precedence ? "(" + text(shown) + ")" : text(shown);
  }

  // checked(X[i] // Y[i], add("X[i] // Y[i]", i in I), i)
  std::string checked(const Expr& e) const {
    const Failure& failure = *e->failure;
    std::string said = fmt::format("checked({}, {}(\"{}\"", text(division_of(e)), failure.writer, failure.division);
    for (const auto& [iterator, axis] : failure.iterators) said += fmt::format(", {} in {}", iterator, axis);
    said += ")";
    for (size_t i = 2; i < e->operands.size(); ++i) said += ", " + text(e->operands[i]);
    return said + ")";
  }

  bool says_failures_;
};

std::string texts_of(const std::vector<Expr>& list) { return ExprPrinter(true).list(list); }

}  // namespace

std::string to_text(const Expr& e) { return ExprPrinter(true).text(e); }
std::string to_words(const Expr& e) { return ExprPrinter(false).text(e); }

namespace {

std::string attributes_of(const Stmt& loop) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? " [" : ", ") + word; };
  if (loop.reduction) add("reduce");
  if (loop.loop == LoopKind::bind)
    add("bind=" + loop.thread);
  else if (loop.loop != LoopKind::serial)
    add(std::string(to_string(loop.loop)));
  if (!loop.balance.empty()) add("balance=" + loop.balance);
  if (loop.joined) add("joined");
  for (const std::string& annotation : loop.annotations) add(annotation);
  return text.empty() ? text : text + "]";
}

}  // namespace

std::string to_text(const Body& body, int indent) {
  std::string text;
  const std::string space(static_cast<size_t>(indent), ' ');
  for (const Stmt& stmt : body) {
    switch (stmt.kind) {
      case Stmt::Kind::loop:
        text += fmt::format("{}for {} in range({}){}:\n", space, stmt.name, to_text(stmt.value), attributes_of(stmt));
        break;
      case Stmt::Kind::store:
        text += fmt::format("{}{}{}[{}] = {}\n", space, stmt.atomic ? "atomic " : "", stmt.name, texts_of(stmt.indices),
                            to_text(stmt.value));
        break;
      case Stmt::Kind::condition: text += fmt::format("{}if {}:\n", space, to_text(stmt.value)); break;
      case Stmt::Kind::let: text += fmt::format("{}let {} = {}\n", space, stmt.name, to_text(stmt.value)); break;
      case Stmt::Kind::allocate:
        text += fmt::format("{}allocate {}[{}]: {} in {}\n", space, stmt.name, texts_of(stmt.indices),
                            weft::to_string(stmt.dtype), to_string(stmt.scope));
        break;
      case Stmt::Kind::fail:
        text += fmt::format("{}fail {}: {}[{}]\n", space, stmt.writer, stmt.name, texts_of(stmt.indices));
        break;
      case Stmt::Kind::barrier: text += space + "barrier\n"; break;
      case Stmt::Kind::copy_async:
        text +=
            fmt::format("{}16 bytes of {}[{}] = {}\n", space, stmt.name, texts_of(stmt.indices), to_text(stmt.value));
        break;
      case Stmt::Kind::commit_copies: text += space + "commit copies\n"; break;
      case Stmt::Kind::wait_copies:
        text += fmt::format("{}wait for copies but {}\n", space, to_text(stmt.value));
        break;
      case Stmt::Kind::thread_sum:
        text += fmt::format("{}{}[{}] = its {} over the {}\n", space, stmt.name, texts_of(stmt.indices),
                            stmt.combine == Op::add       ? "sum"
                            : stmt.combine == Op::maximum ? "maximum"
                                                          : "minimum",
                            stmt.thread);
        break;
      case Stmt::Kind::block:
        text += fmt::format("{}block {}:\n", space, stmt.name);
        if (!stmt.reads.empty()) text += fmt::format("{}  reads: {}\n", space, to_text(stmt.reads));
        if (!stmt.writes.empty()) text += fmt::format("{}  writes: {}\n", space, to_text(stmt.writes));
        if (!stmt.init.empty()) text += fmt::format("{}  init:\n{}", space, to_text(stmt.init, indent + 4));
        break;
    }
    text += to_text(stmt.body, indent + 2);
  }
  return text;
}

std::string text_of_parameters(const std::vector<std::string>& integers, const std::vector<std::string>& reals) {
  std::vector<std::string> all = integers;
  for (const std::string& real : reals) all.push_back(real + ": real");
  return joined(all);
}

std::string to_text(const Function& function) {
  std::string text =
      fmt::format("stage3 {}({}):\n", function.name, text_of_parameters(function.scalars, function.reals));
  for (const Buffer& b : function.buffers) {
    text += fmt::format("  {} = {}({}): {}", b.name, b.temporary ? "temporary" : "flat", to_text(b.size),
                        weft::to_string(b.dtype));
    if (b.least) text += fmt::format(" in {} to {}", to_text(b.least), to_text(b.most));
    text += "\n";
  }
  for (const auto& names : function.apart) text += fmt::format("  apart({})\n", fmt::join(names, ", "));
  return text + to_text(function.body, 2);
}

}  // namespace weft::loop
