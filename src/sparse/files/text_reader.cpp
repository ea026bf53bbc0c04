#include "sparse/files/text_reader.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "base/check.h"

namespace weft::sparse {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == ','; }

// All of the word, which may begin with a plus.
template <class Value>
std::errc without_plus(std::string_view word, Value* value) {
  if (word.size() > 1 && word[0] == '+' && word[1] != '-') word.remove_prefix(1);
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), *value);
  return stop == word.data() + word.size() ? error : std::errc::invalid_argument;
}

int64_t count_words(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++at)
    count += !is_space(text[at]) && (at == 0 || is_space(text[at - 1])) ? 1 : 0;
  return count;
}

}  // namespace

bool parse_whole(std::string_view word, int64_t* value) { return without_plus(word, value) == std::errc(); }

bool parse_real(std::string_view word, double* value) {
  const std::errc error = without_plus(word, value);
  // Beyond what a double holds: infinity, or 0.
  if (error == std::errc::result_out_of_range) *value = std::strtod(std::string(word).c_str(), nullptr);
  return error != std::errc::invalid_argument;
}

std::string shown(std::string_view text) {
  constexpr size_t kMost = 40;
  std::string result;
  for (const char c : text.substr(0, kMost))
    result += c >= ' ' && c <= '~' ? std::string(1, c) : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  return text.size() <= kMost ? result : result + "...";
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    if (is_space(line[at])) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < line.size() && !is_space(line[end])) ++end;
    words.push_back(line.substr(at, end - at));
    at = end;
  }
  return words;
}

bool TextReader::at_end() {
  skip();
  return at_ == text_.size();
}

std::string_view TextReader::line() {
  const size_t end = std::min(text_.find('\n', at_), text_.size());
  const std::string_view found = text_.substr(at_, end - at_);
  at_ = std::min(end + 1, text_.size());
  ++line_;
  return found.ends_with('\r') ? found.substr(0, found.size() - 1) : found;
}

void TextReader::skip_comments(char mark) {
  for (;;) {
    const std::string_view next = text_.substr(at_, text_.find('\n', at_) - at_);
    const bool is_blank = std::all_of(next.begin(), next.end(), is_space);
    if (at_ == text_.size() || (!is_blank && next[0] != mark)) return;
    line();
  }
}

int64_t TextReader::words_of_line() {
  skip();
  return count_words(text_.substr(at_, text_.find('\n', at_) - at_));
}

int64_t TextReader::words_of_rest() const { return count_words(text_.substr(at_)); }

void TextReader::skip() {
  for (; at_ < text_.size() && is_space(text_[at_]); ++at_) line_ += text_[at_] == '\n' ? 1 : 0;
}

std::string_view TextReader::word(std::string_view what) {
  skip();
  if (at_ == text_.size()) fail(fmt::format("{} is expected; the file ends early", what));
  size_t end = at_;
  while (end < text_.size() && !is_space(text_[end])) ++end;
  const std::string_view found = text_.substr(at_, end - at_);
  at_ = end;
  return found;
}

int64_t TextReader::integer(std::string_view what, int64_t least, int64_t most) {
  const std::string_view found = word(what);
  int64_t value = 0;
  if (!parse_whole(found, &value)) fail(fmt::format("{} is expected, not '{}'", what, shown(found)));
  if (value < least || value > most) fail(fmt::format("{} is {}; allowed are {} to {}", what, value, least, most));
  return value;
}

double TextReader::real(std::string_view what) {
  const std::string_view found = word(what);
  double value = 0;
  if (!parse_real(found, &value)) fail(fmt::format("{} is expected, not '{}'", what, shown(found)));
  return value;
}

void TextReader::fail_at(int line, const std::string& message) const {
  weft::fail(ErrorCode::invalid_file, "'{}', line {}: {}", name_, line, message);
}

void TextReader::refuse_at(int line, const std::string& message) const {
  weft::fail(ErrorCode::unsupported, "'{}', line {}: {}", name_, line, message);
}

}  // namespace weft::sparse
