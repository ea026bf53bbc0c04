#include "loop/parse.h"

#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "loop/operators.h"

namespace weft::loop {
namespace {

constexpr int kMaxNesting = 100;  // of operations: trees are walked by recursion

std::vector<std::string> names_of(const Symbols& symbols) {
  std::vector<std::string> names(symbols.variables.begin(), symbols.variables.end());
  for (const auto& [name, symbol] : symbols.buffers) names.push_back(name);
  return names;
}

class ExprParser {
 public:
  ExprParser(Cursor& line, const Symbols& symbols) : line_(line), symbols_(symbols) {}

  Expr parse(int precedence = 0) {
    if (++nesting_ > kMaxNesting) line_.fail(fmt::format("operations stand more than {} deep", kMaxNesting));
    Expr left = parse_unary(precedence);
    for (int length = 0;; ++length) {
      const InfixOperator* op = next_operator(precedence);
      if (op == nullptr) break;
      if (length == kMaxNesting) line_.fail(fmt::format("more than {} operations follow each other", kMaxNesting));
      const size_t column = line_.column();
      line_.expect(op->symbol);
      Expr right = parse(op->precedence + 1);
      left = combine(column, op->op, left, right);
    }
    --nesting_;
    return left;
  }

 private:
  const InfixOperator* next_operator(int precedence) {
    for (const InfixOperator& op : kInfixOperators)
      if (line_.looks_like(op.symbol)) return op.precedence >= precedence ? &op : nullptr;
    return nullptr;
  }

  Expr combine(size_t column, Op op, const Expr& a, const Expr& b) {
    const bool logical = op == Op::logical_and || op == Op::logical_or;
    const bool integer = op == Op::floor_div || op == Op::modulo;
    for (const Expr& e : {a, b}) {
      if (logical != (e->type == Type::boolean))
        line_.fail_at(column, logical ? "'and' and 'or' join conditions, not numbers" : "a condition is no number");
      if (integer && e->type != Type::integer) line_.fail_at(column, "'//' and '%' take integers; '/' divides reals");
    }
    if (op == Op::divide && (a->type != Type::real || b->type != Type::real))
      line_.fail_at(column, "'/' divides reals; '//' divides integers, real(x) makes a real of one");
    return operation(op, {a, b});
  }

  Expr parse_unary(int precedence) {
    const size_t column = line_.column();
    if (line_.looks_like("not")) {
      if (precedence > kNotPrecedence) line_.fail("write 'not' within parentheses here");
      line_.expect("not");
      const Expr x = parse(kNotPrecedence);
      if (x->type != Type::boolean) line_.fail_at(column, "'not' takes a condition, not a number");
      return operation(Op::logical_not, {x});
    }
    if (line_.accept("-")) {
      if (line_.looks_like("-")) line_.fail("two minus signs follow each other; write parentheses");
      const Expr x = parse(kPostfixPrecedence);
      if (x->type == Type::boolean) line_.fail_at(column, "a condition is no number");
      if (int64_t value = 0; is_integer(x, &value)) return -value;
      if (x->op == Op::real_literal) return real(-x->real);
      return operation(Op::negate, {x});
    }
    return parse_primary();
  }

  Expr parse_primary() {
    if (line_.at_digit()) return line_.number_literal();
    if (line_.accept("(")) {
      Expr inner = parse();
      line_.expect(")");
      return inner;
    }
    const size_t column = line_.column();
    const std::string name = line_.name("a number, a name or '('");
    if (name == "inf") return real(std::numeric_limits<double>::infinity());
    if (name == "nan") return real(std::numeric_limits<double>::quiet_NaN());
    for (const NamedFunction& function : kNamedFunctions)
      if (function.name == name && (line_.looks_like("(") || is_word(name))) return parse_call(column, function);
    if (name == "checked" && line_.looks_like("(")) return parse_checked();
    if (line_.looks_like("[")) return parse_load(column, name);
    if (!symbols_.variables.contains(name)) {
      if (symbols_.buffers.contains(name))
        line_.fail_at(column, fmt::format("'{}' is a buffer: its indices are missing, as in {}[...]", name, name));
      line_.fail_at(column, fmt::format("'{}' is not declared{}", name, did_you_mean(name, names_of(symbols_))));
    }
    return variable(name, symbols_.reals.contains(name) ? Type::real : Type::integer);
  }

  std::vector<Expr> parse_list(std::string_view close) {
    std::vector<Expr> list;
    do {
      list.push_back(parse());
    } while (line_.accept(","));
    line_.expect(close);
    return list;
  }

  Expr parse_load(size_t column, const std::string& name) {
    const auto symbol = symbols_.buffers.find(name);
    if (symbol == symbols_.buffers.end())
      line_.fail_at(column, fmt::format("no buffer '{}' is declared{}", name, did_you_mean(name, names_of(symbols_))));
    line_.expect("[");
    std::vector<Expr> indices = parse_list("]");
    check_indices(column, name, symbol->second, indices);
    return load(name, std::move(indices), symbol->second.type);
  }

  void check_indices(size_t column, const std::string& name, const Symbols::BufferSymbol& symbol,
                     const std::vector<Expr>& indices) {
    if (indices.size() != symbol.num_indices)
      line_.fail_at(column, fmt::format("'{}' is accessed with {} indices; its axes are {}", name, indices.size(),
                                        symbol.num_indices));
    for (const Expr& index : indices)
      if (index->type != Type::integer)
        line_.fail_at(column,
                      fmt::format("'{}' is accessed with an index that is no integer: {}", name, to_words(index)));
  }

