#include "models/template/filters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "base/names.h"
#include "models/template/white_space.h"

namespace weft::jinja {

const Value* CallArguments::next(std::string_view name) {
  if (at_ < positional_.size()) return &positional_[at_++];
  for (const auto& [key, value] : named_)
    if (key == name) {
      ++named_taken_;
      return &value;
    }
  return nullptr;
}

const Value& CallArguments::required(std::string_view name) {
  const Value* value = next(name);
  if (value == nullptr) fail(fmt::format("{}: argument '{}' is missing", function_, name));
  return *value;
}

std::string CallArguments::text(std::string_view name, std::string_view otherwise) {
  const Value* value = next(name);
  if (value == nullptr || value->is_none()) return std::string(otherwise);
  if (value->string() == nullptr)
    fail(fmt::format("{}: '{}' must be a string, not {}", function_, name, type_name(*value)));
  return *value->string();
}

int64_t CallArguments::integer(std::string_view name, int64_t otherwise) {
  const Value* value = next(name);
  if (value == nullptr || value->is_none()) return otherwise;
  if (value->boolean() != nullptr) return *value->boolean() ? 1 : 0;
  if (value->integer() == nullptr)
    fail(fmt::format("{}: '{}' must be an integer, not {}", function_, name, type_name(*value)));
  return *value->integer();
}

bool CallArguments::boolean(std::string_view name, bool otherwise) {
  const Value* value = next(name);
  return value == nullptr ? otherwise : value->truthy();
}

std::vector<Value> CallArguments::rest() {
  std::vector<Value> left(positional_.begin() + static_cast<std::ptrdiff_t>(at_), positional_.end());
  at_ = positional_.size();
  return left;
}

void CallArguments::done() const {
  if (at_ < positional_.size()) fail(fmt::format("{} takes {} arguments, not {}", function_, at_, positional_.size()));
  if (named_taken_ < named_.size()) {
    const std::string names = joined(named_, [](const auto& item) { return item.first; });
    fail(fmt::format("{}: one of the named arguments ({}) is not supported", function_, names));
  }
}

namespace {

using FilterFunction = Value (*)(const Value& value, CallArguments& arguments);
using TestFunction = bool (*)(const Value& value, CallArguments& arguments);

const std::string& text_of(const Value& value, const CallArguments& arguments) {
  if (value.string() == nullptr) fail(fmt::format("{} needs a string, not {}", arguments.function(), type_name(value)));
  return *value.string();
}

constexpr size_t kMostBytes = 4;  // of a character

// What holds the last character, and begins with a character.
std::string_view last_bytes(std::string_view text) {
  const auto continues = [&](size_t at) { return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80; };
  size_t begin = text.size() - 1;
  while (begin > 0 && text.size() - begin < kMostBytes && continues(begin)) --begin;
  return text.substr(begin);
}

// "a.b.0" of a value, as map(attribute=...) and its kin read it.
Value path_of(const Value& value, std::string_view path) {
  Value at = value;
  while (true) {
    const size_t dot = path.find('.');
    const std::string part(path.substr(0, dot));
    int64_t index = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    at = error == std::errc() && end == part.data() + part.size() ? item_of(at, index) : item_of(at, part);
    if (dot == std::string_view::npos) return at;
    path.remove_prefix(dot + 1);
  }
}

Value make_list(std::vector<Value> items) {
  List list;
  list.items = std::move(items);
  return list;
}

Value length(const Value& value, CallArguments& arguments) {
  if (const std::string* text = value.string()) return length_of(*text);
  if (value.is_number() || value.is_none()) fail(fmt::format("a value of type {} has no length", type_name(value)));
  if (value.list() != nullptr) return value.list()->items.size();
  return items_of(value, arguments.budget()).size();
}

Value json(const Value& value, CallArguments& arguments) {
  JsonStyle style;
  style.indent = -1;
  if (const Value* indent = arguments.next("indent"); indent != nullptr && !indent->is_none()) {
    if (indent->integer() == nullptr || *indent->integer() < 0 || *indent->integer() > 64)
      fail("tojson: indent must be 0 to 64");
    style.indent = static_cast<int>(*indent->integer());
  }
  style.ascii = arguments.boolean("ensure_ascii", false);
  style.sort_keys = arguments.boolean("sort_keys", false);
  if (const Value* separators = arguments.next("separators"); separators != nullptr && !separators->is_none()) {
    const std::vector<Value> both = items_of(*separators, arguments.budget());
    if (both.size() != 2 || both[0].string() == nullptr || both[1].string() == nullptr)
      fail("tojson: separators must be two strings");
    style.item_separator = *both[0].string();
    style.key_separator = *both[1].string();
    if (style.item_separator.empty() || style.key_separator.empty()) fail("tojson: separators must not be empty");
  }
  return to_json(value, style);
}

Value parse_json(const Value& value, CallArguments& arguments) {
  const std::string& text = text_of(value, arguments);
  try {
    return from_json(text);
  } catch (const Failure& failure) {
    fail(fmt::format("{}: {}", arguments.function(), failure.message));
  }
}

Value default_value(const Value& value, CallArguments& arguments) {
  const Value* otherwise = arguments.next("default_value");
  const bool also_false = arguments.boolean("boolean", false);
  const bool missing = value.is_undefined() || (also_false && !value.truthy());
  return missing ? (otherwise != nullptr ? *otherwise : Value("")) : value;
}

Value join(const Value& value, CallArguments& arguments) {
  const std::string separator = arguments.text("d", "");
  const std::string attribute = arguments.text("attribute", "");
  std::string joined;
  bool first = true;
  for (const Value& item : items_of(value, arguments.budget())) {
    joined +=
        (std::exchange(first, false) ? "" : separator) + to_text(attribute.empty() ? item : path_of(item, attribute));
    if (joined.size() > kMaxString) fail("a text grows too long");
  }
  return joined;
}

// Of a text without taking it apart.
Value first(const Value& value, CallArguments& arguments) {
  if (value.string() != nullptr && !value.string()->empty())
    return characters(std::string_view(*value.string()).substr(0, kMostBytes)).front();
  const std::vector<Value> items = items_of(value, arguments.budget());
  return items.empty() ? Value::undefined("first item of nothing") : items.front();
}
Value last(const Value& value, CallArguments& arguments) {
  if (value.string() != nullptr && !value.string()->empty()) return characters(last_bytes(*value.string())).back();
  const std::vector<Value> items = items_of(value, arguments.budget());
  return items.empty() ? Value::undefined("last item of nothing") : items.back();
}

Value map_items(const Value& value, CallArguments& arguments) {
  std::vector<Value> result;
  if (!value.truthy()) {  // none too: as in Jinja, nothing is asked of what is not there
    arguments.ignore();
    return make_list({});
  }
  const bool by_attribute = std::any_of(arguments.named().begin(), arguments.named().end(),
                                        [](const auto& item) { return item.first == "attribute"; });
  if (by_attribute) {
    const Value* otherwise = nullptr;
    const std::string attribute = [&] {
      for (const auto& [name, given] : arguments.named())
        if (name == "attribute") return given.string() != nullptr ? *given.string() : to_text(given);
      return std::string();
    }();
    (void)arguments.next("attribute");
    otherwise = arguments.next("default");
    for (const Value& item : items_of(value, arguments.budget())) {
      Value found = path_of(item, attribute);
      result.push_back(found.is_undefined() && otherwise != nullptr ? *otherwise : std::move(found));
    }
    return make_list(std::move(result));
  }
  const std::string filter = arguments.text("filter", "");
  if (!is_filter(filter)) fail(fmt::format("map: filter '{}' is not supported", filter));
  const std::vector<Value> rest = arguments.rest();
  for (const Value& item : items_of(value, arguments.budget())) {
    CallArguments inner(filter, rest, {}, arguments.budget());
    result.push_back(apply_filter(filter, item, inner));
  }
  return make_list(std::move(result));
}

Value filter_items(const Value& value, CallArguments& arguments, bool by_attribute, bool keep) {
  if (!value.truthy()) {
    arguments.ignore();
    return make_list({});
  }
  const std::string attribute = by_attribute ? arguments.text("attribute", "") : "";
  const std::string test = arguments.text("test", "");
  if (!test.empty() && !is_test(test)) fail(fmt::format("{}: test '{}' is not supported", arguments.function(), test));
  const std::vector<Value> rest = arguments.rest();
  std::vector<Value> result;
  for (const Value& item : items_of(value, arguments.budget())) {
    const Value tested = by_attribute ? path_of(item, attribute) : item;
    bool holds = tested.truthy();
    if (!test.empty()) {
      CallArguments inner(test, rest, {}, arguments.budget());
      holds = apply_test(test, tested, inner);
    }
    if (holds == keep) result.push_back(item);
  }
  return make_list(std::move(result));
}

Value list(const Value& value, CallArguments& arguments) { return make_list(items_of(value, arguments.budget())); }

Value items(const Value& value, CallArguments& arguments) {
  if (value.is_undefined()) return make_list({});
  if (value.dict() == nullptr) fail(fmt::format("items needs a mapping, not {}", type_name(value)));
  CallArguments none("items", {}, {}, arguments.budget());
  return call_method(Method{value, "items"}, none);
}

bool less(const Value& a, const Value& b, bool case_sensitive) {
  if (!case_sensitive && a.string() != nullptr && b.string() != nullptr)
    return to_case(*a.string(), LetterCase::lower) < to_case(*b.string(), LetterCase::lower);
  return compare(a, b) < 0;
}

Value sort(const Value& value, CallArguments& arguments) {
  const bool reverse = arguments.boolean("reverse", false);
  const bool case_sensitive = arguments.boolean("case_sensitive", false);
  const std::string attribute = arguments.text("attribute", "");
  std::vector<Value> sorted = items_of(value, arguments.budget());
  const auto key = [&](const Value& item) { return attribute.empty() ? item : path_of(item, attribute); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
    return reverse ? less(key(b), key(a), case_sensitive) : less(key(a), key(b), case_sensitive);
  });
  return make_list(std::move(sorted));
}

Value dictsort(const Value& value, CallArguments& arguments) {
  const bool case_sensitive = arguments.boolean("case_sensitive", false);
  const std::string by = arguments.text("by", "key");
  if (by != "key" && by != "value") fail("dictsort: 'by' must be 'key' or 'value'");
  const size_t part = by == "key" ? 0 : 1;
  const bool reverse = arguments.boolean("reverse", false);
  CallArguments none("items", {}, {}, arguments.budget());
  std::vector<Value> sorted = items_of(items(value, none), arguments.budget());
  const auto key = [&](const Value& pair) -> const Value& { return pair.list()->items[part]; };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const Value& a, const Value& b) {
    return reverse ? less(key(b), key(a), case_sensitive) : less(key(a), key(b), case_sensitive);
  });
  return make_list(std::move(sorted));
}

