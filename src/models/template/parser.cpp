#include "models/template/parser.h"

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "base/check.h"
#include "models/template/filters.h"
#include "models/template/lexer.h"

namespace weft::jinja {
namespace {

constexpr int kMaxExpressionDepth = 200, kMaxBlockDepth = 60;

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Block run() {
    Block block = statements({});
    if (now().kind != Token::end) fail_here("'{}' ends nothing", now().value);
    return block;
  }

 private:
  using Kind = Expression::Kind;

  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) {
    weft::fail(ErrorCode::invalid_template, "line {}: {}", now().line,
               fmt::format(format, std::forward<Args>(args)...));
  }

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool is_symbol(std::string_view text) const { return now().kind == Token::symbol && now().value == text; }
  bool is_name(std::string_view text) const { return now().kind == Token::name && now().value == text; }
  bool take_symbol(std::string_view text) {
    const bool taken = is_symbol(text);
    at_ += taken ? 1 : 0;
    return taken;
  }
  bool take_name(std::string_view text) {
    const bool taken = is_name(text);
    at_ += taken ? 1 : 0;
    return taken;
  }
  static std::string shown(const Token& token) {
    switch (token.kind) {
      case Token::end: return "the end of the template";
      case Token::block_end: return "%}";
      case Token::print_end: return "}}";
      default: return "'" + token.value + "'";
    }
  }
  void expect_symbol(std::string_view text) {
    if (!take_symbol(text)) fail_here("'{}' is expected before {}", text, shown(now()));
  }
  std::string expect_name() {
    if (now().kind != Token::name) fail_here("a name is expected before {}", shown(now()));
    return tokens_[at_++].value;
  }
  void expect_kind(Token::Kind kind, std::string_view text) {
    if (now().kind != kind) fail_here("{} is expected before {}", text, shown(now()));
    ++at_;
  }

  // ---- statements

  // Until a tag that is one of `ends`, whose name is then the current token.
  Block statements(std::initializer_list<std::string_view> ends) {
    if (++block_depth_ > kMaxBlockDepth) fail_here("blocks are nested deeper than {}", kMaxBlockDepth);
    Block block;
    for (;;) {
      const Token& token = now();
      if (token.kind == Token::end) {
        if (ends.size() > 0) fail_here("the template ends where {{% {} %}} is expected", *(ends.end() - 1));
        break;
      }
      if (token.kind == Token::text) {
        auto statement = make(Statement::text);
        statement->content = token.value;
        ++at_;
        block.push_back(std::move(statement));
      } else if (token.kind == Token::print_begin) {
        auto statement = make(Statement::print);
        ++at_;
        statement->expressions.push_back(tuple_or_expression());
        expect_kind(Token::print_end, "}}");
        block.push_back(std::move(statement));
      } else {
        ++at_;  // block_begin
        if (now().kind == Token::name && std::find(ends.begin(), ends.end(), now().value) != ends.end()) break;
        block.push_back(tag());
      }
    }
    --block_depth_;
    return block;
  }

  std::unique_ptr<Statement> make(Statement::Kind kind) const {
    auto statement = std::make_unique<Statement>();
    statement->kind = kind;
    statement->line = now().line;
    return statement;
  }

  void close() { expect_kind(Token::block_end, "%}"); }

  std::unique_ptr<Statement> tag() {
    if (is_name("if")) return branch();
    if (is_name("for")) return loop();
    if (is_name("set")) return assign();
    if (is_name("macro")) return macro();
    if (is_name("generation")) return generation();
    if (is_name("break") || is_name("continue")) {
      if (loop_depth_ == 0) fail_here("{} outside a loop", now().value);
      auto statement = make(is_name("break") ? Statement::leave : Statement::next);
      ++at_;
      close();
      return statement;
    }
    fail_here("{{% {} %}} is not supported; supported are if, for, set, macro, break, continue, generation and raw",
              now().value);
  }

  std::unique_ptr<Statement> branch() {
    auto statement = make(Statement::branch);
    do {
      ++at_;  // if, elif
      statement->expressions.push_back(tuple_or_expression());
      close();
      statement->blocks.push_back(statements({"elif", "else", "endif"}));
    } while (is_name("elif"));
    if (take_name("else")) {
      close();
      statement->blocks.push_back(statements({"endif"}));
    }
    ++at_;
    close();
    return statement;
  }

  std::vector<std::string> target_names() {
    std::vector<std::string> names;
    const bool parenthesis = take_symbol("(");
    do names.push_back(expect_name());
    while (take_symbol(","));
    if (parenthesis) expect_symbol(")");
    return names;
  }

