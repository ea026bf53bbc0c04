#include "models/template/interpreter.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "models/template/filters.h"

namespace weft::jinja {
namespace {

constexpr int kMaxCallDepth = 800;  // of expressions, blocks and macros within each other
constexpr size_t kMaxOutput = 16u << 20;
constexpr int64_t kMaxRange = 100000;  // as Jinja's sandbox has it
constexpr const char* kFunctions[] = {"range", "namespace", "dict", "raise_exception", "strftime_now"};

class Interpreter {
 public:
  Interpreter(const Value& context, const RenderOptions& options) : options_(options) {
    scopes_.emplace_back();
    for (const char* name : kFunctions) scopes_[0][name] = Value(Function{name});
    for (const auto& [name, value] : context.dict()->items) scopes_[0][name.text] = value;
  }

  std::string run(const Block& block) {
    std::string out;
    execute(block, out);
    return out;
  }

 private:
  using Scope = std::map<std::string, Value, std::less<>>;
  enum class Flow { on, leave, next };

  template <class... Args>
  [[noreturn]] void fail_at(int line, fmt::format_string<Args...> format, Args&&... args) {
    weft::fail(ErrorCode::invalid_template, "line {}: {}", line, fmt::format(format, std::forward<Args>(args)...));
  }

  // What operations on values throw gets its line.
  template <class Work>
  auto at_line(int line, Work&& work) {
    try {
      return work();
    } catch (const Failure& failure) {
      fail_at(line, "{}", failure.message);
    }
  }

  // One step of work and one level of depth.
  struct Level {
    Level(Interpreter& interpreter, int line) : of(interpreter) {
      of.charge(line, 1);
      if (++of.depth_ > kMaxCallDepth) of.fail_at(line, "calls and blocks are nested deeper than {}", kMaxCallDepth);
    }
    ~Level() { --of.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    Interpreter& of;
  };
  void charge(int line, size_t steps) {
    at_line(line, [&] { budget_.charge(steps); });
  }

  // ---- names

  const Value* find_name(std::string_view name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope)
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    return nullptr;
  }

  void assign(int line, const std::vector<std::string>& targets, const Value& value) {
    if (targets.size() == 1) {
      scopes_.back()[targets[0]] = value;
      return;
    }
    const std::vector<Value> parts = at_line(line, [&] { return items_of(value, budget_); });
    if (parts.size() != targets.size()) fail_at(line, "{} values for {} names", parts.size(), targets.size());
    for (size_t i = 0; i < parts.size(); ++i) scopes_.back()[targets[i]] = parts[i];
  }

  // ---- statements

  Flow execute(const Block& block, std::string& out) {
    for (const auto& statement : block)
      if (const Flow flow = execute(*statement, out); flow != Flow::on) return flow;
    return Flow::on;
  }

  void append(int line, std::string& out, std::string_view text) {
    charge(line, text.size() / 16);
    if (out.size() + text.size() > kMaxOutput) fail_at(line, "the output grows beyond {} bytes", kMaxOutput);
    out += text;
  }

  Flow execute(const Statement& statement, std::string& out) {
    const Level level(*this, statement.line);
    switch (statement.kind) {
      case Statement::text: append(statement.line, out, statement.content); break;
      case Statement::print: {
        const Value value = evaluate(*statement.expressions[0]);
        charge(statement.line, value.weight());
        append(statement.line, out, at_line(statement.line, [&] { return to_text(value); }));
        break;
      }
      case Statement::branch:
        for (size_t i = 0; i < statement.blocks.size(); ++i)
          if (i >= statement.expressions.size() || evaluate(*statement.expressions[i]).truthy())
            return execute(statement.blocks[i], out);
        break;
      case Statement::loop: run_loop(statement, out); break;
      case Statement::assign: run_assign(statement); break;
      case Statement::assign_block: {
        std::string text;
        scopes_.emplace_back();
        execute(statement.blocks[0], text);
        scopes_.back() = {{kBlockOutput, Value(std::move(text))}};
        const Value value = evaluate(*statement.expressions[0]);
        scopes_.pop_back();
        scopes_.back()[statement.targets[0]] = value;
        break;
      }
      case Statement::macro:
        scopes_.back()[statement.definition->name] = Value(static_cast<const Macro*>(statement.definition.get()));
        break;
      case Statement::leave: return Flow::leave;
      case Statement::next: return Flow::next;
      case Statement::group: return execute(statement.blocks[0], out);
    }
    return Flow::on;
  }

