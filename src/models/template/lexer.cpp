#include "models/template/lexer.h"

#include <algorithm>
#include <array>

#include "base/ascii.h"
#include "base/check.h"
#include "models/template/white_space.h"
#include "models/utf8.h"

namespace weft::jinja {
namespace {

constexpr size_t kMaxSource = 4u << 20;

bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_part(char c) { return is_name_start(c) || is_digit(c); }

// Every line end becomes "\n", and one at the very end goes.
std::string normalise(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text += source[i];
      continue;
    }
    text += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> run() {
    while (at_ < source_.size()) {
      const size_t tag = find_tag();
      add_text(tag);
      if (tag == std::string::npos) break;
      at_ = tag;
      const char kind = source_[tag + 1];
      if (kind == '#') {
        comment();
      } else if (kind == '{') {
        inside(Token::print_begin, Token::print_end, "}}");
      } else if (!raw()) {
        inside(Token::block_begin, Token::block_end, "%}");
      }
    }
    add(Token::end, "");
    return std::move(tokens_);
  }

 private:
  template <class... Args>
  [[noreturn]] void fail_here(fmt::format_string<Args...> format, Args&&... args) {
    weft::fail(ErrorCode::invalid_template, "line {}: {}", line_at(at_),
               fmt::format(format, std::forward<Args>(args)...));
  }

