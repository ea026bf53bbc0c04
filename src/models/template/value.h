// Values of chat templates: what JSON holds, plus undefined, namespaces and callables; printed as Python prints them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace weft::jinja {

class Value;
struct Macro;  // of the interpreter

struct List {
  std::vector<Value> items;
  bool tuple = false;
  int depth = 1;      // of the nesting, bounded so that no walk over a value can exhaust the stack
  size_t weight = 0;  // of everything in it, however often: what a walk over it costs
};
// Of a mapping: a string or an integer.
struct Key {
  std::string text;  // of an integer: its digits
  bool is_integer = false;
  Key(std::string string) : text(std::move(string)) {}
  Key(const char* string) : text(string) {}
  Key(int64_t number) : text(std::to_string(number)), is_integer(true) {}
  bool is(std::string_view string) const { return !is_integer && text == string; }
  bool operator==(const Key& other) const = default;
};
struct Dict {
  std::vector<std::pair<Key, Value>> items;  // in order of insertion, at most kMaxKeys
  int depth = 1;
  size_t weight = 0;
};
// The only thing that changes after it was made, and never part of another value: so values have no cycles.
struct Namespace {
  Dict attributes;
};
struct Undefined {
  std::string name;  // for messages
};
struct Method;  // a function bound to the value it was taken from
struct Function {
  std::string name;  // of a global function: range, namespace, ...
};

class Value {
 public:
  using Data = std::variant<Undefined, std::nullptr_t, bool, int64_t, double, std::shared_ptr<const std::string>,
                            std::shared_ptr<const List>, std::shared_ptr<const Dict>, std::shared_ptr<Namespace>,
                            std::shared_ptr<const Method>, Function, const Macro*>;
  Value() = default;
  Value(std::nullptr_t) : data_(nullptr) {}
  Value(bool value) : data_(value) {}
  Value(int64_t value) : data_(value) {}
  Value(int value) : data_(int64_t{value}) {}
  Value(size_t value) : data_(static_cast<int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(std::string value) : data_(std::make_shared<const std::string>(std::move(value))) {}
  Value(std::string_view value) : Value(std::string(value)) {}
  Value(const char* value) : Value(std::string(value)) {}
  Value(List list);  // fails when nested too deep
  Value(Dict dict);  // fails when nested too deep
  Value(std::shared_ptr<Namespace> value) : data_(std::move(value)) {}
  Value(Method method);
  Value(Function function) : data_(std::move(function)) {}
  Value(const Macro* macro) : data_(macro) {}
  static Value undefined(std::string name) {
    Value value;
    value.data_ = Undefined{std::move(name)};
    return value;
  }

  template <class T>
  const T* get_if() const {
    return std::get_if<T>(&data_);
  }
  bool is_undefined() const { return get_if<Undefined>() != nullptr; }
  bool is_none() const { return get_if<std::nullptr_t>() != nullptr; }
  const bool* boolean() const { return get_if<bool>(); }
  const int64_t* integer() const { return get_if<int64_t>(); }
  const double* real() const { return get_if<double>(); }
  const std::string* string() const { return pointee<const std::string>(); }
  const List* list() const { return pointee<const List>(); }
  const Dict* dict() const { return pointee<const Dict>(); }
  Namespace* name_space() const { return pointee<Namespace>(); }
  const Method* method() const { return pointee<const Method>(); }
  const Function* function() const { return get_if<Function>(); }
  const Macro* macro() const {
    const auto* m = get_if<const Macro*>();
    return m ? *m : nullptr;
  }
  bool is_number() const { return boolean() || integer() || real(); }
  double as_double() const;  // of a number
  bool truthy() const;
  int depth() const;
  size_t weight() const;  // steps that reading all of it takes

 private:
  template <class T>
  T* pointee() const {
    const auto* held = std::get_if<std::shared_ptr<T>>(&data_);
    return held ? held->get() : nullptr;
  }
  Data data_;
};

struct Method {
  Value self;
  std::string name;
};

// Why an operation on values fails; the interpreter adds the line.
struct Failure {
  std::string message;
};
[[noreturn]] void fail(std::string message);

// What a template may do. Work is charged before it is done, and memory, as work, before it is taken.
class Budget {
 public:
  explicit Budget(int64_t most_steps) : most_(most_steps) {}
  void charge(size_t steps);  // fails beyond them

 private:
  int64_t most_, used_ = 0;
};
inline constexpr size_t kStepsOfAText = 4;  // a value with a text of its own: a hundred bytes and more

inline constexpr int kMaxDepth = 100;            // of lists within lists
inline constexpr size_t kMaxString = 16u << 20;  // bytes of one string
inline constexpr size_t kMaxKeys = 1000;         // of one mapping, which is searched from its start
inline constexpr size_t kMaxWeight = size_t{1} << 40;

const Value* find(const Dict& dict, std::string_view key);
const Value* find_key(const Dict& dict, const Value& key);  // by what equals it: 1, 1.0 and true are one
void set(Dict& dict, Key key, Value value);                 // fails beyond kMaxKeys
Key key_of(const Value& value);                             // fails for what is neither string nor integer
Value value_of(const Key& key);
bool equal(const Value& a, const Value& b);
int compare(const Value& a, const Value& b);  // -1, 0, 1; fails where Python has no order
std::string to_text(const Value& value);      // str()
std::string to_repr(const Value& value);      // repr()
std::string type_name(const Value& value);

struct JsonStyle {
  int indent = -1;  // -1: on one line
  bool ascii = false, sort_keys = false;
  std::string item_separator, key_separator;  // empty: as json.dumps chooses
};
std::string to_json(const Value& value, const JsonStyle& style);
Value from_json(std::string_view text);         // fails for what is no JSON
Value object_from_json(std::string_view text);  // fails for what is no JSON object

// Code points.
size_t length_of(std::string_view text);
std::vector<std::string_view> characters(std::string_view text);

}  // namespace weft::jinja
