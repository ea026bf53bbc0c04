// Attributes, items and methods of values.
#include <fmt/format.h>

#include <algorithm>

#include "models/template/filters.h"
#include "models/template/white_space.h"

namespace weft::jinja {
namespace {

constexpr std::string_view kStringMethods[] = {
    "strip",   "lstrip", "rstrip",  "split",   "rsplit",       "splitlines",  "startswith", "endswith",
    "replace", "format", "upper",   "lower",   "title",        "capitalize",  "find",       "rfind",
    "count",   "join",   "isdigit", "isspace", "removeprefix", "removesuffix"};
constexpr std::string_view kDictMethods[] = {"items", "keys", "values", "get"};
constexpr std::string_view kListMethods[] = {"index", "count"};

// What Python has and templates may not do, or what is not here: refused by name instead of being undefined.
constexpr std::string_view kStringOthers[] = {
    "encode",   "zfill",    "center",    "ljust",      "rjust",      "partition", "rpartition",
    "casefold", "swapcase", "isalpha",   "isalnum",    "isupper",    "islower",   "isnumeric",
    "index",    "rindex",   "translate", "expandtabs", "format_map", "istitle",   "isdecimal"};
constexpr std::string_view kDictOthers[] = {"update", "pop", "popitem", "clear", "setdefault", "copy", "fromkeys"};
constexpr std::string_view kListOthers[] = {"append", "extend",  "insert", "pop", "remove",
                                            "sort",   "reverse", "clear",  "copy"};

template <size_t N>
bool among(const std::string_view (&names)[N], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

List split_white_space(std::string_view text, int64_t most) {
  const std::vector<std::string_view> all = characters(text);
  const auto is_space = [](std::string_view c) { return space_at(c, 0) > 0; };
  List parts;
  for (size_t i = 0; i < all.size();) {
    if (is_space(all[i])) {
      ++i;
      continue;
    }
    if (most-- == 0) {  // the rest as it is
      parts.items.emplace_back(std::string(all[i].data(), text.data() + text.size()));
      break;
    }
    const char* begin = all[i].data();
    while (i < all.size() && !is_space(all[i])) ++i;
    const char* end = i < all.size() ? all[i].data() : text.data() + text.size();
    parts.items.emplace_back(std::string(begin, end));
  }
  return parts;
}

List split_text(std::string_view text, std::string_view separator, int64_t most, bool from_right) {
  if (separator.empty()) fail("split: an empty separator");
  List parts;
  if (from_right) {
    while (most-- != 0) {
      const size_t found = text.rfind(separator);
      if (found == std::string_view::npos) break;
      parts.items.emplace_back(text.substr(found + separator.size()));
      text = text.substr(0, found);
    }
    parts.items.emplace_back(text);
    std::reverse(parts.items.begin(), parts.items.end());
    return parts;
  }
  while (most-- != 0) {
    const size_t found = text.find(separator);
    if (found == std::string_view::npos) break;
    parts.items.emplace_back(text.substr(0, found));
    text = text.substr(found + separator.size());
  }
  parts.items.emplace_back(text);
  return parts;
}

bool starts_or_ends(std::string_view text, const Value& with, bool starts) {
  if (const std::string* one = with.string()) return starts ? text.starts_with(*one) : text.ends_with(*one);
  if (with.list() == nullptr || !with.list()->tuple)
    fail(fmt::format("startswith: a string or a tuple is needed, not {}", type_name(with)));
  return std::any_of(with.list()->items.begin(), with.list()->items.end(),
                     [&](const Value& one) { return one.string() != nullptr && starts_or_ends(text, one, starts); });
}

int64_t count_text(std::string_view text, std::string_view part) {
  if (part.empty()) return static_cast<int64_t>(length_of(text)) + 1;
  int64_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + part.size())) ++count;
  return count;
}

Value string_method(const std::string& text, const std::string& name, CallArguments& arguments) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const std::string set = arguments.text("chars", kWhiteSpace);
    return strip(text, set, name != "rstrip", name != "lstrip");
  }
  if (name == "split" || name == "rsplit") {
    const Value* separator = arguments.next("sep");
    const int64_t most = arguments.integer("maxsplit", -1);
    if (separator != nullptr && separator->string() != nullptr)
      return split_text(text, *separator->string(), most, name == "rsplit");
    if (separator != nullptr && !separator->is_none()) fail("split: the separator must be a string");
    if (name == "rsplit" && most >= 0) fail("rsplit with a limit needs a separator");
    return split_white_space(text, most);
  }
  if (name == "splitlines") {
    List lines;
    for (const std::string_view line : lines_of(text)) lines.items.emplace_back(line);
    return lines;
  }
  if (name == "startswith" || name == "endswith")
    return starts_or_ends(text, arguments.required("prefix"), name == "startswith");
  if (name == "replace") {
    const std::string from = arguments.text("old", ""), to = arguments.text("new", "");
    return replace_text(text, from, to, arguments.integer("count", -1));
  }
  if (name == "format") return format_text(text, arguments);
  if (name == "upper") return to_case(text, LetterCase::upper);
  if (name == "lower") return to_case(text, LetterCase::lower);
  if (name == "title") return to_title(text);
  if (name == "capitalize") return capitalize(text);
  if (name == "find" || name == "rfind") {
    const std::string part = arguments.text("sub", "");
    const size_t found = name == "find" ? text.find(part) : text.rfind(part);
    return found == std::string::npos ? int64_t{-1}
                                      : static_cast<int64_t>(length_of(std::string_view(text).substr(0, found)));
  }
  if (name == "count") return count_text(text, arguments.text("sub", ""));
  if (name == "join") {
    std::string joined;
    bool first = true;
    for (const Value& item : items_of(arguments.required("iterable"), arguments.budget())) {
      if (item.string() == nullptr) fail(fmt::format("join: a string is needed, not {}", type_name(item)));
      joined += (std::exchange(first, false) ? "" : text) + *item.string();
      if (joined.size() > kMaxString) fail("a text grows too long");
    }
    return joined;
  }
  if (name == "isdigit")
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  if (name == "isspace") return !text.empty() && strip(text, kWhiteSpace, true, false).empty();
  const std::string part = arguments.text("part", "");
  if (name == "removeprefix") return text.starts_with(part) ? text.substr(part.size()) : text;
  return !part.empty() && text.ends_with(part) ? text.substr(0, text.size() - part.size()) : text;
}

