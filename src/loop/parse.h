// Reads the text form: lines with indentation of two spaces, expressions, statements. Every error names line and
// column.
//
//   Source source(text);
//   Cursor line = source.next();            // the next line that is not empty or a comment
//   Expr e = parse_expr(line, symbols);
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "loop/ir.h"

namespace weft::loop {

// What a text may name where it stands.
struct Symbols {
  struct BufferSymbol {
    Type type = Type::real;
    size_t num_indices = 1;
  };
  Names variables = {};
  Names reals = {};  // those of the variables that are real
  std::map<std::string, BufferSymbol> buffers = {};
};

// A place in one line.
class Cursor {
 public:
  Cursor(std::string_view line, int number, int indent) : line_(line), number_(number), indent_(indent) {}
  int indent() const { return indent_; }
  int number() const { return number_; }
  std::string_view rest() const { return line_.substr(at_); }
  bool at_end();
  bool accept(std::string_view symbol);  // a word is accepted only whole
  void expect(std::string_view symbol);
  void expect_end();
  bool looks_like(std::string_view symbol);
  bool at_name();
  bool at_digit();
  std::string name(std::string_view what);      // an identifier; `what` it names, for messages
  std::string new_name(std::string_view what);  // that is no word of the language
  Expr number_literal();
  std::string quoted();
  // Throws Error(invalid_argument): "line 4, column 7: MESSAGE".
  [[noreturn]] void fail(const std::string& message) const;
  [[noreturn]] void fail_at(size_t column, const std::string& message) const;
  size_t column();  // of what comes next

 private:
  void skip_space();
  std::string_view line_;  // without comment
  int number_, indent_;
  size_t at_ = 0;
};

// Whether it is a word of the language, which names nothing else.
bool is_word(std::string_view name);

class Source {
 public:
  // Throws Error(invalid_argument) for tabs, odd indentation, and more than kMaxBytes.
  explicit Source(std::string_view text);
  bool at_end() const { return next_ == lines_.size(); }
  // Whether the next line stands exactly so deep; a deeper one that nothing allows is an error.
  bool has_line(int indent) const;
  const Cursor& peek() const { return lines_[next_]; }
  Cursor next() { return lines_[next_++]; }
  int last_line() const { return next_ == 0 ? 1 : lines_[next_ - 1].number(); }
  // For what is missing after the last line that was read.
  [[noreturn]] void fail_after(const std::string& message) const;
  static constexpr size_t kMaxBytes = size_t{1} << 20;

 private:
  std::vector<Cursor> lines_;
  size_t next_ = 0;
};

Expr parse_expr(Cursor& line, const Symbols& symbols);
// The same, and an integer or a condition.
Expr parse_integer(Cursor& line, const Symbols& symbols);
Expr parse_condition(Cursor& line, const Symbols& symbols);
DType parse_dtype(Cursor& line);
// "NAME[index, ...] = value"
Stmt parse_store(Cursor& line, const Symbols& symbols);
// The lines that stand at `indent`, at least one, of any kind of statement.
Body parse_body(Source& source, int indent, Symbols symbols);
// "(a, b)", names of anything; "(n, alpha: real)", parameters: integers, and behind them, or between, reals.
std::vector<std::string> parse_names(Cursor& line, std::string_view what);
void parse_parameters(Cursor& line, std::vector<std::string>& integers, std::vector<std::string>& reals);
// "(a, b)", of which no two hold one value; after the word apart.
std::vector<std::string> parse_apart(Cursor& line);
// "stage3 NAME(...):" and what follows.
Function parse_function(std::string_view text);

}  // namespace weft::loop