  Expr parse_call(size_t column, const NamedFunction& function) {
    line_.expect("(");
    if (is_search(function.op)) {
      const size_t at = line_.column();
      const Expr first = parse();
      if (first->op != Op::load || first->type != Type::integer)
        line_.fail_at(at, fmt::format("{} searches an integer buffer: its first element is expected here, as in "
                                      "indices[0]",
                                      function.name));
      line_.expect(",");
      const std::vector<Expr> rest = parse_list(")");
      check_operands(column, function, rest.size() + 1, rest);
      return search(function.op, first->name, first->operands, rest[0], rest[1]);
    }
    const std::vector<Expr> operands = parse_list(")");
    check_operands(column, function, operands.size(), operands);
    return operation(function.op, operands);
  }

  // checked(X[i] // Y[i], add("X[i] // Y[i]", i in I), i), as stages II and III have it.
  Expr parse_checked() {
    line_.expect("(");
    const size_t column = line_.column();
    const Expr division = parse();
    if (!is_division(division->op) || division->failure != nullptr)
      line_.fail_at(column, "a division of integers by no literal is expected here");
    Failure failure;
    line_.expect(",");
    failure.writer = line_.name("an iteration");
    line_.expect("(");
    failure.division = line_.quoted();
    while (line_.accept(",")) {
      std::string iterator = line_.name("an iterator");
      line_.expect("in");
      failure.iterators.emplace_back(std::move(iterator), line_.name("an axis"));
    }
    line_.expect(")");
    std::vector<Expr> at;
    while (line_.accept(",")) {
      at.push_back(parse());
      if (at.back()->type != Type::integer) line_.fail("a coordinate is an integer");
    }
    line_.expect(")");
    return checked_division(division->op, division->operands[0], division->operands[1],
                            std::make_shared<const Failure>(std::move(failure)), std::move(at));
  }

  void check_operands(size_t column, const NamedFunction& function, size_t count, const std::vector<Expr>& operands) {
    if (count != function.num_operands)
      line_.fail_at(column, fmt::format("{} takes {} operands, not {}", function.name, function.num_operands, count));
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool condition = function.op == Op::select && i == 0;
      if (condition != (operands[i]->type == Type::boolean))
        line_.fail_at(column, fmt::format("operand {} of {} is {}", i + 1, function.name,
                                          condition ? "no condition" : "a condition, not a number"));
      const bool integers = is_search(function.op) || function.op == Op::to_real;
      if (integers && operands[i]->type != Type::integer)
        line_.fail_at(column, fmt::format("operand {} of {} is no integer", i + 1, function.name));
    }
    for (const Expr& operand : operands)
      if (is_of_reals(function.op) && operand->type != Type::real)
        line_.fail_at(column, fmt::format("{} takes {}; real(x) makes one of an integer", function.name,
                                          operands.size() == 1 ? "a real" : "reals"));
    if (function.op == Op::select && operands[1]->type != operands[2]->type)
      line_.fail_at(column, "select chooses between an integer and a real; make both of one type");
  }

  Cursor& line_;
  const Symbols& symbols_;
  int nesting_ = 0;
};

}  // namespace

Expr parse_expr(Cursor& line, const Symbols& symbols) { return ExprParser(line, symbols).parse(); }

Expr parse_integer(Cursor& line, const Symbols& symbols) {
  const size_t column = line.column();
  Expr e = parse_expr(line, symbols);
  if (e->type != Type::integer) line.fail_at(column, fmt::format("an integer is expected here, not {}", to_words(e)));
  return e;
}

Expr parse_condition(Cursor& line, const Symbols& symbols) {
  const size_t column = line.column();
  Expr e = parse_expr(line, symbols);
  if (e->type != Type::boolean) line.fail_at(column, fmt::format("a condition is expected here, not {}", to_words(e)));
  return e;
}

DType parse_dtype(Cursor& line) {
  const size_t column = line.column();
  const std::string name = line.name("an element type");
  for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16, DType::fp64, DType::int32, DType::int64})
    if (weft::to_string(dtype) == name) return dtype;
  line.fail_at(
      column,
      fmt::format("'{}' is no element type of a buffer; allowed are fp32, fp16, bf16, fp64, int32, int64", name));
}

Stmt parse_store(Cursor& line, const Symbols& symbols) {
  const size_t column = line.column();
  const Expr target = parse_expr(line, symbols);
  if (target->op != Op::load) line.fail_at(column, "an assignment is expected here, as in C[i, k] = ...");
  line.expect("=");
  const Expr value = parse_expr(line, symbols);
  line.expect_end();
  if (value->type == Type::boolean || (value->type == Type::real && target->type == Type::integer))
    line.fail_at(column, fmt::format("the value does not have the type of '{}'", target->name));
  return make_store(target->name, target->operands, value);
}

namespace {

// "(a, b: real)"; `call` gets the cursor behind each name.
template <class Call>
void parse_list_of_names(Cursor& line, std::string_view what, const Call& call) {
  Names names;
  line.expect("(");
  if (line.accept(")")) return;
  do {
    const size_t column = line.column();
    std::string name = line.new_name(what);
    if (!names.insert(name).second) line.fail_at(column, fmt::format("'{}' is declared twice", name));
    call(std::move(name));
  } while (line.accept(","));
  line.expect(")");
}

}  // namespace

std::vector<std::string> parse_names(Cursor& line, std::string_view what) {
  std::vector<std::string> names;
  parse_list_of_names(line, what, [&](std::string name) { names.push_back(std::move(name)); });
  return names;
}

void parse_parameters(Cursor& line, std::vector<std::string>& integers, std::vector<std::string>& reals) {
  parse_list_of_names(line, "parameter", [&](std::string name) {
    const bool is_real = line.accept(":");
    if (is_real && !line.accept("real")) line.fail("a parameter is an integer, or ': real'");
    (is_real ? reals : integers).push_back(std::move(name));
  });
}

}  // namespace weft::loop