Value dict_method(const Dict& dict, const std::string& name, CallArguments& arguments) {
  if (name == "get") {
    const Value& key = arguments.required("key");
    const Value* otherwise = arguments.next("default");
    const Value* found = find_key(dict, key);
    return found != nullptr ? *found : otherwise != nullptr ? *otherwise : Value(nullptr);
  }
  List list;
  for (const auto& [key, item] : dict.items) {
    if (name == "keys") list.items.push_back(value_of(key));
    if (name == "values") list.items.push_back(item);
    if (name == "items") {
      List pair;
      pair.tuple = true;
      pair.items = {value_of(key), item};
      list.items.emplace_back(std::move(pair));
    }
  }
  return list;
}

Value list_method(const List& list, const std::string& name, CallArguments& arguments) {
  const Value& wanted = arguments.required("value");
  if (name == "count")
    return static_cast<int64_t>(
        std::count_if(list.items.begin(), list.items.end(), [&](const Value& v) { return equal(v, wanted); }));
  for (size_t i = 0; i < list.items.size(); ++i)
    if (equal(list.items[i], wanted)) return static_cast<int64_t>(i);
  fail("index: the value is not in the list");
}

}  // namespace

std::vector<Value> items_of(const Value& value, Budget& budget) {
  if (value.is_undefined()) return {};
  if (const List* list = value.list()) {
    budget.charge(list->items.size());
    return list->items;
  }
  std::vector<Value> items;
  if (const Dict* dict = value.dict()) {
    budget.charge(dict->items.size() * kStepsOfAText);
    for (const auto& item : dict->items) items.push_back(value_of(item.first));
    return items;
  }
  if (const std::string* text = value.string()) {
    budget.charge(text->size() * kStepsOfAText);
    for (const std::string_view c : characters(*text)) items.emplace_back(c);
    return items;
  }
  fail(fmt::format("{} cannot be iterated over", type_name(value)));
}

Value attribute_of(const Value& value, const std::string& name) {
  if (value.is_undefined())
    fail(fmt::format("'{}' is undefined and has no '{}'", value.get_if<Undefined>()->name, name));
  const auto bind = [&](const auto& methods, const auto& others) -> Value {
    if (among(methods, name)) return Method{value, name};
    if (among(others, name)) fail(fmt::format("method '{}' of a {} is not supported", name, type_name(value)));
    return Value::undefined(name);
  };
  if (value.string() != nullptr) return bind(kStringMethods, kStringOthers);
  if (value.list() != nullptr) return bind(kListMethods, kListOthers);
  if (const Namespace* space = value.name_space()) {
    const Value* found = find(space->attributes, name);
    return found != nullptr ? *found : Value::undefined(name);
  }
  if (const Dict* dict = value.dict()) {
    // As in Python, a method hides a key of its name.
    if (among(kDictMethods, name)) return Method{value, name};
    if (const Value* found = find(*dict, name)) return *found;
    return bind(kDictMethods, kDictOthers);
  }
  return Value::undefined(name);
}

Value item_of(const Value& value, const Value& key) {
  if (value.is_undefined()) fail(fmt::format("'{}' is undefined and has no items", value.get_if<Undefined>()->name));
  if (value.dict() != nullptr || value.name_space() != nullptr) {
    const Dict& dict = value.dict() != nullptr ? *value.dict() : value.name_space()->attributes;
    if (const Value* found = find_key(dict, key)) return *found;
    return key.string() != nullptr ? attribute_of(value, *key.string()) : Value::undefined(to_repr(key));
  }
  if (const int64_t* index = key.integer()) {
    const auto pick = [&](const auto& items) -> Value {
      const auto size = static_cast<int64_t>(items.size());
      const int64_t at = *index < 0 ? *index + size : *index;
      return at < 0 || at >= size ? Value::undefined(fmt::format("[{}]", *index))
                                  : Value(items[static_cast<size_t>(at)]);
    };
    if (const List* list = value.list()) return pick(list->items);
    if (const std::string* text = value.string()) return pick(characters(*text));
  }
  return key.string() != nullptr ? attribute_of(value, *key.string()) : Value::undefined(to_repr(key));
}

bool contains(const Value& container, const Value& item, Budget& budget) {
  if (const std::string* text = container.string()) {
    if (item.string() == nullptr) fail(fmt::format("'in' a string needs a string, not {}", type_name(item)));
    return text->find(*item.string()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) return find_key(*dict, item) != nullptr;
  const std::vector<Value> items = items_of(container, budget);
  return std::any_of(items.begin(), items.end(), [&](const Value& other) { return equal(other, item); });
}

Value call_method(const Method& method, CallArguments& arguments) {
  const Value& self = method.self;
  Value result = self.string() != nullptr ? string_method(*self.string(), method.name, arguments)
                 : self.dict() != nullptr ? dict_method(*self.dict(), method.name, arguments)
                                          : list_method(*self.list(), method.name, arguments);
  arguments.done();
  return result;
}

}  // namespace weft::jinja