  void run_assign(const Statement& statement) {
    Value value = evaluate(*statement.expressions[0]);
    if (statement.attribute.empty()) return assign(statement.line, statement.targets, value);
    const Value* target = find_name(statement.targets[0]);
    Namespace* space = target != nullptr ? target->name_space() : nullptr;
    if (space == nullptr)
      fail_at(statement.line, "'{}' is no namespace; only attributes of a namespace can be set", statement.targets[0]);
    if (value.name_space() != nullptr) fail_at(statement.line, "a namespace cannot be part of another value");
    charge(statement.line, space->attributes.items.size() / 8);
    set(space->attributes, statement.attribute, std::move(value));
  }

  void run_loop(const Statement& statement, std::string& out) {
    const Value over = evaluate(*statement.expressions[0]);
    std::vector<Value> items = at_line(statement.line, [&] { return items_of(over, budget_); });
    if (statement.expressions[1]) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        scopes_.emplace_back();
        assign(statement.line, statement.targets, item);
        if (evaluate(*statement.expressions[1]).truthy()) kept.push_back(item);
        scopes_.pop_back();
      }
      items = std::move(kept);
    }
    const auto count = static_cast<int64_t>(items.size());
    for (int64_t i = 0; i < count; ++i) {
      scopes_.emplace_back();
      if (statement.uses_state)
        scopes_.back()["loop"] = at_line(statement.line, [&] { return loop_state(items, i, count); });
      assign(statement.line, statement.targets, items[static_cast<size_t>(i)]);
      const Flow flow = execute(statement.blocks[0], out);
      scopes_.pop_back();
      if (flow == Flow::leave) break;
    }
    if (count == 0) {
      scopes_.emplace_back();
      execute(statement.blocks[1], out);
      scopes_.pop_back();
    }
  }

  static Value loop_state(const std::vector<Value>& items, int64_t i, int64_t count) {
    Dict loop;
    loop.items = {{"index", i + 1},        {"index0", i},
                  {"revindex", count - i}, {"revindex0", count - i - 1},
                  {"first", i == 0},       {"last", i == count - 1},
                  {"length", count},       {"depth", 1},
                  {"depth0", 0},           {"cycle", Function{"loop.cycle"}}};
    if (i > 0) loop.items.emplace_back("previtem", items[static_cast<size_t>(i - 1)]);
    if (i + 1 < count) loop.items.emplace_back("nextitem", items[static_cast<size_t>(i + 1)]);
    return loop;
  }

  // ---- expressions