  std::unique_ptr<Statement> loop() {
    auto statement = make(Statement::loop);
    ++at_;
    statement->targets = target_names();
    if (!take_name("in")) fail_here("'in' is expected before {}", shown(now()));
    statement->expressions.push_back(tuple_or_expression(/*with_choice=*/false));
    statement->expressions.push_back(take_name("if") ? expression() : nullptr);
    if (is_name("recursive")) fail_here("a recursive loop is not supported; use a macro");
    close();
    ++loop_depth_;
    const int names_before = loop_names_;
    statement->blocks.push_back(statements({"else", "endfor"}));
    statement->uses_state = loop_names_ > names_before;
    --loop_depth_;
    statement->blocks.emplace_back();
    if (take_name("else")) {
      close();
      statement->blocks.back() = statements({"endfor"});
    }
    ++at_;
    close();
    return statement;
  }

  std::unique_ptr<Statement> assign() {
    auto statement = make(Statement::assign);
    ++at_;
    if (ahead().kind == Token::symbol && ahead().value == ".") {
      statement->targets.push_back(expect_name());
      ++at_;
      statement->attribute = expect_name();
    } else {
      statement->targets = target_names();
    }
    if (take_symbol("=")) {
      statement->expressions.push_back(tuple_or_expression());
      close();
      return statement;
    }
    // {% set x | filter %} ... {% endset %}: the filters are applied to a name that stands for the output.
    if (statement->targets.size() != 1 || !statement->attribute.empty())
      fail_here("'=' is expected before {}", shown(now()));
    statement->kind = Statement::assign_block;
    auto output = node(Kind::name);
    output->text = kBlockOutput;
    statement->expressions.push_back(filters(std::move(output)));
    close();
    statement->blocks.push_back(statements({"endset"}));
    ++at_;
    close();
    return statement;
  }

  std::unique_ptr<Statement> macro() {
    auto statement = make(Statement::macro);
    ++at_;
    auto definition = std::make_unique<Macro>();
    definition->name = expect_name();
    expect_symbol("(");
    while (!is_symbol(")")) {
      definition->parameters.push_back(expect_name());
      if (take_symbol("=")) {
        definition->defaults.push_back(expression());
      } else if (!definition->defaults.empty()) {
        fail_here("parameter '{}' without a default follows one with a default", definition->parameters.back());
      }
      if (!take_symbol(",")) break;
    }
    expect_symbol(")");
    close();
    const int outer_loops = std::exchange(loop_depth_, 0);
    definition->body = statements({"endmacro"});
    loop_depth_ = outer_loops;
    ++at_;
    if (now().kind == Token::name) ++at_;  // {% endmacro name %}
    close();
    statement->definition = std::move(definition);
    return statement;
  }

  // Marks the assistant's words for training; when rendering it is nothing.
  std::unique_ptr<Statement> generation() {
    auto statement = make(Statement::group);
    ++at_;
    close();
    statement->blocks.push_back(statements({"endgeneration"}));
    ++at_;
    close();
    return statement;
  }

  // ---- expressions

  ExpressionPtr node(Kind kind) const {
    auto expression = std::make_unique<Expression>();
    expression->kind = kind;
    expression->line = now().line;
    return expression;
  }

  // Adds a part; a tree that is too deep to walk is refused.
  void add(Expression& to, ExpressionPtr part) {
    if (part) to.depth = std::max(to.depth, part->depth + 1);
    if (to.depth > kMaxExpressionDepth) fail_here("an expression is nested deeper than {}", kMaxExpressionDepth);
    to.parts.push_back(std::move(part));
  }

  ExpressionPtr binary(std::string text, ExpressionPtr left, ExpressionPtr right) {
    auto result = node(Kind::binary);
    result->text = std::move(text);
    add(*result, std::move(left));
    add(*result, std::move(right));
    return result;
  }

  bool at_end_of_expression() const {
    return now().kind == Token::block_end || now().kind == Token::print_end || is_symbol(")") || is_symbol("=") ||
           is_name("if") || is_name("recursive");
  }

  // "a, b" is a tuple without parentheses.
  ExpressionPtr tuple_or_expression(bool with_choice = true) {
    ExpressionPtr first = with_choice ? expression() : disjunction();
    if (!is_symbol(",")) return first;
    auto tuple = node(Kind::list);
    tuple->text = "tuple";
    add(*tuple, std::move(first));
    while (take_symbol(",") && !at_end_of_expression()) add(*tuple, with_choice ? expression() : disjunction());
    return tuple;
  }

