#include "sparse/formats/format.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <functional>

#include "base/check.h"
#include "base/names.h"

namespace weft::sparse {
namespace {

struct KnownFormat {
  Format::Kind kind;
  const char* name;
  std::vector<const char*> numbers;  // what they are called
};

// A name that stands twice takes either count of numbers.
const std::vector<KnownFormat>& kinds_of_formats() {
  using Kind = Format::Kind;
  static const std::vector<KnownFormat> all = {
      {Kind::csr, "csr", {}},        {Kind::csc, "csc", {}},          {Kind::coo, "coo", {}},
      {Kind::dcsr, "dcsr", {}},      {Kind::dia, "dia", {}},          {Kind::ell, "ell", {"width"}},
      {Kind::bsr, "bsr", {"block"}}, {Kind::dbsr, "dbsr", {"block"}}, {Kind::sr_bcrs, "sr_bcrs", {"t", "g"}},
      {Kind::hyb, "hyb", {"c"}},     {Kind::hyb, "hyb", {"c", "k"}}};
  return all;
}

// Reads "name(1, 2), name()"; spaces stand anywhere between words.
class FormatReader {
 public:
  explicit FormatReader(std::string_view text) : text_(text) {}

  Formats read() {
    Formats formats;
    do {
      formats.push_back(read_one());
    } while (accept(','));
    skip_space();
    if (at_ != text_.size()) fail_at(at_, "a comma or the end is expected");
    return formats;
  }

 private:
  Format read_one() {
    skip_space();
    const size_t begin = at_;
    while (at_ < text_.size() && (std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 || text_[at_] == '_'))
      ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) fail_at(begin, "the name of a format is expected");
    if (!accept('(')) fail_at(at_, "'(' is expected");
    std::vector<int64_t> numbers;
    if (!accept(')')) {
      do {
        numbers.push_back(read_number());
      } while (accept(','));
      if (!accept(')')) fail_at(at_, "',' or ')' is expected");
    }
    const std::optional<Format> format = format_named(name, numbers);
    if (!format) fail_at(begin, fmt::format("'{}' is no format", text_.substr(begin, at_ - begin)));
    return *format;
  }

  int64_t read_number() {
    skip_space();
    int64_t number = 0;
    const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), number);
    if (error != std::errc()) fail_at(at_, "an integer is expected");
    at_ = static_cast<size_t>(end - text_.data());
    return number;
  }

  bool accept(char symbol) {
    skip_space();
    if (at_ == text_.size() || text_[at_] != symbol) return false;
    ++at_;
    return true;
  }
  void skip_space() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }

  [[noreturn]] void fail_at(size_t at, const std::string& problem) const {
    fail(ErrorCode::invalid_argument,
         "format '{}', column {}: {}; allowed are {}, and lists of these, as bsr(4), coo()", text_, at + 1, problem,
         known_formats());
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

std::optional<Format> format_named(std::string_view name, const std::vector<int64_t>& numbers) {
  for (const KnownFormat& format : kinds_of_formats())
    if (format.name == name && format.numbers.size() == numbers.size()) return Format{format.kind, numbers};
  return std::nullopt;
}

std::string known_formats() {
  std::string text;
  for (const KnownFormat& format : kinds_of_formats())
    text += fmt::format("{}{}({})",
                        text.empty()                            ? ""
                        : &format == &kinds_of_formats().back() ? " and "
                                                                : ", ",
                        format.name, fmt::join(format.numbers, ", "));
  return text;
}

std::string to_text(const Format& format) {
  if (format.kind == Format::Kind::defined) return format.name + "()";
  const auto named = std::find_if(kinds_of_formats().begin(), kinds_of_formats().end(),
                                  [&](const KnownFormat& k) { return k.kind == format.kind; });
  return fmt::format("{}({})", named->name, fmt::join(format.numbers, ", "));
}

std::string to_text(const Formats& formats) {
  return formats.empty() ? "csr" : joined(formats, [](const Format& format) { return to_text(format); });
}

Formats parse_formats(std::string_view text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  if (begin != text.npos && text.substr(begin, end + 1 - begin) == "csr") return {};
  return FormatReader(text).read();
}

size_t hash_of(const Formats& formats) {
  size_t hash = 0;
  for (const Format& format : formats) {
    hash = hash * 1000003 + static_cast<size_t>(format.kind) + std::hash<std::string>()(format.name);
    for (const int64_t number : format.numbers) hash = hash * 1000003 + static_cast<size_t>(number);
  }
  return hash;
}

}  // namespace weft::sparse
