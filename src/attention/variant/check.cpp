// What is refused of a variant's text before any compiler sees it.
#include "base/check.h"

#include <algorithm>
#include <array>

#include "attention/variant/outline.h"
#include "attention/variant/text.h"
#include "attention/variant/tokens.h"
#include "base/names.h"

namespace weft {
namespace {

// The key of a kernel is made of its text, so nothing else may flow into what is compiled. Names pasted of two tokens
// could be any of those below, and of the hooks.
constexpr std::array<std::string_view, 13> kDirectives = {"define", "undef",   "if",       "ifdef", "ifndef",
                                                          "elif",   "elifdef", "elifndef", "else",  "endif",
                                                          "error",  "warning", "pragma"};
constexpr std::array<std::string_view, 17> kPragmas = {
    "GCC unroll",       "GCC ivdep",        "GCC novector", "GCC diagnostic", "GCC optimize",     "GCC target",
    "GCC push_options", "GCC pop_options",  "clang loop",   "clang fp",       "clang diagnostic", "clang optimize",
    "STDC FENV_ACCESS", "STDC FP_CONTRACT", "omp simd",     "unroll",         "nounroll"};
constexpr std::array<std::string_view, 7> kFileWords = {
    "import",      "__has_include", "__has_include__", "__has_include_next", "__has_include_next__",
    "__has_embed", "__has_embed__"};
constexpr std::array<std::string_view, 3> kAssembler = {"asm", "__asm", "__asm__"};
// Their string goes to the assembler as it stands, whatever lines it holds.
constexpr std::array<std::string_view, 4> kSections = {"section", "__section__", "symver", "__symver__"};
constexpr std::array<std::string_view, 3> kClock = {"__DATE__", "__TIME__", "__TIMESTAMP__"};
constexpr std::array<std::string_view, 2> kPragmaWords = {"_Pragma", "__pragma"};

template <size_t N>
bool is_any(std::string_view word, const std::array<std::string_view, N>& of) {
  return std::find(of.begin(), of.end(), word) != of.end();
}

// The words of a directive, its # left out.
std::vector<std::string_view> words_of_directive(const std::vector<Token>& all, size_t i) {
  std::vector<std::string_view> words;
  for (++i; i < all.size() && all[i].in_directive && !all[i].begins_directive; ++i) words.push_back(all[i].text);
  return words;
}

void check_directive(const Variant& v, const std::vector<Token>& all, size_t i) {
  const auto words = words_of_directive(all, i);
  if (words.empty()) return;
  check(is_any(words[0], kDirectives), ErrorCode::invalid_argument,
        "line {} of the text of variant '{}' is #{}; kernels include nothing and stand for their text alone: use the "
        "functions of weft:: (docs/variants.md); allowed are #define, #undef, conditions, #error, #warning and "
        "#pragma",
        all[i].line, v.name, words[0]);
  if (words[0] != "pragma" || words.size() < 2) return;
  const std::string name = std::string(words[1]) + (words.size() > 2 ? " " + std::string(words[2]) : "");
  check(is_any(words[1], kPragmas) || is_any(name, kPragmas), ErrorCode::invalid_argument,
        "line {} of the text of variant '{}' is #pragma {}; allowed are {}", all[i].line, v.name, name,
        fmt::join(kPragmas, ", "));
}

void check_word(const Variant& v, const Token& token) {
  const std::string_view word = token.text;
  check(!is_any(word, kFileWords), ErrorCode::invalid_argument,
        "line {} of the text of variant '{}' says {}, which looks at files; kernels include nothing: use the functions "
        "of weft:: (docs/variants.md)",
        token.line, v.name, word);
  check(!is_any(word, kAssembler), ErrorCode::invalid_argument,
        "line {} of the text of variant '{}' says {}; a variant is plain C++ for every instruction set and for the "
        "reference in double: use the functions of weft:: (docs/variants.md)",
        token.line, v.name, word);
  check(
      !is_any(word, kClock), ErrorCode::invalid_argument,
      "line {} of the text of variant '{}' says {}; a kernel is kept under its text, so nothing in it may change with "
      "the clock: leave it out",
      token.line, v.name, word);
  check(!is_any(word, kPragmaWords), ErrorCode::invalid_argument,
        "line {} of the text of variant '{}' says {}; write it as a line #pragma", token.line, v.name, word);
}

void check_characters(const Variant& v) {
  check(v.text.find('\0') == v.text.npos, ErrorCode::invalid_argument, "the text of variant '{}' holds a zero byte",
        v.name);
  for (size_t i = v.text.find('\r'); i != v.text.npos; i = v.text.find('\r', i + 1))
    check(i + 1 < v.text.size() && v.text[i + 1] == '\n', ErrorCode::invalid_argument,
          "the text of variant '{}' holds a carriage return that ends no line, at byte {}; to some compilers it is a "
          "new line and to some it is none: end lines with \\n",
          v.name, i);
}

// `section("...")` of an attribute; a function or a parameter of this name is given no string.
void check_section(const Variant& v, const std::vector<Token>& all, size_t i) {
  const bool is_section = is_any(all[i].text, kSections) && i + 2 < all.size() && all[i + 1].is("(") &&
                          all[i + 2].kind == Token::Kind::literal;
  check(!is_section, ErrorCode::invalid_argument,
        "line {} of the text of variant '{}' gives the assembler a {}; a variant is plain C++: leave the attribute out",
        all[i].line, v.name, all[i].text);
}

const ClassOutline& check_class(const Variant& v, const Outline& outline) {
  const ClassOutline* own = outline.find(v.name);
  check(own != nullptr, ErrorCode::invalid_argument,
        "the text of variant '{}' has no class of this name; begin it with struct {} {{", v.name, v.name);
  check(own->name_space.empty(), ErrorCode::invalid_argument,
        "the text of variant '{}' has its class in namespace {}; kernels look for it outside of every namespace: move "
        "struct {} out",
        v.name, own->name_space, v.name);
  check(!own->is_template, ErrorCode::invalid_argument,
        "the text of variant '{}' makes it a template; kernels need a class: write struct {} : TheTemplate<...> {{}}; "
        "behind it",
        v.name, v.name);
  check(!own->is_final, ErrorCode::invalid_argument,
        "the class of variant '{}' is final; kernels derive from it to see which hooks it has: leave final out",
        v.name);
  return *own;
}

// Own and what it derives from, as far as the text defines it.
std::vector<const ClassOutline*> with_bases(const ClassOutline& own, const Outline& outline) {
  std::vector<const ClassOutline*> all = {&own};
  for (size_t i = 0; i < all.size(); ++i)
    for (const std::string& base : all[i]->bases) {
      const ClassOutline* found = outline.find(base);
      if (found != nullptr && std::find(all.begin(), all.end(), found) == all.end()) all.push_back(found);
    }
  return all;
}

const std::vector<std::string>& hooks() {
  static const std::vector<std::string> names = {
      "init",        "query_transform",  "key_transform", "value_transform", "logits_transform",
      "logits_mask", "output_transform", "lse_transform", "leaves_logits",   "use_softmax"};
  return names;
}

// Kernels call hooks alone: a function that is none and that nothing calls is a hook with a wrong name, and so is a
// constant that nothing reads, if it could be one by its type or by its name.
bool is_misspelt(const Member& member, const Outline& outline) {
  if (std::find(hooks().begin(), hooks().end(), member.name) != hooks().end()) return false;
  if (outline.uses(member.name) != 0) return false;
  return member.kind == Member::Kind::function || member.is_bool_or_auto || !did_you_mean(member.name, hooks()).empty();
}

}  // namespace

void check_variant_text(const Variant& v) {
  check_characters(v);
  const std::vector<Token> all = tokens(v.text);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].begins_directive) check_directive(v, all, i);
    if (all[i].is_word()) check_word(v, all[i]);
    if (all[i].is_word()) check_section(v, all, i);
    check(!all[i].is("##"), ErrorCode::invalid_argument,
          "line {} of the text of variant '{}' pastes tokens with ##; write names out, so that it can be seen which "
          "hooks there are",
          all[i].line, v.name);
  }
  const Outline outline = outline_of(all);
  for (const ClassOutline* one : with_bases(check_class(v, outline), outline))
    for (const Member& member : one->members)
      check(!is_misspelt(member, outline), ErrorCode::invalid_argument,
            "variant '{}' has a member '{}' that is no hook and that nothing in its text uses, so no kernel would; did "
            "you mean '{}'? (hooks are {}; remove what is neither a hook nor used)",
            v.name, member.name, nearest_name(member.name, hooks()), fmt::join(hooks(), ", "));
}

}  // namespace weft