  ExpressionPtr expression() {
    if (++nesting_ > kMaxExpressionDepth) fail_here("an expression is nested deeper than {}", kMaxExpressionDepth);
    ExpressionPtr result = disjunction();
    while (take_name("if")) {
      auto choice = node(Kind::choice);
      add(*choice, std::move(result));
      add(*choice, disjunction());
      add(*choice, take_name("else") ? expression() : nullptr);
      result = std::move(choice);
    }
    --nesting_;
    return result;
  }

  ExpressionPtr disjunction() {
    ExpressionPtr left = conjunction();
    while (take_name("or")) left = binary("or", std::move(left), conjunction());
    return left;
  }

  ExpressionPtr conjunction() {
    ExpressionPtr left = negation();
    while (take_name("and")) left = binary("and", std::move(left), negation());
    return left;
  }

  ExpressionPtr negation() {
    if (!is_name("not")) return comparison();
    if (++nesting_ > kMaxExpressionDepth) fail_here("an expression is nested deeper than {}", kMaxExpressionDepth);
    auto result = node(Kind::unary);
    result->text = "not";
    ++at_;
    add(*result, negation());
    --nesting_;
    return result;
  }

  // a < b < c holds where a < b and b < c do; the middle is evaluated once for each.
  ExpressionPtr comparison() {
    ExpressionPtr left = sum();
    bool compared = false;
    for (;;) {
      std::string text;
      for (const std::string_view symbol : {"==", "!=", "<=", ">=", "<", ">"})
        if (is_symbol(symbol)) text = symbol;
      if (is_name("in")) text = "in";
      if (is_name("not") && ahead().kind == Token::name && ahead().value == "in") text = "not in";
      if (text.empty()) return left;
      if (compared) fail_here("a chain of comparisons is not supported; join two with 'and'");
      compared = true;
      at_ += text == "not in" ? 2 : 1;
      left = binary(text, std::move(left), sum());
    }
  }

  ExpressionPtr sum() {
    ExpressionPtr left = concatenation();
    while (is_symbol("+") || is_symbol("-")) {
      const std::string text = tokens_[at_++].value;
      left = binary(text, std::move(left), concatenation());
    }
    return left;
  }

  ExpressionPtr concatenation() {
    ExpressionPtr left = product();
    while (take_symbol("~")) left = binary("~", std::move(left), product());
    return left;
  }

  ExpressionPtr product() {
    ExpressionPtr left = power();
    while (is_symbol("*") || is_symbol("/") || is_symbol("//") || is_symbol("%")) {
      const std::string text = tokens_[at_++].value;
      left = binary(text, std::move(left), power());
    }
    return left;
  }

  ExpressionPtr power() {
    ExpressionPtr left = unary(true);
    while (take_symbol("**")) left = binary("**", std::move(left), unary(true));
    return left;
  }

  ExpressionPtr unary(bool with_filters) {
    if (++nesting_ > kMaxExpressionDepth) fail_here("an expression is nested deeper than {}", kMaxExpressionDepth);
    ExpressionPtr result;
    if (is_symbol("-") || is_symbol("+")) {
      result = node(Kind::unary);
      result->text = tokens_[at_++].value;
      add(*result, unary(false));
    } else {
      result = primary();
    }
    result = postfix(std::move(result));
    if (with_filters) result = filters(std::move(result));
    --nesting_;
    return result;
  }

  ExpressionPtr constant(Value value) {
    auto result = node(Kind::constant);
    result->value = std::move(value);
    ++at_;
    return result;
  }

  ExpressionPtr primary() {
    const Token& token = now();
    switch (token.kind) {
      case Token::string: {
        std::string text = token.value;
        while (ahead().kind == Token::string) text += tokens_[++at_].value;
        return constant(std::move(text));
      }
      case Token::integer: {
        int64_t number = 0;
        if (std::from_chars(token.value.data(), token.value.data() + token.value.size(), number).ec != std::errc())
          fail_here("number {} is too large", token.value);
        return constant(number);
      }
      case Token::real: return constant(std::strtod(token.value.c_str(), nullptr));
      case Token::name: {
        const std::string& text = token.value;
        if (text == "true" || text == "True") return constant(true);
        if (text == "false" || text == "False") return constant(false);
        if (text == "none" || text == "None") return constant(nullptr);
        for (const std::string_view word : {"and", "or", "in", "is", "if", "else", "not"})
          if (text == word) fail_here("an expression is expected before '{}'", text);
        auto result = node(Kind::name);
        result->text = text;
        if (text == "loop") ++loop_names_;
        ++at_;
        return result;
      }
      default: break;
    }
    if (is_symbol("(")) return parenthesis();
    if (is_symbol("[")) return list();
    if (is_symbol("{")) return dict();
    fail_here("an expression is expected before {}", shown(token));
  }

