#include "attention/variant/tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/ascii.h"

namespace weft {
namespace {

// Bytes above ASCII are letters, and `\` begins a letter by its number (\u00e4).
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' || c == '\\' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v'; }

// Characters with lines spliced: a backslash, blanks that compilers forgive, and the end of the line are not there.
class Source {
 public:
  explicit Source(std::string_view text) : text_(text) {}
  // '\0' at the end.
  char peek() {
    splice();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  char peek_second() const {
    Source ahead = *this;
    ahead.next();
    return ahead.peek();
  }
  void next() {
    splice();
    if (at_ >= text_.size()) return;
    line_ += text_[at_] == '\n';
    ++at_;
  }
  bool take(char first, char second) {
    if (peek() != first || peek_second() != second) return false;
    next();
    next();
    return true;
  }
  int line() const { return line_; }
  // Behind R": nothing is spliced in a raw string. False, and nothing is taken, where none begins.
  bool take_raw_string() {
    const size_t open = text_.find_first_of("()\\ \t\r\n\f\v\"", at_);
    if (open == text_.npos || text_[open] != '(' || open - at_ > 16) return false;
    std::string end = ")";
    end.append(text_.substr(at_, open - at_)).append("\"");
    const size_t found = text_.find(end, open);
    const size_t after = found == text_.npos ? text_.size() : found + end.size();
    line_ += static_cast<int>(
        std::count(text_.begin() + static_cast<ptrdiff_t>(at_), text_.begin() + static_cast<ptrdiff_t>(after), '\n'));
    at_ = after;
    return true;
  }

 private:
  void splice() {
    while (at_ < text_.size() && text_[at_] == '\\') {
      size_t end = at_ + 1;
      while (end < text_.size() && is_blank(text_[end])) ++end;
      if (end >= text_.size() || text_[end] != '\n') return;
      at_ = end + 1;
      ++line_;
    }
  }
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
};

class Lexer {
 public:
  explicit Lexer(std::string_view text) : source_(text) {}
  std::vector<Token> run() {
    while (source_.peek() != '\0') step();
    return std::move(found_);
  }

 private:
  void step() {
    const char c = source_.peek();
    if (c == '\n') {
      source_.next();
      begins_line_ = true;
      in_directive_ = false;
    } else if (is_blank(c)) {
      source_.next();
    } else if (source_.take('/', '/')) {
      while (source_.peek() != '\0' && source_.peek() != '\n') source_.next();
    } else if (source_.take('/', '*')) {
      while (source_.peek() != '\0' && !source_.take('*', '/')) source_.next();
    } else {
      token(c);
    }
  }

  void token(char c) {
    Token token{.line = source_.line()};
    if (is_digit(c) || (c == '.' && is_digit(source_.peek_second()))) {
      token.kind = Token::Kind::number;
      number(token.text);
    } else if (is_letter(c)) {
      token.kind = Token::Kind::word;
      for (; is_letter(source_.peek()) || is_digit(source_.peek()); source_.next()) token.text += source_.peek();
      if (source_.peek() == '"' && is_raw_prefix(token.text)) {
        literal('"', true);
        token = {.kind = Token::Kind::literal, .line = token.line};
      }
    } else if (c == '"' || c == '\'') {
      token.kind = Token::Kind::literal;
      literal(c, false);
    } else {
      token.kind = Token::Kind::punctuation;
      token.text = punctuation();
      token.begins_directive = begins_line_ && token.is("#");
      in_directive_ = in_directive_ || token.begins_directive;
    }
    token.in_directive = in_directive_;
    begins_line_ = false;
    found_.push_back(std::move(token));
  }

  static bool is_raw_prefix(std::string_view word) {
    constexpr std::array<std::string_view, 5> kPrefixes = {"R", "LR", "uR", "UR", "u8R"};
    return std::find(kPrefixes.begin(), kPrefixes.end(), word) != kPrefixes.end();
  }

  // Quotes (1'000), exponents (1e-3) and suffixes belong to it.
  void number(std::string& text) {
    for (;;) {
      const char c = source_.peek();
      const char last = text.empty() ? '\0' : text.back();
      const bool sign = (c == '+' || c == '-') && (last == 'e' || last == 'E' || last == 'p' || last == 'P');
      const char second = c == '\'' ? source_.peek_second() : '\0';
      if (!is_digit(c) && !is_letter(c) && c != '.' && !sign && !is_digit(second) && !is_letter(second)) return;
      text += c;
      source_.next();
    }
  }

  // One that is not closed ends with its line.
  void literal(char quote, bool raw) {
    source_.next();
    if (raw && source_.take_raw_string()) return;
    for (; source_.peek() != '\0' && source_.peek() != '\n'; source_.next()) {
      if (source_.peek() == quote) return source_.next();
      if (source_.peek() == '\\') source_.next();
    }
  }

  std::string punctuation() {
    if (source_.take('%', ':')) return source_.take('%', ':') ? "##" : "#";
    if (source_.take('#', '#')) return "##";
    if (source_.take('<', '%')) return "{";
    if (source_.take('%', '>')) return "}";
    if (source_.take(':', '>')) return "]";
    if (source_.take('-', '>')) return "->";
    if (source_.take(':', ':')) return "::";
    if (source_.peek() == '<' && source_.peek_second() == ':' && !is_scope_behind_less()) {
      source_.take('<', ':');
      return "[";
    }
    const char c = source_.peek();
    source_.next();
    return {c};
  }

  // `<::` is `<` and `::`, unless `:` or `>` follows.
  bool is_scope_behind_less() const {
    Source ahead = source_;
    ahead.take('<', ':');
    const char third = ahead.peek(), fourth = ahead.peek_second();
    return third == ':' && fourth != ':' && fourth != '>';
  }

  Source source_;
  std::vector<Token> found_;
  bool begins_line_ = true, in_directive_ = false;
};

// Whether `all[i]` is there and belongs to the directive that began before it.
bool goes_on(const std::vector<Token>& all, size_t i) {
  return i < all.size() && all[i].in_directive && !all[i].begins_directive;
}

// Leaves out what stands between `#if 0` and its `#else`, `#elif` or `#endif`.
std::vector<Token> without_skipped(std::vector<Token> all) {
  size_t depth = 0;  // of conditions that are open since the `#if 0`, itself included; 0: nothing is skipped
  std::vector<Token> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].begins_directive && goes_on(all, i + 1)) {
      const std::string_view name = all[i + 1].text;
      if (depth == 0)
        depth = name == "if" && goes_on(all, i + 2) && all[i + 2].is("0") && !goes_on(all, i + 3);
      else if (name.starts_with("if"))
        ++depth;
      else if (name == "endif" || (depth == 1 && name.starts_with("el")))
        --depth;
    }
    if (depth == 0 || all[i].in_directive) kept.push_back(all[i]);
  }
  return kept;
}

}  // namespace

std::vector<Token> tokens(std::string_view text) { return without_skipped(Lexer(text).run()); }

bool mentions(std::string_view text, std::string_view word) {
  const auto all = tokens(text);
  return std::any_of(all.begin(), all.end(), [&](const Token& token) { return token.is_word() && token.is(word); });
}

}  // namespace weft
