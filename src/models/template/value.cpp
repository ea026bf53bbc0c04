#include "models/template/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "models/utf8.h"

namespace weft::jinja {
namespace {

std::string real_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Writes c as an escape where Python and JSON have the same one.
bool add_escape(std::string& out, char c, char mark) {
  const char letter = c == '\n' ? 'n' : c == '\r' ? 'r' : c == '\t' ? 't' : c;
  if (letter == c && c != mark && c != '\\') return false;
  out += '\\';
  out += letter;
  return true;
}

std::string quote(std::string_view text) {
  const char mark = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  std::string out(1, mark);
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (add_escape(out, c, mark)) continue;
    if (byte < 0x20 || byte == 0x7f)
      out += fmt::format("\\x{:02x}", byte);
    else
      out += c;
  }
  return out + mark;
}

int deeper(int depth) {
  if (depth >= kMaxDepth) fail(fmt::format("values are nested deeper than {}", kMaxDepth));
  return depth + 1;
}

void check_storable(const Value& value) {
  if (value.name_space() != nullptr) fail("a namespace cannot be part of another value");
}

// Builds values while the JSON is read, so that its nesting and its mappings stay within bounds from the start.
class Reader : public nlohmann::json_sax<nlohmann::json> {
 public:
  Value result;

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(int64_t{value}); }
  bool number_unsigned(number_unsigned_t value) override {
    return value <= static_cast<uint64_t>(INT64_MAX) ? add(static_cast<int64_t>(value))
                                                     : add(static_cast<double>(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_array(size_t) override { return open(false); }
  bool start_object(size_t) override { return open(true); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_array() override { return close(List{std::move(open_.back().list)}); }
  bool end_object() override { return close(Dict{std::move(open_.back().dict)}); }
  bool parse_error(size_t at, const std::string&, const nlohmann::detail::exception&) override {
    fail(fmt::format("no JSON at byte {}", at));
  }

 private:
  struct Open {
    bool is_dict;
    List list = {};
    Dict dict = {};
    std::string key = {};
  };
  bool open(bool is_dict) {
    if (open_.size() + 1 >= static_cast<size_t>(kMaxDepth)) fail(fmt::format("nested deeper than {}", kMaxDepth));
    open_.push_back({is_dict});
    return true;
  }
  bool close(Value value) {
    open_.pop_back();
    return add(std::move(value));
  }
  bool add(Value value) {
    if (open_.empty()) {
      result = std::move(value);
    } else if (open_.back().is_dict) {
      set(open_.back().dict, open_.back().key, std::move(value));
    } else {
      open_.back().list.items.push_back(std::move(value));
    }
    return true;
  }
  std::vector<Open> open_;
};

std::string json_string(std::string_view text, bool ascii) {
  std::string out = "\"";
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(utf8::character_length(text, at), 1);
    const char c = text[at];
    const auto byte = static_cast<uint8_t>(c);
    const std::string_view character = text.substr(at, length);
    const size_t begin = std::exchange(at, at + length);
    if (add_escape(out, c, '"')) continue;
    if (c == '\b') {
      out += "\\b";
    } else if (c == '\f') {
      out += "\\f";
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else if (length > 1 && ascii) {
      const uint32_t code = utf8::code_point(text, begin, length);
      if (code < 0x10000) {
        out += fmt::format("\\u{:04x}", code);
      } else {
        out +=
            fmt::format("\\u{:04x}\\u{:04x}", 0xd800 + ((code - 0x10000) >> 10), 0xdc00 + ((code - 0x10000) & 0x3ff));
      }
    } else {
      out += character;
    }
  }
  return out + '"';
}

void write_json(const Value& value, const JsonStyle& style, int level, std::string& out) {
  if (out.size() > kMaxString) fail("a JSON text grows too long");
  const auto line = [&](int at) {
    if (style.indent < 0) return;
    out += '\n';
    out.append(static_cast<size_t>(at * style.indent), ' ');
  };
  const std::string comma = !style.item_separator.empty() ? style.item_separator : style.indent < 0 ? ", " : ",";
  const std::string colon = !style.key_separator.empty() ? style.key_separator : ": ";
  if (value.is_none()) {
    out += "null";
  } else if (const bool* boolean = value.boolean()) {
    out += *boolean ? "true" : "false";
  } else if (const std::string* text = value.string()) {
    out += json_string(*text, style.ascii);
  } else if (const double* real = value.real()) {
    out += std::isnan(*real) ? "NaN" : std::isinf(*real) ? (*real < 0 ? "-Infinity" : "Infinity") : real_text(*real);
  } else if (value.integer() != nullptr) {
    out += to_text(value);
  } else if (const List* list = value.list()) {
    out += '[';
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out += comma;
      line(level + 1);
      write_json(list->items[i], style, level + 1, out);
    }
    if (!list->items.empty()) line(level);
    out += ']';
  } else if (const Dict* dict = value.dict()) {
    auto items = dict->items;
    if (style.sort_keys)
      std::stable_sort(items.begin(), items.end(),
                       [](auto& a, auto& b) { return compare(value_of(a.first), value_of(b.first)) < 0; });
    out += '{';
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += comma;
      line(level + 1);
      out += json_string(items[i].first.text, style.ascii) + colon;
      write_json(items[i].second, style, level + 1, out);
    }
    if (!items.empty()) line(level);
    out += '}';
  } else {
    fail(fmt::format("a value of type {} has no JSON form", type_name(value)));
  }
}

}  // namespace

void fail(std::string message) { throw Failure{std::move(message)}; }

Value::Value(List list) {
  list.depth = 1, list.weight = 0;
  for (const Value& item : list.items) {
    check_storable(item);
    list.depth = std::max(list.depth, deeper(item.depth()));
    list.weight = std::min(kMaxWeight, list.weight + 1 + item.weight());
  }
  data_ = std::make_shared<const List>(std::move(list));
}

Value::Value(Dict dict) {
  dict.depth = 1, dict.weight = 0;
  for (const auto& [key, item] : dict.items) {
    check_storable(item);
    dict.depth = std::max(dict.depth, deeper(item.depth()));
    dict.weight = std::min(kMaxWeight, dict.weight + 1 + key.text.size() / 16 + item.weight());
  }
  data_ = std::make_shared<const Dict>(std::move(dict));
}

Value::Value(Method method) : data_(std::make_shared<const Method>(std::move(method))) {}

double Value::as_double() const {
  if (const bool* value = boolean()) return *value ? 1 : 0;
  if (const int64_t* value = integer()) return static_cast<double>(*value);
  return *real();
}

bool Value::truthy() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return as_double() != 0;
  if (string() != nullptr) return !string()->empty();
  if (list() != nullptr) return !list()->items.empty();
  if (dict() != nullptr) return !dict()->items.empty();
  return true;
}