Value unique(const Value& value, CallArguments& arguments) {
  std::vector<Value> result;
  std::set<std::string> seen;
  for (const Value& item : items_of(value, arguments.budget()))
    if (seen.insert(item.string() != nullptr ? to_repr(to_case(*item.string(), LetterCase::lower)) : to_repr(item))
            .second)
      result.push_back(item);
  return make_list(std::move(result));
}

Value reverse(const Value& value, CallArguments& arguments) {
  std::vector<Value> reversed = items_of(value, arguments.budget());
  std::reverse(reversed.begin(), reversed.end());
  if (value.string() == nullptr) return make_list(std::move(reversed));
  std::string text;
  for (const Value& item : reversed) text += *item.string();
  return text;
}

Value to_integer(const Value& value, CallArguments& arguments) {
  const int64_t otherwise = arguments.integer("default", 0);
  if (value.is_number() && value.real() == nullptr)
    return value.boolean() != nullptr ? int64_t{*value.boolean()} : *value.integer();
  double number = 0;
  if (value.real() != nullptr) {
    number = *value.real();
  } else if (value.string() != nullptr) {
    const std::string text = strip(*value.string(), kSpaceAroundNumbers, true, true);
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    int64_t integer = 0;
    const auto [end, error] = std::from_chars(begin, text.data() + text.size(), integer);
    if (error == std::errc() && end == text.data() + text.size()) return integer;
    const auto [real_end, real_error] = std::from_chars(begin, text.data() + text.size(), number);
    if (real_error != std::errc() || real_end != text.data() + text.size()) return otherwise;
  } else {
    return otherwise;
  }
  return std::abs(number) < 9e18 ? Value(static_cast<int64_t>(number)) : Value(otherwise);
}