  Value evaluate(const Expression& expression) {
    const Level level(*this, expression.line);
    const auto part = [&](size_t i) { return evaluate(*expression.parts[i]); };
    switch (expression.kind) {
      case Expression::constant: return expression.value;
      case Expression::name: {
        const Value* found = find_name(expression.text);
        return found != nullptr ? *found : Value::undefined(expression.text);
      }
      case Expression::list: {
        List list;
        list.tuple = expression.text == "tuple";
        for (const auto& item : expression.parts) list.items.push_back(evaluate(*item));
        return at_line(expression.line, [&] { return Value(std::move(list)); });
      }
      case Expression::dict: {
        Dict dict;
        for (size_t i = 0; i < expression.parts.size(); i += 2) {
          const Value key = part(i), item = part(i + 1);
          at_line(expression.line, [&] { set(dict, key_of(key), item); });
        }
        return at_line(expression.line, [&] { return Value(std::move(dict)); });
      }
      case Expression::attribute: {
        const Value base = part(0);
        return at_line(expression.line, [&] { return attribute_of(base, expression.text); });
      }
      case Expression::subscript: {
        const Value base = part(0), key = part(1);
        if (base.string() != nullptr) charge(expression.line, base.string()->size() / 8);
        return at_line(expression.line, [&] { return item_of(base, key); });
      }
      case Expression::slice: return slice(expression);
      case Expression::call: return call(expression);
      case Expression::filter: {
        const Value base = part(0);
        CallArguments arguments = call_arguments(expression, expression.text);
        charge(expression.line, base.weight());
        Value result = at_line(expression.line, [&] { return apply_filter(expression.text, base, arguments); });
        charge(expression.line, result.weight());
        return result;
      }
      case Expression::test: {
        const Value base = part(0);
        CallArguments arguments = call_arguments(expression, expression.text);
        return at_line(expression.line, [&] { return apply_test(expression.text, base, arguments); });
      }
      case Expression::unary: return unary(expression);
      case Expression::binary: return binary(expression);
      case Expression::choice:
        if (part(1).truthy()) return part(0);
        return expression.parts[2] ? part(2) : Value::undefined("else");
    }
    throw InternalError("an expression of an unknown kind");
  }

  CallArguments call_arguments(const Expression& expression, std::string function) {
    std::vector<Value> positional;
    std::vector<std::pair<std::string, Value>> named;
    for (const auto& argument : expression.arguments.positional) positional.push_back(evaluate(*argument));
    for (const auto& [name, argument] : expression.arguments.named) named.emplace_back(name, evaluate(*argument));
    for (const Value& value : positional) charge(expression.line, value.weight());
    for (const auto& [name, value] : named) charge(expression.line, value.weight());
    return {std::move(function), std::move(positional), std::move(named), budget_};
  }

  Value slice(const Expression& expression) {
    const Value base = evaluate(*expression.parts[0]);
    std::optional<int64_t> bounds[3];
    for (size_t i = 1; i < expression.parts.size(); ++i) {
      if (!expression.parts[i]) continue;
      const Value bound = evaluate(*expression.parts[i]);
      if (bound.is_none()) continue;
      if (bound.integer() == nullptr) fail_at(expression.line, "a slice needs integers, not {}", type_name(bound));
      bounds[i - 1] = *bound.integer();
    }
    if (base.list() == nullptr && base.string() == nullptr)
      fail_at(expression.line, "{} cannot be sliced", type_name(base));
    const int64_t step = bounds[2].value_or(1);
    if (step == 0) fail_at(expression.line, "a slice's step is 0");
    if (base.list() != nullptr) {
      List picked;
      picked.tuple = base.list()->tuple;
      const std::vector<Value>& items = base.list()->items;
      charge(expression.line, items.size());
      for_slice(bounds, step, std::ssize(items),
                [&](int64_t at) { picked.items.push_back(items[static_cast<size_t>(at)]); });
      return picked;
    }
    const std::string& text = *base.string();
    charge(expression.line, text.size() / 2);  // a place of 16 bytes for each character
    const std::vector<std::string_view> parts = characters(text);
    std::string picked;
    for_slice(bounds, step, std::ssize(parts), [&](int64_t at) { picked += parts[static_cast<size_t>(at)]; });
    return picked;
  }

  // Calls take(place) for each place that the slice names of `count`.
  template <class Take>
  static void for_slice(const std::optional<int64_t> (&bounds)[3], int64_t step, int64_t count, const Take& take) {
    const int64_t low = step > 0 ? 0 : -1, high = step > 0 ? count : count - 1;
    const auto place = [&](std::optional<int64_t> bound, int64_t otherwise) {
      if (!bound) return otherwise;
      return std::clamp(*bound < 0 ? *bound + count : *bound, low, high);
    };
    const int64_t begin = place(bounds[0], step > 0 ? 0 : count - 1), end = place(bounds[1], step > 0 ? count : -1);
    for (int64_t i = begin; step > 0 ? i < end : i > end;) {
      take(i);
      if (step > count || step < -count) break;
      i += step;
    }
  }

