// Lines of the text form, and a cursor over one.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/ascii.h"
#include "base/check.h"
#include "loop/parse.h"

namespace weft::loop {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_in_word(char c) { return is_letter(c) || is_digit(c); }

constexpr std::string_view kWords[] = {"and",  "or",      "not",    "if",  "for",         "let",        "in",
                                       "init", "block",   "range",  "as",  "allocate",    "program",    "schedule",
                                       "min",  "max",     "select", "exp", "sqrt",        "abs",        "real",
                                       "find", "iterate", "inf",    "nan", "upper_bound", "preprocess", "where",
                                       "fuse", "atomic",  "apart",  "fail"};

constexpr int kMaxDepth = 64;

}  // namespace

bool is_word(std::string_view name) {
  return std::find(std::begin(kWords), std::end(kWords), name) != std::end(kWords);
}

Source::Source(std::string_view text) {
  check(text.size() <= kMaxBytes, ErrorCode::invalid_argument, "the program's text has {} bytes; at most {} are read",
        text.size(), kMaxBytes);
  int number = 0;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    const size_t comment = line.find('#');
    if (comment != line.npos) line = line.substr(0, comment);
    const size_t last = line.find_last_not_of(" \r");
    if (last == line.npos) continue;
    line = line.substr(0, last + 1);
    const size_t first = line.find_first_not_of(' ');
    const Cursor cursor(line, number, static_cast<int>(std::min<size_t>(first, 1000)));
    if (const size_t odd = line.find_first_of("\t\0\v\f\r", 0, 5); odd != line.npos)
      cursor.fail_at(odd + 1, "tabs and control characters are not part of the language; write spaces");
    if (first % 2 != 0 || first > 2 * kMaxDepth)
      cursor.fail_at(first + 1,
                     fmt::format("a line begins after {} spaces; indentation is two spaces a level, up to {} levels",
                                 first, kMaxDepth));
    lines_.push_back(cursor);
  }
}

bool Source::has_line(int indent) const {
  if (at_end() || peek().indent() < indent) return false;
  if (peek().indent() > indent)
    peek().fail_at(static_cast<size_t>(peek().indent()) + 1,
                   fmt::format("this line stands too deep: {} spaces are expected here", indent));
  return true;
}

void Source::fail_after(const std::string& message) const {
  fail(ErrorCode::invalid_argument, "line {}, column 1: {}", last_line() + 1, message);
}

void Cursor::skip_space() {
  while (at_ < line_.size() && line_[at_] == ' ') ++at_;
}

size_t Cursor::column() {
  skip_space();
  return at_ + 1;
}

bool Cursor::at_end() {
  skip_space();
  return at_ == line_.size();
}

bool Cursor::looks_like(std::string_view symbol) {
  skip_space();
  if (!rest().starts_with(symbol)) return false;
  const size_t after = at_ + symbol.size();
  return !is_in_word(symbol.back()) || after == line_.size() || !is_in_word(line_[after]);
}

bool Cursor::accept(std::string_view symbol) {
  if (!looks_like(symbol)) return false;
  at_ += symbol.size();
  return true;
}

void Cursor::expect(std::string_view symbol) {
  if (accept(symbol)) return;
  fail(at_end() ? fmt::format("the line ends where '{}' is expected", symbol)
                : fmt::format("'{}' is expected here, not '{}'", symbol, rest().substr(0, 24)));
}

void Cursor::expect_end() {
  if (!at_end()) fail(fmt::format("the line should end here; '{}' is left", rest().substr(0, 24)));
}

bool Cursor::at_name() {
  skip_space();
  return at_ < line_.size() && is_letter(line_[at_]);
}

bool Cursor::at_digit() {
  skip_space();
  return at_ < line_.size() && is_digit(line_[at_]);
}

std::string Cursor::name(std::string_view what) {
  if (!at_name()) {
    fail(at_end() ? fmt::format("the line ends where {} is expected", what)
                  : fmt::format("{} is expected here, not '{}'", what, rest().substr(0, 24)));
  }
  size_t end = at_;
  while (end < line_.size() && is_in_word(line_[end])) ++end;
  std::string word(line_.substr(at_, end - at_));
  if (word.size() > 64) fail(fmt::format("a name has {} characters; at most 64 are allowed", word.size()));
  at_ = end;
  return word;
}

std::string Cursor::new_name(std::string_view what) {
  const size_t begin = column();
  std::string word = name(what);
  if (is_word(word)) fail_at(begin, fmt::format("'{}' is a word of the language and names no {}", word, what));
  return word;
}

Expr Cursor::number_literal() {
  skip_space();
  size_t end = at_;
  while (end < line_.size() && is_digit(line_[end])) ++end;
  bool is_real = false;
  if (end < line_.size() && line_[end] == '.') {
    is_real = true;
    for (++end; end < line_.size() && is_digit(line_[end]);) ++end;
  }
  if (end < line_.size() && (line_[end] == 'e' || line_[end] == 'E')) {
    is_real = true;
    ++end;
    if (end < line_.size() && (line_[end] == '-' || line_[end] == '+')) ++end;
    while (end < line_.size() && is_digit(line_[end])) ++end;
  }
  const std::string word(line_.substr(at_, end - at_));
  if (end < line_.size() && is_in_word(line_[end])) fail(fmt::format("'{}' runs into a name", word));
  if (is_real) {
    double value = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (error != std::errc() || stop != word.data() + word.size())
      fail(fmt::format("'{}' is no number that fits 64 bits", word));
    at_ = end;
    return loop::real(value);
  }
  int64_t value = 0;
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  if (error != std::errc() || stop != word.data() + word.size())
    fail(fmt::format("'{}' is no integer of 64 bits", word));
  at_ = end;
  return value;
}

std::string Cursor::quoted() {
  expect("\"");
  const size_t end = line_.find('"', at_);
  if (end == line_.npos) fail("the closing '\"' is missing");
  std::string text(line_.substr(at_, end - at_));
  at_ = end + 1;
  return text;
}

void Cursor::fail(const std::string& message) const { fail_at(at_ + 1, message); }

void Cursor::fail_at(size_t column, const std::string& message) const {
  weft::fail(ErrorCode::invalid_argument, "line {}, column {}: {}", number_, column, message);
}

}  // namespace weft::loop
