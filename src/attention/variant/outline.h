// The classes that a text defines, with the members that could be taken for hooks: as much of C++ as that needs.
//
//   const std::vector<Token> code = tokens(variant.text);
//   const Outline outline = outline_of(code);
//   if (const ClassOutline* own = outline.find("Own")) for (const Member& member : own->members) ...
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attention/variant/tokens.h"

namespace weft {

struct Member {
  // A function; or a static data member, which is a constant as kernels see it.
  enum class Kind : uint8_t { function, constant };
  Kind kind = Kind::function;
  std::string name;
  bool is_bool_or_auto = false;  // the type of a constant
  size_t begin = 0, end = 0;     // its declaration: the tokens of `Outline::code` from begin to before end
};

struct ClassOutline {
  std::string name = {};
  std::string name_space = {};  // empty: none but unnamed and inline ones
  bool is_template = false, is_final = false;
  std::vector<std::string> bases = {};  // names, and those among their template arguments
  // Functions and constants, without constructors, destructors, operators, friends and what classes inside have.
  std::vector<Member> members = {};
};

struct Outline {
  std::vector<Token> code;  // without preprocessor lines
  std::vector<ClassOutline> classes;
  std::vector<Member> definitions;  // of members outside of their class

  // The class of this name that has no namespace, or else one in a namespace, or null.
  const ClassOutline* find(std::string_view name) const;
  std::map<std::string, size_t, std::less<>> words;  // of the whole text, but for those in the member of this name

  // How often the text says this name outside of where a member of the name is declared or defined.
  size_t uses(std::string_view name) const;
};

// Never fails: of a text that is no C++ it finds something or nothing, in a time that grows as its length.
Outline outline_of(const std::vector<Token>& text);

}  // namespace weft