  Value unary(const Expression& expression) {
    const Value value = evaluate(*expression.parts[0]);
    if (expression.text == "not") return !value.truthy();
    if (!value.is_number()) fail_at(expression.line, "'{}' needs a number, not {}", expression.text, type_name(value));
    const bool minus = expression.text == "-";
    if (value.real() != nullptr) return minus ? -*value.real() : *value.real();
    const int64_t number = value.integer() != nullptr ? *value.integer() : int64_t{*value.boolean()};
    if (minus && number == INT64_MIN) fail_at(expression.line, "a number grows too large");
    return minus ? -number : number;
  }

  Value binary(const Expression& expression) {
    const std::string& text = expression.text;
    Value left = evaluate(*expression.parts[0]);
    if (text == "and") return left.truthy() ? evaluate(*expression.parts[1]) : left;
    if (text == "or") return left.truthy() ? left : evaluate(*expression.parts[1]);
    const Value right = evaluate(*expression.parts[1]);
    return at_line(expression.line, [&]() -> Value {
      if (text == "==" || text == "!=") {
        charge(expression.line, std::min(left.weight(), right.weight()));
        return equal(left, right) == (text == "==");
      }
      if (text == "in" || text == "not in") {
        charge(expression.line, right.weight());
        return contains(right, left, budget_) == (text == "in");
      }
      if (text == "<") return compare(left, right) < 0;
      if (text == "<=") return compare(left, right) <= 0;
      if (text == ">") return compare(left, right) > 0;
      if (text == ">=") return compare(left, right) >= 0;
      if (text == "~") charge(expression.line, left.weight() + right.weight());
      if (text == "~") return concatenate(expression.line, to_text(left), to_text(right));
      return arithmetic(expression.line, text, left, right);
    });
  }

  Value concatenate(int line, std::string left, std::string_view right) {
    if (left.size() + right.size() > kMaxString) fail("a text grows too long");
    charge(line, (left.size() + right.size()) / 16);
    left += right;
    return left;
  }

  Value repeat(int line, const Value& value, int64_t times) {
    const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
    const size_t size = value.string() != nullptr ? value.string()->size() : value.list()->items.size();
    if (size != 0 && count > kMaxString / size) fail("a repetition grows too long");
    charge(line, value.string() != nullptr ? size * count / 16 : size * count);
    if (const std::string* text = value.string()) {
      std::string out;
      out.reserve(size * count);
      for (size_t i = 0; i < (size == 0 ? 0 : count); ++i) out += *text;
      return out;
    }
    List list;
    list.tuple = value.list()->tuple;
    for (size_t i = 0; i < (size == 0 ? 0 : count); ++i)
      list.items.insert(list.items.end(), value.list()->items.begin(), value.list()->items.end());
    return list;
  }

  Value arithmetic(int line, const std::string& text, const Value& left, const Value& right) {
    if (text == "+" && left.string() != nullptr && right.string() != nullptr)
      return concatenate(line, *left.string(), *right.string());
    if (text == "+" && left.list() != nullptr && right.list() != nullptr) {
      charge(line, left.list()->items.size() + right.list()->items.size());
      List list = *left.list();
      list.items.insert(list.items.end(), right.list()->items.begin(), right.list()->items.end());
      return list;
    }
    const auto repeatable = [](const Value& value) { return value.string() != nullptr || value.list() != nullptr; };
    if (text == "*" && repeatable(left) && right.integer() != nullptr) return repeat(line, left, *right.integer());
    if (text == "*" && repeatable(right) && left.integer() != nullptr) return repeat(line, right, *left.integer());
    if (text == "%" && left.string() != nullptr) fail("formatting with % is not supported; use ~");
    if (!left.is_number() || !right.is_number())
      fail(fmt::format("'{}' does not take {} and {}", text, type_name(left), type_name(right)));
    if (left.real() == nullptr && right.real() == nullptr && text != "/")
      return whole(text, static_cast<int64_t>(integer_of(left)), static_cast<int64_t>(integer_of(right)));
    const double a = left.as_double(), b = right.as_double();
    if ((text == "/" || text == "//" || text == "%") && b == 0) fail("a division by zero");
    if (text == "+") return a + b;
    if (text == "-") return a - b;
    if (text == "*") return a * b;
    if (text == "/") return a / b;
    if (text == "//") return std::floor(a / b);
    if (text == "%") return a - b * std::floor(a / b);
    return std::pow(a, b);
  }