Value to_real(const Value& value, CallArguments& arguments) {
  const Value* given = arguments.next("default");
  const Value otherwise = given != nullptr ? *given : Value(0.0);
  if (value.is_number()) return value.as_double();
  if (value.string() == nullptr) return otherwise;
  const std::string text = strip(*value.string(), kSpaceAroundNumbers, true, true);
  double number = 0;
  const auto [end, error] =
      std::from_chars(text.data() + (text.starts_with('+') ? 1 : 0), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? Value(number) : otherwise;
}

Value absolute(const Value& value, CallArguments&) {
  if (value.integer() != nullptr && *value.integer() != INT64_MIN) return std::abs(*value.integer());
  if (!value.is_number()) fail(fmt::format("abs needs a number, not {}", type_name(value)));
  return std::abs(value.as_double());
}

Value round(const Value& value, CallArguments& arguments) {
  const int64_t digits = arguments.integer("precision", 0);
  const std::string method = arguments.text("method", "common");
  if (!value.is_number()) fail(fmt::format("round needs a number, not {}", type_name(value)));
  if (digits < 0 || digits > 15) fail("round: precision must be 0 to 15");
  if (method == "common") {
    if (value.real() == nullptr) return value.boolean() != nullptr ? int64_t{*value.boolean()} : *value.integer();
    return std::strtod(fmt::format("{:.{}f}", *value.real(), digits).c_str(),
                       nullptr);  // halves to even, of the exact value
  }
  const double scale = std::pow(10.0, static_cast<double>(digits)), scaled = value.as_double() * scale;
  if (method == "ceil") return std::ceil(scaled) / scale;
  if (method == "floor") return std::floor(scaled) / scale;
  fail("round: method must be 'common', 'ceil' or 'floor'");
}

Value sum(const Value& value, CallArguments& arguments) {
  const std::string attribute = arguments.text("attribute", "");
  int64_t whole = arguments.integer("start", 0);
  double total = 0;
  bool real = false;
  for (const Value& item : items_of(value, arguments.budget())) {
    const Value number = attribute.empty() ? item : path_of(item, attribute);
    if (!number.is_number()) fail(fmt::format("sum needs numbers, not {}", type_name(number)));
    if (number.integer() == nullptr) {
      real = real || number.real() != nullptr;
      total += number.as_double();
    } else if (__builtin_add_overflow(whole, *number.integer(), &whole)) {
      fail("sum: the number grows too large");
    }
  }
  return real ? Value(total + static_cast<double>(whole)) : Value(whole + static_cast<int64_t>(total));
}

Value extreme(const Value& value, CallArguments& arguments, bool largest) {
  const std::vector<Value> all = items_of(value, arguments.budget());
  if (all.empty()) return Value::undefined("extreme of nothing");
  const Value* best = &all.front();
  for (const Value& item : all)
    if (largest ? less(*best, item, false) : less(item, *best, false)) best = &item;
  return *best;
}

Value indent(const Value& value, CallArguments& arguments) {
  const Value* width = arguments.next("width");
  const bool first_too = arguments.boolean("first", false), blank_too = arguments.boolean("blank", false);
  std::string margin(4, ' ');
  if (width != nullptr && width->string() != nullptr) margin = *width->string();
  if (width != nullptr && width->integer() != nullptr) {
    if (*width->integer() < 0 || *width->integer() > 1000) fail("indent: width must be 0 to 1000");
    margin.assign(static_cast<size_t>(*width->integer()), ' ');
  }
  const std::string text = text_of(value, arguments) + '\n';  // so that the end of the last line begins an empty one
  std::string out = first_too ? margin : "";
  bool begin = true;
  for (const std::string_view line : lines_of(text)) {
    if (!begin) out += '\n';
    if (!begin && (blank_too || !line.empty())) out += margin;
    out += line;
    if (out.size() > kMaxString) fail("a text grows too long");
    begin = false;
  }
  return out;
}

Value escape(const Value& value, CallArguments&) {
  std::string out;
  for (const char c : to_text(value)) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

const std::map<std::string_view, FilterFunction>& filter_table() {
  static const std::map<std::string_view, FilterFunction> table = {
      {"abs", absolute},
      {"capitalize", [](const Value& v, CallArguments&) -> Value { return capitalize(to_text(v)); }},
      {"count", length},
      {"d", default_value},
      {"default", default_value},
      {"dictsort", dictsort},
      {"e", escape},
      {"escape", escape},
      {"first", first},
      {"float", to_real},
      {"from_json", parse_json},
      {"fromjson", parse_json},
      {"indent", indent},
      {"int", to_integer},
      {"items", items},
      {"join", join},
      {"last", last},
      {"length", length},
      {"list", list},
      {"lower", [](const Value& v, CallArguments&) -> Value { return to_case(to_text(v), LetterCase::lower); }},
      {"map", map_items},
      {"max", [](const Value& v, CallArguments& a) -> Value { return extreme(v, a, true); }},
      {"min", [](const Value& v, CallArguments& a) -> Value { return extreme(v, a, false); }},
      {"reject", [](const Value& v, CallArguments& a) -> Value { return filter_items(v, a, false, false); }},
      {"rejectattr", [](const Value& v, CallArguments& a) -> Value { return filter_items(v, a, true, false); }},
      {"replace",
       [](const Value& v, CallArguments& a) -> Value {
         const std::string from = a.text("old", ""), to = a.text("new", "");
         return replace_text(to_text(v), from, to, a.integer("count", -1));
       }},
      {"reverse", reverse},
      {"round", round},
      {"safe", [](const Value& v, CallArguments&) -> Value { return to_text(v); }},
      {"select", [](const Value& v, CallArguments& a) -> Value { return filter_items(v, a, false, true); }},
      {"selectattr", [](const Value& v, CallArguments& a) -> Value { return filter_items(v, a, true, true); }},
      {"sort", sort},
      {"string", [](const Value& v, CallArguments&) -> Value { return to_text(v); }},
      {"sum", sum},
      {"title", [](const Value& v, CallArguments&) -> Value { return capitalize_words(to_text(v)); }},
      {"tojson", json},
      {"trim",
       [](const Value& v, CallArguments& a) -> Value {
         const std::string set = a.text("chars", "");
         const Method method{to_text(v), "strip"};
         CallArguments inner("trim", set.empty() ? std::vector<Value>{} : std::vector<Value>{set}, {}, a.budget());
         return call_method(method, inner);
       }},
      {"unique", unique},
      {"upper", [](const Value& v, CallArguments&) -> Value { return to_case(to_text(v), LetterCase::upper); }},
  };
  return table;
}

template <int kLow, int kHigh>
bool compares(const Value& value, CallArguments& arguments) {
  const int order = compare(value, arguments.required("other"));
  return order >= kLow && order <= kHigh;
}
bool is_equal(const Value& value, CallArguments& arguments) { return equal(value, arguments.required("other")); }
bool is_unequal(const Value& value, CallArguments& arguments) { return !equal(value, arguments.required("other")); }

int64_t whole(const Value& value) {
  if (value.integer() == nullptr) fail(fmt::format("an integer is needed, not {}", type_name(value)));
  return *value.integer();
}

const std::map<std::string_view, TestFunction>& test_table() {
  static const std::map<std::string_view, TestFunction> table = {
      {"boolean", [](const Value& v, CallArguments&) { return v.boolean() != nullptr; }},
      {"callable", [](const Value& v, CallArguments&) { return v.method() || v.function() || v.macro(); }},
      {"defined", [](const Value& v, CallArguments&) { return !v.is_undefined(); }},
      {"divisibleby",
       [](const Value& v, CallArguments& a) {
         const int64_t by = whole(a.required("num"));
         if (by == 0) fail("divisibleby: a division by zero");
         return by == -1 || whole(v) % by == 0;
       }},
      {"eq", is_equal},
      {"equalto", is_equal},
      {"even", [](const Value& v, CallArguments&) { return whole(v) % 2 == 0; }},
      {"false", [](const Value& v, CallArguments&) { return v.boolean() != nullptr && !*v.boolean(); }},
      {"filter", [](const Value& v, CallArguments&) { return v.string() != nullptr && is_filter(*v.string()); }},
      {"float", [](const Value& v, CallArguments&) { return v.real() != nullptr; }},
      {"ge", compares<0, 1>},
      {"greaterthan", compares<1, 1>},
      {"gt", compares<1, 1>},
      {"in", [](const Value& v, CallArguments& a) { return contains(a.required("seq"), v, a.budget()); }},
      {"integer", [](const Value& v, CallArguments&) { return v.integer() != nullptr; }},
      {"iterable",
       [](const Value& v, CallArguments&) { return v.list() || v.dict() || v.string() || v.is_undefined(); }},
      {"le", compares<-1, 0>},
      {"lessthan", compares<-1, -1>},
      {"lower",
       [](const Value& v, CallArguments&) {
         const std::string text = to_text(v), other = to_case(text, LetterCase::lower);
         return text == other && text != to_case(text, LetterCase::upper);
       }},
      {"lt", compares<-1, -1>},
      {"mapping", [](const Value& v, CallArguments&) { return v.dict() != nullptr; }},
      {"ne", is_unequal},
      {"none", [](const Value& v, CallArguments&) { return v.is_none(); }},
      {"number", [](const Value& v, CallArguments&) { return v.is_number(); }},
      {"odd", [](const Value& v, CallArguments&) { return whole(v) % 2 != 0; }},
      {"sequence",
       [](const Value& v, CallArguments&) { return v.list() || v.dict() || v.string() || v.is_undefined(); }},
      {"string", [](const Value& v, CallArguments&) { return v.string() != nullptr; }},
      {"test", [](const Value& v, CallArguments&) { return v.string() != nullptr && is_test(*v.string()); }},
      {"true", [](const Value& v, CallArguments&) { return v.boolean() != nullptr && *v.boolean(); }},
      {"undefined", [](const Value& v, CallArguments&) { return v.is_undefined(); }},
      {"upper",
       [](const Value& v, CallArguments&) {
         const std::string text = to_text(v), other = to_case(text, LetterCase::upper);
         return text == other && text != to_case(text, LetterCase::lower);
       }},
  };
  return table;
}

template <class Table>
std::string names_of(const Table& table) {
  return joined(table, [](const auto& item) { return item.first; });
}

}  // namespace

bool is_filter(std::string_view name) { return filter_table().contains(name); }
bool is_test(std::string_view name) { return test_table().contains(name); }
std::string filter_names() { return names_of(filter_table()); }
std::string test_names() { return names_of(test_table()); }

Value apply_filter(const std::string& name, const Value& value, CallArguments& arguments) {
  Value result = filter_table().at(name)(value, arguments);
  arguments.done();
  return result;
}

bool apply_test(const std::string& name, const Value& value, CallArguments& arguments) {
  const bool result = test_table().at(name)(value, arguments);
  arguments.done();
  return result;
}

}  // namespace weft::jinja