int Value::depth() const {
  if (list() != nullptr) return list()->depth;
  if (dict() != nullptr) return dict()->depth;
  return method() != nullptr ? deeper(method()->self.depth()) : 0;
}

size_t Value::weight() const {
  if (string() != nullptr) return string()->size() / 16;
  if (list() != nullptr) return list()->weight;
  return dict() != nullptr ? dict()->weight : 0;
}

void Budget::charge(size_t steps) {
  if (steps > static_cast<size_t>(most_ - used_)) fail(fmt::format("the template takes more than {} steps", most_));
  used_ += static_cast<int64_t>(steps);
}

const Value* find(const Dict& dict, std::string_view key) {
  for (const auto& item : dict.items)
    if (item.first.is(key)) return &item.second;
  return nullptr;
}

const Value* find_key(const Dict& dict, const Value& key) {
  if (key.string() != nullptr) return find(dict, std::string_view(*key.string()));
  if (!key.is_number()) return nullptr;
  for (const auto& item : dict.items)
    if (item.first.is_integer && equal(value_of(item.first), key)) return &item.second;
  return nullptr;
}

Key key_of(const Value& value) {
  if (value.string() != nullptr) return *value.string();
  if (value.integer() == nullptr)
    fail(fmt::format("a key of type {} is not supported; strings and integers are", type_name(value)));
  return *value.integer();
}

Value value_of(const Key& key) {
  if (!key.is_integer) return key.text;
  int64_t number = 0;
  std::from_chars(key.text.data(), key.text.data() + key.text.size(), number);
  return number;
}

void set(Dict& dict, Key key, Value value) {
  for (auto& item : dict.items)
    if (item.first == key) {
      item.second = std::move(value);
      return;
    }
  if (dict.items.size() >= kMaxKeys) fail(fmt::format("a mapping has more than {} keys", kMaxKeys));
  dict.items.emplace_back(std::move(key), std::move(value));
}

