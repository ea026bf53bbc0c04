#include "attention/variant/outline.h"

#include <algorithm>
#include <array>

namespace weft {
namespace {

template <size_t N>
bool is_any(const Token& token, const std::array<std::string_view, N>& of) {
  return token.kind != Token::Kind::literal && std::find(of.begin(), of.end(), token.text) != of.end();
}

// Words before parentheses that hold no parameters.
constexpr std::array<std::string_view, 10> kBeforeParentheses = {
    "decltype", "alignas", "__attribute__", "__declspec", "noexcept",
    "explicit", "typeof",  "__typeof__",    "throw",      "static_assert"};
constexpr std::array<std::string_view, 5> kNoMembers = {"using", "typedef", "friend", "static_assert", "concept"};
constexpr std::array<std::string_view, 3> kAccess = {"public", "private", "protected"};
constexpr std::array<std::string_view, 3> kClassKeys = {"struct", "class", "union"};

struct Scope {
  size_t begin, end;
  std::string name_space;
  size_t owner;  // index of the class whose body it is
};
constexpr size_t kNoOwner = static_cast<size_t>(-1);
constexpr size_t kNestedClass = static_cast<size_t>(-2);

// Scopes wait in a list and closing brackets are found once, so that no depth of nesting costs stack or time.
class Outliner {
 public:
  explicit Outliner(std::vector<Token> code) : code_(std::move(code)), closer_(code_.size(), code_.size()) {
    std::vector<size_t> open;
    for (size_t i = 0; i < code_.size(); ++i) {
      if (is(i, "(") || is(i, "[") || is(i, "{")) open.push_back(i);
      if ((is(i, ")") || is(i, "]") || is(i, "}")) && !open.empty()) {
        closer_[open.back()] = i;
        open.pop_back();
      }
    }
  }

  Outline run() {
    scopes_.push_back({0, code_.size(), {}, kNoOwner});
    while (!scopes_.empty()) {
      const Scope scope = std::move(scopes_.back());
      scopes_.pop_back();
      for (size_t i = scope.begin; i < scope.end;) i = std::max(i + 1, declaration(i, scope));
    }
    return {std::move(code_), std::move(classes_), std::move(definitions_), {}};
  }

 private:
  // What is known of a declaration while it is read.
  struct Reading {
    size_t begin = 0, at = 0;
    size_t name = 0;  // of the last word that could be the declared name; `begin` and not a word: none yet
    bool has_name = false, is_qualified = false;
    bool is_template = false, is_static = false, is_bool_or_auto = false, is_no_member = false, is_operator = false;
  };

  bool is(size_t i, std::string_view text) const {
    return i < code_.size() && code_[i].kind != Token::Kind::literal && code_[i].text == text;
  }
  bool is_word(size_t i) const { return i < code_.size() && code_[i].is_word(); }
  size_t after_group(size_t i) const { return std::min(closer_[i] + 1, code_.size()); }

  // Behind the `>` of the `<` at `i`, or behind the `<` alone where it closes nothing.
  size_t after_angles(size_t i) {
    if (i < no_angles_before_) return i + 1;
    size_t depth = 0, j = i;
    while (j < code_.size() && !is(j, ";") && !is(j, "{") && !is(j, "}") && !is(j, ")")) {
      if (is(j, "(") || is(j, "[")) {
        j = after_group(j);
        continue;
      }
      depth += is(j, "<");
      depth -= is(j, ">");
      ++j;
      if (depth == 0) return j;
    }
    no_angles_before_ = j;  // no `<` before here is looked at again
    return i + 1;
  }

  // Behind one token or the brackets that it opens.
  size_t after_one(size_t i) {
    if (is(i, "(") || is(i, "[") || is(i, "{")) return after_group(i);
    return is(i, "<") ? after_angles(i) : i + 1;
  }

  size_t after_attributes(size_t i) const {
    for (;;) {
      if (is(i, "[") && is(i + 1, "["))
        i = after_group(i);
      else if ((is(i, "alignas") || is(i, "__attribute__") || is(i, "__declspec")) && is(i + 1, "("))
        i = after_group(i + 1);
      else
        return i;
    }
  }

  // `requires` begins a clause, whose parentheses are no parameters, or an expression, whose braces are no body.
  size_t after_requires(size_t i) const {
    const bool is_expression =
        is(i + 1, "{") || (i > 0 && (is(i - 1, "requires") || is(i - 1, "&") || is(i - 1, "|") || is(i - 1, "=")));
    ++i;
    if (is(i, "(")) i = after_group(i);
    if (is_expression && is(i, "{")) i = after_group(i);
    return i;
  }