  int line_at(size_t position) {
    // Positions only grow, so the lines are counted once.
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(counted_),
                                    source_.begin() + static_cast<std::ptrdiff_t>(std::max(position, counted_)), '\n'));
    counted_ = std::max(position, counted_);
    return line_;
  }

  void add(Token::Kind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_at(at_)}); }
  bool next_is(std::string_view text) const { return source_.compare(at_, text.size(), text) == 0; }

  size_t find_tag() const {
    for (size_t i = source_.find('{', at_); i != std::string::npos; i = source_.find('{', i + 1))
      if (i + 1 < source_.size() && (source_[i + 1] == '{' || source_[i + 1] == '%' || source_[i + 1] == '#')) return i;
    return std::string::npos;
  }

  // The text up to a tag, less what the tag takes from it.
  void add_text(size_t tag) {
    const size_t end = tag == std::string::npos ? source_.size() : tag;
    std::string_view text(source_.data() + at_, end - at_);
    if (tag != std::string::npos) text = before_tag(text, tag);
    if (!text.empty()) add(Token::text, std::string(text));
  }

  std::string_view before_tag(std::string_view text, size_t tag) const {
    const char sign = tag + 2 < source_.size() ? source_[tag + 2] : ' ';
    if (sign == '-') return text.substr(0, text.size() - spaces_at_end(text));
    if (sign == '+' || source_[tag + 1] == '{') return text;
    const size_t newline = text.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool whole_line = newline != std::string_view::npos || line_starts_;
    if (whole_line && begin + spaces_from(text, begin) == text.size()) text = text.substr(0, begin);
    return text;
  }

  // Behind the end of a tag: "-" takes all white space, a block or comment takes one newline.
  void after_tag(char sign, bool takes_newline) {
    line_starts_ = false;
    if (sign == '-') {
      at_ += spaces_from(source_, at_);
      line_starts_ = source_[at_ - 1] == '\n';
    } else if (takes_newline && sign != '+' && next_is("\n")) {
      ++at_;
      line_starts_ = true;
    }
  }

  void comment() {
    const size_t close = source_.find("#}", at_ + 2);
    if (close == std::string::npos) fail_here("a comment is not closed with #}}");
    const char sign = close > at_ + 2 ? source_[close - 1] : ' ';
    at_ = close + 2;
    after_tag(sign, true);
  }

  // {% raw %} ... {% endraw %}
  bool raw() {
    size_t at = at_ + 2;
    const auto skip = [&] {
      if (at < source_.size() && (source_[at] == '-' || source_[at] == '+')) ++at;
      at += spaces_from(source_, at);
    };
    const auto word = [&](std::string_view text) {
      if (source_.compare(at, text.size(), text) != 0) return false;
      at += text.size();
      return true;
    };
    char sign = ' ';
    const auto close = [&] {
      at += spaces_from(source_, at);
      sign = at < source_.size() ? source_[at] : ' ';
      if (sign == '-' || sign == '+') ++at;
      return word("%}");
    };
    skip();
    if (!word("raw") || !close()) return false;
    at_ = at;
    after_tag(sign, true);
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos; tag = source_.find("{%", tag + 2)) {
      at = tag + 2;
      skip();
      if (!word("endraw") || !close()) continue;
      const std::string_view text = before_tag(std::string_view(source_).substr(at_, tag - at_), tag);
      if (!text.empty()) add(Token::text, std::string(text));
      at_ = at;
      after_tag(sign, true);
      return true;
    }
    fail_here("{{% raw %}} is not closed with {{% endraw %}}");
  }

  void inside(Token::Kind begin, Token::Kind end, std::string_view close) {
    add(begin, "");
    const int opened = line_at(at_);
    at_ += 2;
    if (at_ < source_.size() && (source_[at_] == '-' || source_[at_] == '+')) ++at_;
    int brackets = 0;
    for (;;) {
      at_ += spaces_from(source_, at_);
      if (at_ >= source_.size())
        weft::fail(ErrorCode::invalid_template, "line {}: a tag is not closed with {}", opened, close);
      if (brackets == 0) {
        const bool signed_end =
            (next_is("-") || (next_is("+") && end == Token::block_end)) && source_.compare(at_ + 1, 2, close) == 0;
        if (signed_end || next_is(close)) {
          add(end, "");
          const char sign = signed_end ? source_[at_] : ' ';
          at_ += signed_end ? 3 : 2;
          after_tag(sign, end == Token::block_end);
          return;
        }
      }
      token(brackets);
    }
  }

  void token(int& brackets) {
    const char c = source_[at_];
    if (c == '"' || c == '\'') return string(c);
    if (is_digit(c)) return number();
    if (is_name_start(c)) {
      size_t end = at_;
      while (end < source_.size() && is_name_part(source_[end])) ++end;
      add(Token::name, source_.substr(at_, end - at_));
      at_ = end;
      return;
    }
    for (const std::string_view two : {"==", "!=", "<=", ">=", "//", "**"})
      if (next_is(two)) {
        add(Token::symbol, std::string(two));
        at_ += 2;
        return;
      }
    if (std::string_view("+-*/%~<>=.,:|()[]{}").find(c) == std::string_view::npos)
      fail_here("character '{}' has no meaning within a tag",
                source_.substr(at_, std::max<size_t>(utf8::character_length(source_, at_), 1)));
    if (c == '(' || c == '[' || c == '{') ++brackets;
    if (c == ')' || c == ']' || c == '}') --brackets;
    if (brackets < 0) fail_here("'{}' closes nothing", c);
    add(Token::symbol, std::string(1, c));
    ++at_;
  }

  void number() {
    size_t end = at_;
    const auto digits = [&] {
      while (end < source_.size() && (is_digit(source_[end]) || source_[end] == '_')) ++end;
    };
    digits();
    bool real = false;
    if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
      real = true;
      ++end;
      digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-')) ++exponent;
      if (exponent < source_.size() && is_digit(source_[exponent])) {
        real = true;
        end = exponent;
        digits();
      }
    }
    if (end < source_.size() && is_name_start(source_[end]))
      fail_here("'{}' is no number", source_.substr(at_, end + 1 - at_));
    std::string text = source_.substr(at_, end - at_);
    std::erase(text, '_');
    add(real ? Token::real : Token::integer, std::move(text));
    at_ = end;
  }

  uint32_t hex(size_t begin, size_t count) {
    uint32_t code = 0;
    for (size_t i = begin; i < begin + count; ++i) {
      const char c = i < source_.size() ? source_[i] : ' ';
      const int digit = is_digit(c)            ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit < 0) fail_here("an escape needs {} hexadecimal digits", count);
      code = code * 16 + static_cast<uint32_t>(digit);
    }
    return code;
  }

  void string(char mark) {
    std::string text;
    size_t i = at_ + 1;
    for (; i < source_.size() && source_[i] != mark; ++i) {
      if (source_[i] != '\\') {
        text += source_[i];
        continue;
      }
      if (++i >= source_.size()) break;
      const char c = source_[i];
      constexpr std::string_view kFrom = "ntrabfv\\'\"", kTo = "\n\t\r\a\b\f\v\\'\"";
      if (const size_t known = kFrom.find(c); known != std::string_view::npos) {
        text += kTo[known];
      } else if (c == '\n') {
        continue;
      } else if (c == 'x' || c == 'u' || c == 'U') {
        const size_t count = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        const uint32_t code = hex(i + 1, count);
        if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) fail_here("an escape names no character: {:x}", code);
        utf8::append(text, code);
        i += count;
      } else if (c >= '0' && c <= '7') {
        uint32_t code = 0;
        size_t digits = 0;
        for (; digits < 3 && i + digits < source_.size() && source_[i + digits] >= '0' && source_[i + digits] <= '7';
             ++digits)
          code = code * 8 + static_cast<uint32_t>(source_[i + digits] - '0');
        utf8::append(text, code);
        i += digits - 1;
      } else {
        text += '\\';
        text += c;
      }
    }
    if (i >= source_.size()) fail_here("a string is not closed with {}", mark);
    add(Token::string, std::move(text));
    at_ = i + 1;
  }

  std::string source_;
  std::vector<Token> tokens_;
  size_t at_ = 0, counted_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the text that follows begins a line
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  check(source.size() <= kMaxSource, ErrorCode::invalid_template, "the template has {} bytes; allowed are {}",
        source.size(), kMaxSource);
  for (size_t at = 0; at < source.size();) {
    const size_t length = utf8::character_length(source, at);
    if (length == 0)
      fail(ErrorCode::invalid_template, "line {}: byte {} is not UTF-8",
           1 + std::count(source.begin(), source.begin() + static_cast<std::ptrdiff_t>(at), '\n'), at);
    at += length;
  }
  return Lexer(normalise(source)).run();
}

}  // namespace weft::jinja
