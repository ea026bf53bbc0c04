// Python's str.format (its library reference, "Format String Syntax").
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/ascii.h"
#include "models/template/filters.h"
#include "models/utf8.h"

namespace weft::jinja {
namespace {

constexpr int64_t kMostWidth = 65536, kMostPrecision = 1000;

bool among(std::string_view set, char c) { return set.find(c) != std::string_view::npos; }

// [[fill]align][sign][#][0][width][grouping][.precision][type]
struct Format {
  std::string fill = " ";
  char align = 0, sign = '-', grouping = 0, type = 0;  // 0: not given
  bool prefix = false, zeros = false;
  int64_t width = 0, precision = -1;
};

// The number at the beginning of `spec`, which it is taken off.
int64_t take_number(std::string_view& spec, int64_t most) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(spec.data(), spec.data() + spec.size(), number);
  if (error != std::errc() || number > most) fail(fmt::format("format: widths and precisions are 0 to {}", most));
  spec.remove_prefix(static_cast<size_t>(end - spec.data()));
  return number;
}

Format parse_format(std::string_view spec) {
  const std::string_view whole = spec;
  Format format;
  const auto take = [&](std::string_view set) -> char {
    if (spec.empty() || !among(set, spec.front())) return 0;
    const char taken = spec.front();
    spec.remove_prefix(1);
    return taken;
  };
  const std::vector<std::string_view> start = characters(spec.substr(0, 8));  // a character and the alignment after it
  if (start.size() > 1 && start[1].size() == 1 && among("<>=^", start[1][0])) {
    format.fill = start[0];
    spec.remove_prefix(start[0].size());
  }
  format.align = take("<>=^");
  if (const char sign = take("+- ")) format.sign = sign;
  format.prefix = take("#") != 0;
  if (take("0") != 0) {
    format.zeros = true;
    if (format.align == 0) format.fill = "0";
  }
  if (!spec.empty() && is_digit(spec.front())) format.width = take_number(spec, kMostWidth);
  format.grouping = take(",_");
  if (take(".") != 0) {
    if (spec.empty() || !is_digit(spec.front())) fail("format: a precision is missing behind '.'");
    format.precision = take_number(spec, kMostPrecision);
  }
  format.type = take("scdnboxXeEfFgG%");
  if (!spec.empty()) fail(fmt::format("format: '{}' is not supported in '{}'", spec, whole));
  return format;
}

// `sign` (with a number's prefix) and `body`, at the format's width.
std::string padded(const Format& format, char align, std::string sign, std::string_view body) {
  const auto length = static_cast<int64_t>(length_of(sign) + length_of(body));
  const int64_t missing = std::max<int64_t>(format.width - length, 0);
  const int64_t before = align == '>' || align == '=' ? missing : align == '^' ? missing / 2 : 0;
  const auto fill = [&](int64_t count) {
    std::string text;
    for (int64_t i = 0; i < count; ++i) text += format.fill;
    return text;
  };
  std::string out = align == '=' ? sign + fill(before) : fill(before) + sign;
  out += body;
  return out += fill(missing - before);
}

std::string format_string(const Format& format, std::string_view text) {
  if ((format.type != 0 && format.type != 's') || format.sign != '-' || format.prefix || format.grouping != 0 ||
      format.align == '=')
    fail("format: a string takes a width, an alignment and a precision alone");
  std::string shown;
  int64_t left = format.precision;
  if (left >= 0 && text.size() > static_cast<size_t>(left) * 4) {  // a character has four bytes at most
    size_t end = static_cast<size_t>(left) * 4;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
    text = text.substr(0, end);
  }
  for (const std::string_view c : characters(text)) {
    if (left-- == 0) break;
    shown += c;
  }
  return padded(format, format.align == 0 ? '<' : format.align, "", shown);
}

// With a mark between groups of three digits before the point.
std::string grouped(std::string digits, char mark) {
  if (mark == 0) return digits;
  const size_t whole = std::min(digits.find_first_not_of("0123456789"), digits.size());
  for (size_t at = whole; at > 3; at -= 3) digits.insert(at - 3, 1, mark);
  return digits;
}

std::string format_number(const Format& format, bool is_negative, std::string prefix, std::string digits) {
  if (format.zeros && format.grouping != 0 && format.width > 0) fail("format: zeros beside groups are not supported");
  const std::string sign = is_negative ? "-" : format.sign == '-' ? "" : std::string(1, format.sign);
  const char align = format.align != 0 ? format.align : format.zeros ? '=' : '>';
  return padded(format, align, sign + prefix, grouped(std::move(digits), format.grouping));
}

std::string format_character(const Format& format, int64_t number) {
  if (format.sign != '-' || format.prefix) fail("format: 'c' takes neither a sign nor '#'");
  if (number < 0 || number > 0x10ffff || (number >= 0xd800 && number < 0xe000))
    fail(fmt::format("format: {} is the number of no character", number));
  std::string text;
  utf8::append(text, static_cast<uint32_t>(number));
  return format_number(format, false, "", text);
}

std::string format_integer(const Format& format, int64_t number) {
  if (format.precision >= 0) fail("format: an integer takes no precision");
  if (format.type == 'c') return format_character(format, number);
  const uint64_t size = number < 0 ? 0 - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
  if (format.grouping != 0 && format.type != 0 && format.type != 'd') fail("format: groups are of decimal digits");
  switch (format.type) {
    case 'b': return format_number(format, number < 0, format.prefix ? "0b" : "", fmt::format("{:b}", size));
    case 'o': return format_number(format, number < 0, format.prefix ? "0o" : "", fmt::format("{:o}", size));
    case 'x': return format_number(format, number < 0, format.prefix ? "0x" : "", fmt::format("{:x}", size));
    case 'X': return format_number(format, number < 0, format.prefix ? "0X" : "", fmt::format("{:X}", size));
    default: return format_number(format, number < 0, "", fmt::format("{}", size));
  }
}

// As repr() with so many digits: one at least stands behind the point.
std::string short_real(double size, int64_t precision) {
  if (!std::isfinite(size)) return fmt::format("{}", size);
  const int64_t digits = std::max<int64_t>(precision, 1);
  std::string scientific = fmt::format("{:.{}e}", size, digits - 1);
  const size_t e = scientific.find('e');
  const int exponent = std::atoi(scientific.c_str() + e + 1);
  const auto trimmed = [](std::string text, size_t least) {
    while (text.size() > least && text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text;
  };
  if (exponent < -4 || exponent >= digits - 1) {
    const std::string mantissa = scientific.substr(0, e);
    return (mantissa.find('.') == std::string::npos ? mantissa : trimmed(mantissa, 1)) + scientific.substr(e);
  }
  const std::string fixed = fmt::format("{:.{}f}", size, digits - 1 - exponent);
  return trimmed(fixed, fixed.find('.') + 2);
}

std::string format_real(const Format& format, double number) {
  if (format.prefix) fail("format: '#' of a float is not supported");
  if (format.type == 'n' && format.grouping != 0) fail("format: 'n' takes no groups");
  const bool is_negative = std::signbit(number) && !std::isnan(number);
  const double size = std::abs(number);
  const auto precision = static_cast<int>(format.precision < 0 ? 6 : format.precision);
  const auto digits = [&]() -> std::string {
    switch (format.type) {
      case 'e': return fmt::format("{:.{}e}", size, precision);
      case 'E': return fmt::format("{:.{}E}", size, precision);
      case 'f': return fmt::format("{:.{}f}", size, precision);
      case 'F': return fmt::format("{:.{}F}", size, precision);
      case 'n':  // of the C locale, which has no groups
      case 'g': return fmt::format("{:.{}g}", size, std::max(precision, 1));
      case 'G': return fmt::format("{:.{}G}", size, std::max(precision, 1));
      case '%': return fmt::format("{:.{}f}%", size * 100, precision);
      default: return format.precision < 0 ? to_text(size) : short_real(size, format.precision);
    }
  };
  return format_number(format, is_negative, "", digits());
}

std::string format_value(const Value& value, std::string_view spec) {
  if (spec.empty()) return to_text(value);
  const Format format = parse_format(spec);
  if (value.string() != nullptr) return format_string(format, *value.string());
  if (!value.is_number()) fail(fmt::format("format: a value of type {} takes no format", type_name(value)));
  if (format.type == 's') fail("format: 's' is for strings");
  if (value.real() == nullptr && !among("eEfFgG%", format.type == 0 ? 'd' : format.type))
    return format_integer(format, value.integer() != nullptr ? *value.integer() : int64_t{*value.boolean()});
  if (among("cdboxX", format.type == 0 ? 'g' : format.type))
    fail(fmt::format("format: '{}' is for integers", format.type));
  return format_real(format, value.as_double());
}

// As ascii() shows what repr() gives.
std::string in_ascii(std::string_view text) {
  std::string out;
  for (const std::string_view c : characters(text)) {
    const bool is_whole = utf8::character_length(c, 0) == c.size();
    const uint32_t code = is_whole ? utf8::code_point(c, 0, c.size()) : static_cast<unsigned char>(c[0]);
    if (code < 0x80)
      out += c;
    else
      out += code < 0x100     ? fmt::format("\\x{:02x}", code)
             : code < 0x10000 ? fmt::format("\\u{:04x}", code)
                              : fmt::format("\\U{:08x}", code);
  }
  return out;
}

class Formatter {
 public:
  explicit Formatter(CallArguments& arguments) : arguments_(arguments) {}

  // Fields may stand in formats of fields, once.
  std::string format(std::string_view text, int depth = 0) {
    if (depth > 1) fail("format: fields are nested too deep");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      const char c = text[at];
      if ((c == '{' || c == '}') && text.substr(at + 1).starts_with(c)) {
        out += c;
        at += 2;
      } else if (c == '}') {
        fail("format: a single '}'; write '}}' for the character");
      } else if (c == '{') {
        const size_t end = end_of_field(text, at + 1);
        out += field(text.substr(at + 1, end - at - 1), depth);
        at = end + 1;
      } else {
        out += c;
        ++at;
      }
      if (out.size() > kMaxString) fail("a text grows too long");
    }
    return out;
  }

 private:
  static size_t end_of_field(std::string_view text, size_t at) {
    for (int open = 1; at < text.size(); ++at) {
      if (text[at] == '{') ++open;
      if (text[at] == '}' && --open == 0) return at;
    }
    fail("format: a '{' is not closed; write '{{' for the character");
  }

  std::string field(std::string_view text, int depth) {
    const size_t name_end = std::min(text.find_first_of("!:"), text.size());
    Value value = named(text.substr(0, name_end));
    text.remove_prefix(name_end);
    if (text.starts_with('!')) {
      const char conversion = text.size() > 1 ? text[1] : ' ';
      if (!among("sra", conversion))
        fail(fmt::format("format: '!{}' is no conversion; they are !s, !r and !a", conversion));
      value = conversion == 's' ? to_text(value) : conversion == 'r' ? to_repr(value) : in_ascii(to_repr(value));
      text.remove_prefix(2);
    }
    if (!text.empty() && text.front() != ':') fail("format: ':' is expected behind a conversion");
    return format_value(value, text.empty() ? "" : format(text.substr(1), depth + 1));
  }

  // "", "0", "name", and then attributes and items: "name.part[0][key]".
  Value named(std::string_view path) {
    const size_t end = std::min(path.find_first_of(".["), path.size());
    Value value = argument(path.substr(0, end));
    path.remove_prefix(end);
    while (!path.empty()) {
      const bool is_item = path.front() == '[';
      const size_t stop = is_item ? path.find(']') : std::min(path.find_first_of(".[", 1), path.size());
      if (stop == std::string_view::npos || (!is_item && path.front() != '.') || stop == 1)
        fail("format: a field's name is a name with .attributes and [items]");
      const std::string part(path.substr(1, stop - 1));
      const std::optional<int64_t> index = is_item ? number(part) : std::nullopt;
      value = index ? item_of(value, *index) : is_item ? item_of(value, part) : attribute_of(value, part);
      path.remove_prefix(is_item ? stop + 1 : stop);
    }
    return value;
  }

  static std::optional<int64_t> number(std::string_view text) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || !is_digit(text[0]) || error != std::errc() || end != text.data() + text.size())
      return std::nullopt;
    return value;
  }

  const Value& argument(std::string_view name) {
    std::optional<int64_t> index = number(name);
    if (name.empty() || index) {
      const Counting counting = name.empty() ? Counting::by_order : Counting::by_number;
      if (counting_ != Counting::open && counting_ != counting)
        fail("format: fields are numbered, or take their numbers from their order");
      counting_ = counting;
      if (!index) index = next_++;
      const std::vector<Value>& values = arguments_.positional();
      if (*index >= static_cast<int64_t>(values.size()))
        fail(fmt::format("format: there is no argument {}; {} were given", *index, values.size()));
      return values[static_cast<size_t>(*index)];
    }
    for (const auto& [key, value] : arguments_.named())
      if (key == name) return value;
    fail(fmt::format("format: there is no argument '{}'", name));
  }

  enum class Counting { open, by_order, by_number };
  CallArguments& arguments_;
  Counting counting_ = Counting::open;
  int64_t next_ = 0;
};

}  // namespace

std::string format_text(std::string_view text, CallArguments& arguments) {
  std::string out = Formatter(arguments).format(text);
  arguments.ignore();  // Python's takes more than the text names
  return out;
}

}  // namespace weft::jinja