  // The end of one declaration; what it declares is noted.
  size_t declaration(size_t begin, const Scope& scope) {
    if (is_any(code_[begin], kAccess) && is(begin + 1, ":")) return begin + 2;
    Reading r{.begin = begin, .at = begin};
    while (r.at < scope.end) {
      const size_t i = r.at;
      if (is(i, ";") || is(i, "=") || is(i, "{") || is(i, ",") || is(i, ":")) return after_data(r, scope);
      if (is(i, "namespace") && !r.is_no_member) return after_namespace(r, scope);
      if (is(i, "extern") && i + 1 < code_.size() && code_[i + 1].kind == Token::Kind::literal && is(i + 2, "{")) {
        scopes_.push_back({i + 3, closer_[i + 2], scope.name_space, scope.owner});
        return after_group(i + 2);
      }
      if (is(i, "operator")) {
        after_operator(r);
      } else if (is(i, "(")) {
        if (parameters(r)) return after_function(r, scope);
      } else if (is(i, "[")) {
        r.at = after_group(i);
      } else if (is(i, "<")) {
        r.at = after_angles(i);
      } else if (is(i, "requires")) {
        r.at = after_requires(i);
      } else if (is(i, "enum")) {
        after_enum(r);
      } else if (is_any(code_[i], kClassKeys)) {
        after_class(r, scope);
      } else {
        word(r);
      }
    }
    return scope.end;
  }

  void word(Reading& r) {
    const size_t i = r.at++;
    if (!is_word(i)) return;
    r.is_template = r.is_template || is(i, "template");
    r.is_static = r.is_static || is(i, "static");
    r.is_bool_or_auto = r.is_bool_or_auto || is(i, "bool") || is(i, "auto");
    r.is_no_member = r.is_no_member || is_any(code_[i], kNoMembers);
    r.has_name = true;
    r.name = i;
    r.is_qualified = i > 0 && is(i - 1, "::");
  }

  // operator+, operator(), operator bool: up to the parameters.
  void after_operator(Reading& r) {
    r.is_operator = true;
    r.at = is(r.at + 1, "(") && is(r.at + 2, ")") ? r.at + 3 : r.at + 1;
    while (r.at < code_.size() && !is(r.at, "(") && !is(r.at, ";") && !is(r.at, "{")) ++r.at;
  }

  // Whether the parentheses at `r.at` are the parameters of a function: then `r.at` is behind them and `r.name` is the
  // function's. Else `r.at` is behind what is none.
  bool parameters(Reading& r) {
    const size_t open = r.at, close = closer_[open];
    r.at = after_group(open);
    if (r.is_operator) return true;
    if (open == 0 || is_any(code_[open - 1], kBeforeParentheses)) return false;
    if (is(r.at, "(") || is(r.at, "[")) {  // T (name)(parameters), T (*name)(parameters), T (&name)[n]
      const bool is_function = is(r.at, "(");
      bool is_pointer = false;
      for (size_t i = open + 1; i < close; ++i) {
        is_pointer = is_pointer || is(i, "*") || is(i, "&");
        if (!is_word(i)) continue;
        r.has_name = true;
        r.name = i;
      }
      if (is_function) r.at = after_group(r.at);
      r.is_bool_or_auto = r.is_bool_or_auto || is_pointer;  // what it points to may be a hook's code
      return is_function && !is_pointer;
    }
    // The name, perhaps with template arguments or an attribute behind it.
    return r.has_name && (is_word(open - 1) || is(open - 1, ">") || is(open - 1, "]"));
  }

  void add(const Reading& r, Member::Kind kind, size_t end, const Scope& scope) {
    if (r.is_no_member || r.is_operator || !r.has_name || is(r.name - 1, "~")) return;
    Member member{kind, code_[r.name].text, r.is_bool_or_auto, r.begin, end};
    if (scope.owner == kNoOwner && r.is_qualified)
      definitions_.push_back(std::move(member));
    else if (scope.owner < classes_.size() && member.name != classes_[scope.owner].name)
      classes_[scope.owner].members.push_back(std::move(member));
  }

  // Behind the parameters of a function: its body or its `;`.
  size_t after_function(Reading& r, const Scope& scope) {
    bool initialises = false;  // the members of a constructor
    size_t i = r.at;
    while (i < scope.end && !is(i, ";") && (initialises || !is(i, ","))) {
      initialises = initialises || is(i, ":");
      if (is(i, "{") && !(initialises && (is_word(i - 1) || is(i - 1, ">")))) {
        i = after_group(i);
        add(r, Member::Kind::function, i, scope);
        return i;
      }
      if (is(i, "requires"))
        i = after_requires(i);
      else
        i = after_one(i);
    }
    i = std::min(i, scope.end);
    add(r, Member::Kind::function, i, scope);
    return i + 1;
  }