bool equal(const Value& a, const Value& b) {
  if (a.integer() != nullptr && b.integer() != nullptr) return *a.integer() == *b.integer();
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.string() != nullptr && b.string() != nullptr) return *a.string() == *b.string();
  if (a.list() != nullptr && b.list() != nullptr) {
    const auto &x = a.list()->items, &y = b.list()->items;
    return a.list()->tuple == b.list()->tuple && x.size() == y.size() &&
           std::equal(x.begin(), x.end(), y.begin(), equal);
  }
  if (a.dict() != nullptr && b.dict() != nullptr) {
    if (a.dict()->items.size() != b.dict()->items.size()) return false;
    return std::all_of(a.dict()->items.begin(), a.dict()->items.end(), [&](const auto& item) {
      const Value* other = find_key(*b.dict(), value_of(item.first));
      return other != nullptr && equal(item.second, *other);
    });
  }
  if (a.name_space() != nullptr || b.name_space() != nullptr) return a.name_space() == b.name_space();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(const Value& a, const Value& b) {
  if (a.integer() != nullptr && b.integer() != nullptr)
    return *a.integer() < *b.integer() ? -1 : *a.integer() > *b.integer() ? 1 : 0;
  if (a.is_number() && b.is_number()) {
    const double x = a.as_double(), y = b.as_double();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.string() != nullptr && b.string() != nullptr) {
    const int order = a.string()->compare(*b.string());  // UTF-8 orders as its code points
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if (a.list() != nullptr && b.list() != nullptr) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i)
      if (!equal(x[i], y[i])) return compare(x[i], y[i]);
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  fail(fmt::format("{} and {} have no order", type_name(a), type_name(b)));
}

std::string to_text(const Value& value) {
  if (value.is_undefined()) return "";
  if (const std::string* text = value.string()) return *text;
  return to_repr(value);
}

std::string to_repr(const Value& value) {
  if (value.is_undefined()) return "Undefined";
  if (value.is_none()) return "None";
  if (const bool* boolean = value.boolean()) return *boolean ? "True" : "False";
  if (const int64_t* integer = value.integer()) return fmt::format("{}", *integer);
  if (const double* real = value.real()) return real_text(*real);
  if (const std::string* text = value.string()) return quote(*text);
  std::string out;
  if (const List* list = value.list()) {
    out = list->tuple ? "(" : "[";
    for (size_t i = 0; i < list->items.size(); ++i) {
      out += (i > 0 ? ", " : "") + to_repr(list->items[i]);
      if (out.size() > kMaxString) fail("a text grows too long");
    }
    return out + (list->tuple ? (list->items.size() == 1 ? ",)" : ")") : "]");
  }
  if (const Dict* dict = value.dict()) {
    out = "{";
    for (size_t i = 0; i < dict->items.size(); ++i) {
      out += (i > 0 ? ", " : "") + to_repr(value_of(dict->items[i].first)) + ": " + to_repr(dict->items[i].second);
      if (out.size() > kMaxString) fail("a text grows too long");
    }
    return out + "}";
  }
  fail(fmt::format("a value of type {} has no text", type_name(value)));
}

std::string type_name(const Value& value) {
  if (const auto* undefined = value.get_if<Undefined>()) return fmt::format("undefined ('{}')", undefined->name);
  if (value.is_none()) return "none";
  if (value.boolean() != nullptr) return "boolean";
  if (value.integer() != nullptr) return "integer";
  if (value.real() != nullptr) return "float";
  if (value.string() != nullptr) return "string";
  if (value.list() != nullptr) return "list";
  if (value.dict() != nullptr) return "mapping";
  return value.name_space() != nullptr ? "namespace" : "callable";
}

std::string to_json(const Value& value, const JsonStyle& style) {
  std::string out;
  write_json(value, style, 0, out);
  return out;
}

Value from_json(std::string_view text) {
  Reader reader;
  nlohmann::json::sax_parse(text, &reader);
  return std::move(reader.result);
}

Value object_from_json(std::string_view text) {
  Value value = from_json(text);
  if (value.dict() == nullptr) fail("no JSON object");
  return value;
}

size_t length_of(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; }));
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(utf8::character_length(text, at), 1);
    result.push_back(text.substr(at, length));
    at += length;
  }
  return result;
}

}  // namespace weft::jinja