  static int64_t integer_of(const Value& value) {
    return value.integer() != nullptr ? *value.integer() : int64_t{*value.boolean()};
  }

  static Value whole(const std::string& text, int64_t a, int64_t b) {
    int64_t result = 0;
    bool overflow = false;
    if (text == "+") {
      overflow = __builtin_add_overflow(a, b, &result);
    } else if (text == "-") {
      overflow = __builtin_sub_overflow(a, b, &result);
    } else if (text == "*") {
      overflow = __builtin_mul_overflow(a, b, &result);
    } else if (text == "**") {
      if (b < 0) return std::pow(static_cast<double>(a), static_cast<double>(b));
      if (a == 0 || a == 1) return b == 0 ? int64_t{1} : a;
      if (a == -1) return b % 2 == 0 ? int64_t{1} : int64_t{-1};
      result = 1;
      for (int64_t i = 0; i < b && !overflow; ++i) overflow = __builtin_mul_overflow(result, a, &result);
    } else {  // "//" and "%" round down, as in Python
      if (b == 0) fail("a division by zero");
      if (a == INT64_MIN && b == -1) {
        overflow = text == "//";
      } else {
        const int64_t quotient = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
        result = text == "//" ? quotient : a - quotient * b;
      }
    }
    if (overflow) fail("a number grows too large");
    return result;
  }

  // ---- calls

  Value call(const Expression& expression) {
    const Value callee = evaluate(*expression.parts[0]);
    if (const Macro* macro = callee.macro()) return call_macro(*macro, expression);
    if (const Method* method = callee.method()) {
      CallArguments arguments = call_arguments(expression, method->name);
      charge(expression.line, method->self.weight());
      Value result = at_line(expression.line, [&] { return call_method(*method, arguments); });
      charge(expression.line, result.weight());
      return result;
    }
    if (const Function* function = callee.function()) {
      CallArguments arguments = call_arguments(expression, function->name);
      return at_line(expression.line, [&] { return call_function(expression.line, *function, arguments); });
    }
    if (const auto* undefined = callee.get_if<Undefined>())
      fail_at(expression.line, "'{}' is undefined and cannot be called", undefined->name);
    fail_at(expression.line, "a value of type {} cannot be called", type_name(callee));
  }

  Value call_macro(const Macro& macro, const Expression& expression) {
    CallArguments arguments = call_arguments(expression, macro.name);
    // A macro sees its arguments and what the template set outside loops.
    std::vector<Scope> outer;
    outer.reserve(2);
    std::swap(outer, scopes_);
    scopes_.push_back(std::move(outer[0]));
    scopes_.emplace_back();
    std::vector<size_t> missing;
    for (size_t i = 0; i < macro.parameters.size(); ++i) {
      const Value* given = arguments.next(macro.parameters[i]);
      if (given == nullptr) missing.push_back(i);
      scopes_[1][macro.parameters[i]] = given != nullptr ? *given : Value::undefined(macro.parameters[i]);
    }
    // Defaults see the arguments too, and each the defaults before it.
    const size_t first_default = macro.parameters.size() - macro.defaults.size();
    for (const size_t i : missing)
      if (i >= first_default) scopes_[1][macro.parameters[i]] = evaluate(*macro.defaults[i - first_default]);
    at_line(expression.line, [&] { arguments.done(); });
    std::string out;
    execute(macro.body, out);
    outer[0] = std::move(scopes_[0]);
    std::swap(outer, scopes_);
    return out;
  }

