// Filters, tests, and the methods of strings, lists and mappings.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/template/value.h"

namespace weft::jinja {

// The arguments of one call, taken by position or by name. Failure names the function.
class CallArguments {
 public:
  CallArguments(std::string function, std::vector<Value> positional, std::vector<std::pair<std::string, Value>> named,
                Budget& budget)
      : function_(std::move(function)), positional_(std::move(positional)), named_(std::move(named)), budget_(budget) {}

  // The next argument, by position or by its name; null where it was left out.
  const Value* next(std::string_view name);
  const Value& required(std::string_view name);
  std::string text(std::string_view name, std::string_view otherwise);
  int64_t integer(std::string_view name, int64_t otherwise);
  bool boolean(std::string_view name, bool otherwise);
  // What is left over, for functions that hand their arguments on.
  std::vector<Value> rest();
  // Takes all that is left, whatever it is.
  void ignore() { at_ = positional_.size(), named_taken_ = named_.size(); }
  // Fails where arguments were given that the function does not take.
  void done() const;

  Budget& budget() const { return budget_; }
  const std::string& function() const { return function_; }
  const std::vector<Value>& positional() const { return positional_; }
  const std::vector<std::pair<std::string, Value>>& named() const { return named_; }

 private:
  std::string function_;
  std::vector<Value> positional_;
  std::vector<std::pair<std::string, Value>> named_;
  Budget& budget_;
  size_t at_ = 0, named_taken_ = 0;
};

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
std::string filter_names();
std::string test_names();

Value apply_filter(const std::string& name, const Value& value, CallArguments& arguments);
bool apply_test(const std::string& name, const Value& value, CallArguments& arguments);

// The name that a block set's filters read.
inline constexpr const char* kBlockOutput = "(output)";

// Items as a for loop sees them: of a list, a mapping's keys, a string's characters; none for undefined. Charged before
// they are made.
std::vector<Value> items_of(const Value& value, Budget& budget);
// value.name and value[key]; undefined where there is none.
Value attribute_of(const Value& value, const std::string& name);
Value item_of(const Value& value, const Value& key);
bool contains(const Value& container, const Value& item, Budget& budget);
Value call_method(const Method& method, CallArguments& arguments);

std::string strip(std::string_view text, std::string_view characters, bool left, bool right);
std::string replace_text(std::string_view text, std::string_view from, std::string_view to, int64_t count);
// Python's str.format: fields by position and name, their attributes and items, conversions and formats.
std::string format_text(std::string_view text, CallArguments& arguments);
// Lines without their ends; ends are those of Unicode, as Python's splitlines takes them, and begin no further line.
std::vector<std::string_view> lines_of(std::string_view text);
enum class LetterCase { upper, lower };
std::string to_case(std::string_view text, LetterCase letter_case);
std::string to_title(std::string_view text);          // the method: a letter after none is upper case
std::string capitalize_words(std::string_view text);  // the filter: words end at white space, "-" and brackets
std::string capitalize(std::string_view text);

}  // namespace weft::jinja
