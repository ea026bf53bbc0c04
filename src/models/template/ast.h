// The tree of a template. Every node knows its line.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/template/value.h"

namespace weft::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Arguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Expression {
  enum Kind {
    constant,   // value
    name,       // text
    list,       // parts; tuple where text is "tuple"
    dict,       // parts: key, value, key, value, ...
    attribute,  // parts[0].text
    subscript,  // parts[0][parts[1]]
    slice,      // parts[0][parts[1]:parts[2]:parts[3]], null where left out
    call,       // parts[0](arguments)
    filter,     // parts[0] | text(arguments)
    test,       // parts[0] is text(arguments)
    unary,      // text: "-", "+", "not"
    binary,     // text: an operator, "and", "or", "in", "not in"
    choice,     // parts[0] if parts[1] else parts[2] (may be null)
  };
  Kind kind = constant;
  int line = 1, depth = 1;
  std::string text;
  Value value;
  std::vector<ExpressionPtr> parts;
  Arguments arguments;
};

struct Statement;
using Block = std::vector<std::unique_ptr<Statement>>;

struct Macro {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExpressionPtr> defaults;  // of the last parameters
  Block body;
};

struct Statement {
  enum Kind {
    text,          // text
    print,         // expressions[0]
    branch,        // expressions[i] guards blocks[i]; one block more is the else
    loop,          // targets in expressions[0] (if expressions[1], may be null): blocks[0], else blocks[1]
    assign,        // targets = expressions[0]; or target text.attribute = expressions[0]
    assign_block,  // targets[0] = output of blocks[0], through expressions[0] where there are filters
    macro,
    leave,  // break
    next,   // continue
    group,  // blocks[0], as it stands: {% generation %}
  };
  Kind kind = text;
  int line = 1;
  std::string content, attribute;
  std::vector<std::string> targets;
  std::vector<ExpressionPtr> expressions;
  std::vector<Block> blocks;
  std::unique_ptr<Macro> definition;
  bool uses_state = false;  // of a loop: its body names `loop`
};

}  // namespace weft::jinja