  Value call_function(int line, const Function& function, CallArguments& arguments) {
    if (function.name == "raise_exception") fail("the template refuses: " + to_text(arguments.required("message")));
    if (function.name == "range") return range(line, arguments);
    if (function.name == "strftime_now") return time_text(arguments.text("format", ""));
    if (function.name == "loop.cycle") return cycle(arguments);
    if (function.name == "dict") return made_dict(arguments);
    Dict dict;
    for (const auto& [name, value] : arguments.named()) set(dict, name, value);
    const Value made(std::move(dict));  // with the checks of a value's parts
    auto space = std::make_shared<Namespace>();
    space->attributes = *made.dict();
    if (const Value* from = arguments.next("")) {
      if (from->dict() == nullptr) fail("namespace takes a mapping or named values");
      for (const auto& [name, value] : from->dict()->items)
        if (find_key(space->attributes, value_of(name)) == nullptr) set(space->attributes, name, value);
    }
    return space;
  }

  // Of a mapping or of pairs, and of named values.
  static Value made_dict(CallArguments& arguments) {
    Dict dict;
    if (const Value* from = arguments.next("")) {
      if (from->dict() != nullptr) {
        dict.items = from->dict()->items;
      } else {
        for (const Value& pair : items_of(*from, arguments.budget())) {
          const List* both = pair.list();
          if (both == nullptr || both->items.size() != 2) fail("dict takes a mapping, or a list of pairs");
          set(dict, key_of(both->items[0]), both->items[1]);
        }
      }
    }
    for (const auto& [name, value] : arguments.named()) set(dict, name, value);
    if (arguments.next("") != nullptr) fail("dict takes one mapping, and named values");
    return dict;
  }

  Value range(int line, CallArguments& arguments) {
    int64_t begin = 0, end = arguments.integer("stop", 0);
    if (const Value* second = arguments.next("stop")) {
      if (second->integer() == nullptr) fail("range needs integers");
      begin = std::exchange(end, *second->integer());
    }
    const int64_t step = arguments.integer("step", 1);
    arguments.done();
    if (step == 0) fail("range: the step is 0");
    const double count = std::ceil((static_cast<double>(end) - static_cast<double>(begin)) / static_cast<double>(step));
    if (count > static_cast<double>(kMaxRange)) fail(fmt::format("range: more than {} numbers", kMaxRange));
    List list;
    charge(line, count > 0 ? static_cast<size_t>(count) : 0);
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) list.items.emplace_back(begin + i * step);
    return list;
  }

  Value time_text(const std::string& format) const {
    const std::time_t now = options_.now ? *options_.now : std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    if (format.empty()) return "";
    char text[256];
    const size_t length = std::strftime(text, sizeof text, format.c_str(), &parts);
    if (length == 0) fail("strftime_now: the format gives nothing, or more than 255 bytes");
    return std::string(text, length);
  }

  Value cycle(CallArguments& arguments) {
    const std::vector<Value> values = arguments.rest();
    const Value* loop = find_name("loop");
    const Value* index = loop != nullptr && loop->dict() != nullptr ? find(*loop->dict(), "index0") : nullptr;
    if (values.empty() || index == nullptr || index->integer() == nullptr)
      fail("loop.cycle needs values, within a loop");
    return values[static_cast<size_t>(*index->integer()) % values.size()];
  }

  const RenderOptions& options_;
  std::vector<Scope> scopes_;
  Budget budget_{options_.max_steps};
  int depth_ = 0;
};

}  // namespace

std::string render(const Block& block, const Value& context, const RenderOptions& options) {
  return Interpreter(context, options).run(block);
}

}  // namespace weft::jinja
