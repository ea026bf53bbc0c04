// The string functions behind filters and methods.
#include <algorithm>
#include <clocale>
#include <cwctype>

#include "models/template/filters.h"
#include "models/template/white_space.h"
#include "models/utf8.h"

namespace weft::jinja {
namespace {

// Unicode's simple case mappings, whatever the program's own locale is.
locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

uint32_t map_case(uint32_t code, LetterCase letter_case) {
  if (code < 0x80) {
    if (letter_case == LetterCase::upper) return code >= 'a' && code <= 'z' ? code - 32 : code;
    return code >= 'A' && code <= 'Z' ? code + 32 : code;
  }
  const locale_t locale = unicode_locale();
  if (locale == nullptr) return code;
  const auto wide = static_cast<wint_t>(code);
  return static_cast<uint32_t>(letter_case == LetterCase::upper ? towupper_l(wide, locale) : towlower_l(wide, locale));
}

bool is_letter(uint32_t code) {
  if (code < 0x80) return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
  const locale_t locale = unicode_locale();
  return locale != nullptr && iswalpha_l(static_cast<wint_t>(code), locale) != 0;
}

template <class Map>
std::string map_characters(std::string_view text, Map&& map) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(utf8::character_length(text, at), 1);
    utf8::append(out, map(utf8::code_point(text, at, length)));
    at += length;
  }
  return out;
}

// Bytes of the line end that stands there; 0 where none does.
size_t line_end_at(std::string_view text, size_t at) {
  constexpr std::string_view kOneByte = "\n\v\f\r\x1c\x1d\x1e";
  const std::string_view rest = text.substr(at);
  if (kOneByte.find(rest[0]) != std::string_view::npos) return rest.starts_with("\r\n") ? 2 : 1;
  for (const std::string_view end : {"\u0085", "\u2028", "\u2029"})
    if (rest.starts_with(end)) return end.size();
  return 0;
}

}  // namespace

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end_bytes = line_end_at(text, at);
    if (end_bytes > 0) lines.push_back(text.substr(begin, at - begin));
    at += std::max<size_t>(end_bytes, 1);
    if (end_bytes > 0) begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string strip(std::string_view text, std::string_view set, bool left, bool right) {
  const std::vector<std::string_view> all = characters(text), members = characters(set);
  const auto in_set = [&](std::string_view c) { return std::find(members.begin(), members.end(), c) != members.end(); };
  size_t begin = 0, end = all.size();
  while (left && begin < end && in_set(all[begin])) ++begin;
  while (right && end > begin && in_set(all[end - 1])) --end;
  if (begin == end) return {};
  return {all[begin].data(), static_cast<size_t>(all[end - 1].data() + all[end - 1].size() - all[begin].data())};
}

std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count) {
  std::string out;
  const auto grow = [&](std::string_view part) {
    out += part;
    if (out.size() > kMaxString) fail("a text grows too long");
  };
  if (from.empty()) {  // between all characters
    for (const std::string_view c : characters(text)) {
      if (count-- != 0) grow(to);
      grow(c);
    }
    if (count != 0) grow(to);
    return out;
  }
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos && count != 0;
       found = text.find(from, at), --count) {
    grow(text.substr(at, found - at));
    grow(to);
    at = found + from.size();
  }
  grow(text.substr(at));
  return out;
}

std::string to_case(std::string_view text, LetterCase letter_case) {
  return map_characters(text, [&](uint32_t code) { return map_case(code, letter_case); });
}

std::string to_title(std::string_view text) {
  bool in_word = false;
  return map_characters(text, [&](uint32_t code) {
    const uint32_t mapped = map_case(code, in_word ? LetterCase::lower : LetterCase::upper);
    in_word = is_letter(code);
    return mapped;
  });
}

std::string capitalize_words(std::string_view text) {
  bool in_word = false;
  return map_characters(text, [&](uint32_t code) {
    const uint32_t mapped = map_case(code, in_word ? LetterCase::lower : LetterCase::upper);
    std::string character;
    utf8::append(character, code);
    in_word = std::string_view("-({[<").find(character) == std::string_view::npos && space_at(character, 0) == 0;
    return mapped;
  });
}

std::string capitalize(std::string_view text) {
  bool first = true;
  return map_characters(text, [&](uint32_t code) {
    return map_case(code, std::exchange(first, false) ? LetterCase::upper : LetterCase::lower);
  });
}

}  // namespace weft::jinja