  ExpressionPtr parenthesis() {
    ++at_;
    if (is_symbol(")")) {
      ++at_;
      auto empty = node(Kind::list);
      empty->text = "tuple";
      return empty;
    }
    ExpressionPtr result = tuple_or_expression();
    expect_symbol(")");
    return result;
  }

  ExpressionPtr list() {
    auto result = node(Kind::list);
    ++at_;
    while (!is_symbol("]")) {
      add(*result, expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("]");
    return result;
  }

  ExpressionPtr dict() {
    auto result = node(Kind::dict);
    ++at_;
    while (!is_symbol("}")) {
      add(*result, expression());
      expect_symbol(":");
      add(*result, expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("}");
    return result;
  }

  ExpressionPtr postfix(ExpressionPtr base) {
    for (;;) {
      if (is_symbol(".")) {
        auto result = node(Kind::attribute);
        ++at_;
        if (now().kind == Token::integer) fail_here("'.{}' is not supported; use [{}]", now().value, now().value);
        result->text = expect_name();
        add(*result, std::move(base));
        base = std::move(result);
      } else if (is_symbol("[")) {
        base = subscript(std::move(base));
      } else if (is_symbol("(")) {
        base = call(std::move(base));
      } else {
        return base;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr base) {
    auto result = node(Kind::subscript);
    ++at_;
    add(*result, std::move(base));
    const auto bound = [&]() -> ExpressionPtr { return is_symbol(":") || is_symbol("]") ? nullptr : expression(); };
    add(*result, bound());
    if (is_symbol(":")) {
      result->kind = Kind::slice;
      while (result->parts.size() < 4 && take_symbol(":")) add(*result, bound());
    } else if (!result->parts[1]) {
      fail_here("an index is expected before {}", shown(now()));
    }
    expect_symbol("]");
    return result;
  }

  ExpressionPtr call(ExpressionPtr callee) {
    auto result = node(Kind::call);
    add(*result, std::move(callee));
    arguments(*result);
    return result;
  }

  void arguments(Expression& to) {
    expect_symbol("(");
    while (!is_symbol(")")) {
      if (is_symbol("*") || is_symbol("**")) fail_here("arguments with {} are not supported", now().value);
      const bool named = now().kind == Token::name && ahead().kind == Token::symbol && ahead().value == "=";
      std::string name;
      if (named) {
        name = expect_name();
        ++at_;
      } else if (!to.arguments.named.empty()) {
        fail_here("a positional argument follows a named one");
      }
      ExpressionPtr value = expression();
      to.depth = std::max(to.depth, value->depth + 1);
      if (named) {
        to.arguments.named.emplace_back(std::move(name), std::move(value));
      } else {
        to.arguments.positional.push_back(std::move(value));
      }
      if (!take_symbol(",")) break;
    }
    expect_symbol(")");
  }

  ExpressionPtr filters(ExpressionPtr base) {
    for (;;) {
      if (is_symbol("|")) {
        ++at_;
        auto result = node(Kind::filter);
        result->text = expect_name();
        if (!is_filter(result->text))
          fail_here("filter '{}' is not supported; supported are {}", result->text, filter_names());
        add(*result, std::move(base));
        if (is_symbol("(")) arguments(*result);
        base = std::move(result);
      } else if (is_name("is")) {
        base = test(std::move(base));
      } else if (is_symbol("(")) {
        base = call(std::move(base));
      } else {
        return base;
      }
    }
  }

  ExpressionPtr test(ExpressionPtr base) {
    ++at_;
    const bool negated = take_name("not");
    auto result = node(Kind::test);
    result->text = expect_name();
    if (!is_test(result->text)) fail_here("test '{}' is not supported; supported are {}", result->text, test_names());
    add(*result, std::move(base));
    const Token& token = now();
    const bool begins_value = token.kind == Token::string || token.kind == Token::integer ||
                              token.kind == Token::real || is_symbol("[") || is_symbol("{") ||
                              (token.kind == Token::name && !is_name("else") && !is_name("or") && !is_name("and") &&
                               !is_name("is") && !is_name("if") && !is_name("in") && !is_name("not"));
    if (is_symbol("(")) {
      arguments(*result);
    } else if (begins_value) {
      ExpressionPtr value = postfix(primary());
      result->depth = std::max(result->depth, value->depth + 1);
      result->arguments.positional.push_back(std::move(value));
    }
    if (!negated) return result;
    auto inverse = node(Kind::unary);
    inverse->text = "not";
    add(*inverse, std::move(result));
    return inverse;
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nesting_ = 0, block_depth_ = 0, loop_depth_ = 0, loop_names_ = 0;
};

}  // namespace

Block parse(std::string_view source) { return Parser(tokenize(source)).run(); }

}  // namespace weft::jinja