  // Behind the name of a data member, or behind a type alone: over its initialiser to the next declarator's name.
  size_t after_data(Reading& r, const Scope& scope) {
    size_t i = r.at;
    for (; i < scope.end && !is(i, ";");) {
      if (is(i, ",")) {
        if (r.is_static) add(r, Member::Kind::constant, i, scope);
        r.begin = i;
        r.has_name = false;
        ++i;
        while (i < scope.end && !is(i, ";") && !is(i, ",") && !is(i, "=") && !is(i, "{") && !is(i, "(") &&
               !is(i, "[")) {
          if (is_word(i)) r.has_name = true, r.name = i;
          ++i;
        }
      } else {
        i = after_one(i);
      }
    }
    i = std::min(i, scope.end);
    if (r.is_static) add(r, Member::Kind::constant, i, scope);
    return i + 1;
  }

  size_t after_namespace(const Reading& r, const Scope& scope) {
    const bool is_inline = r.at > r.begin && is(r.at - 1, "inline");
    size_t i = r.at + 1;
    std::string name;
    for (; i < scope.end && !is(i, "{") && !is(i, ";");) {
      if (const size_t after = after_attributes(i); after != i) {
        i = after;
        continue;
      }
      name += code_[i++].text;
    }
    if (!is(i, "{")) return i + 1;
    if (is_inline || name.empty()) name = scope.name_space;
    scopes_.push_back({i + 1, std::min(closer_[i], scope.end), std::move(name), scope.owner});
    return after_group(i);
  }

  void after_enum(Reading& r) {
    size_t i = r.at + 1;
    while (is_word(i) || is(i, ":") || is(i, "::") || is(i, "[")) i = is(i, "[") ? after_group(i) : i + 1;
    r.at = is(i, "{") ? after_group(i) : r.at + 1;
  }

  // Behind the body of a class that is defined here; behind the keyword alone where one is only named.
  void after_class(Reading& r, const Scope& scope) {
    const size_t keyword = r.at++;
    ClassOutline found{.name_space = scope.name_space, .is_template = r.is_template};
    size_t i = after_attributes(keyword + 1);
    if (is_word(i) && !is(i, "final")) found.name = code_[i++].text;
    if (is(i, "<")) i = after_angles(i);
    if (is(i, "final")) found.is_final = true, ++i;
    if (is(i, ":"))
      for (++i; i < scope.end && !is(i, "{") && !is(i, ";"); ++i)
        if (is_word(i)) found.bases.push_back(code_[i].text);
    if (!is(i, "{")) return;
    r.at = after_group(i);
    r.has_name = false;
    size_t owner = kNestedClass;
    if (scope.owner == kNoOwner && !is(keyword, "union")) {
      owner = classes_.size();
      classes_.push_back(std::move(found));
    }
    scopes_.push_back({i + 1, std::min(closer_[i], scope.end), scope.name_space, owner});
  }

  std::vector<Token> code_;
  std::vector<size_t> closer_;  // of each opening bracket; the number of tokens where none is
  std::vector<Scope> scopes_;   // still to be read
  std::vector<ClassOutline> classes_;
  std::vector<Member> definitions_;
  size_t no_angles_before_ = 0;
};

}  // namespace

const ClassOutline* Outline::find(std::string_view name) const {
  const ClassOutline* found = nullptr;
  for (const ClassOutline& one : classes)
    if (one.name == name && (found == nullptr || (!found->name_space.empty() && one.name_space.empty()))) found = &one;
  return found;
}

size_t Outline::uses(std::string_view name) const {
  const auto found = words.find(name);
  return found != words.end() ? found->second : 0;
}

Outline outline_of(const std::vector<Token>& text) {
  std::vector<Token> code;
  std::copy_if(text.begin(), text.end(), std::back_inserter(code), [](const Token& t) { return !t.in_directive; });
  Outline outline = Outliner(std::move(code)).run();
  for (const Token& token : text)
    if (token.is_word()) ++outline.words[token.text];
  const auto leave_out_own = [&](const std::vector<Member>& members) {
    for (const Member& member : members)
      for (size_t i = member.begin; i < member.end; ++i)
        if (outline.code[i].is_word() && outline.code[i].is(member.name)) --outline.words[member.name];
  };
  leave_out_own(outline.definitions);
  for (const ClassOutline& one : outline.classes) leave_out_own(one.members);
  return outline;
}

}  // namespace weft
