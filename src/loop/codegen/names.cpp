#include "loop/codegen/names.h"

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <string_view>
#include <utility>

namespace weft::loop {
namespace {

constexpr std::string_view kReserved[] = {
    // Words of C++.
    "alignas", "alignof", "and", "and_eq", "asm", "auto", "bitand", "bitor", "bool", "break", "case", "catch", "char",
    "char16_t", "char32_t", "char8_t", "class", "co_await", "co_return", "co_yield", "compl", "concept", "const",
    "const_cast", "consteval", "constexpr", "constinit", "continue", "decltype", "default", "delete", "do", "double",
    "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "float", "for", "friend", "goto", "if",
    "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "not_eq", "nullptr", "operator", "or",
    "or_eq", "private", "protected", "public", "register", "reinterpret_cast", "requires", "return", "short", "signed",
    "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template", "this", "thread_local", "throw",
    "true", "try", "typedef", "typeid", "typename", "typeof", "union", "unsigned", "using", "virtual", "void",
    "volatile", "wchar_t", "while", "xor", "xor_eq",
    // Of compilers, and macros that they or headers around the text may define.
    "assert", "errno", "i386", "linux", "restrict", "stderr", "stdin", "stdout", "unix", "EOF", "INFINITY", "NAN",
    "NULL",
    // Of CUDA, within kernels.
    "blockDim", "blockIdx", "gridDim", "threadIdx", "warpSize",
    // Arguments of the functions.
    "buffers", "scalars", "worker", "workers"};

constexpr std::string_view kOwn = "weft";  // what generated text and passes declare begins so

bool begins_as_own(std::string_view name) {
  return name.size() >= kOwn.size() && std::equal(kOwn.begin(), kOwn.end(), name.begin(), [](char a, char b) {
           return a == std::tolower(static_cast<unsigned char>(b));
         });
}

bool is_reserved(std::string_view name) {
  const bool is_of_compilers =
      name.size() > 1 && name[0] == '_' && (name[1] == '_' || (name[1] >= 'A' && name[1] <= 'Z'));
  return is_of_compilers || begins_as_own(name) ||
         std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved);
}

std::string free_name(const std::string& name, const Names& taken) {
  const bool by_its_begin = name[0] == '_' || begins_as_own(name);
  return fresh_name((by_its_begin ? "own_" : "") + name + "_", taken);
}

// All names that are declared; of them those of loops.
Names declared_names(const Function& function, Names& loops) {
  Names names(function.scalars.begin(), function.scalars.end());
  for (const Buffer& buffer : function.buffers) names.insert(buffer.name);
  visit(function.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::loop) loops.insert(stmt.name);
    if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate)
      names.insert(stmt.name);
  });
  return names;
}

using Renaming = std::map<std::string, std::string>;

void rename(std::string& name, const Renaming& to) {
  if (const auto found = to.find(name); found != to.end()) name = found->second;
}

Expr renamed(const Expr& e, const Renaming& to) {
  return rewrite(e, [&](const Expr& node) {
    if (node->name.empty() || !to.contains(node->name)) return node;
    Node copy = *node;
    rename(copy.name, to);
    return Expr(std::make_shared<const Node>(std::move(copy)));
  });
}

void rename(Body& body, const Renaming& to) {
  rewrite_exprs(body, [&](const Expr& e) { return renamed(e, to); });
  visit(body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::fail) return;
    rename(stmt.name, to);
    rename(stmt.balance, to);
  });
}

}  // namespace

Function with_free_names(Function function) {
  Names loops;
  const Names declared = declared_names(function, loops);
  Names taken = declared;
  Renaming to;
  for (const std::string& name : declared) {
    // The share of a balanced loop i ends at i_end.
    constexpr std::string_view kEnd = "_end";
    const bool is_end = name.ends_with(kEnd) && loops.contains(name.substr(0, name.size() - kEnd.size()));
    if (is_end || is_reserved(name)) taken.insert(to[name] = free_name(name, taken));
  }
  if (to.empty()) return function;
  for (std::string& scalar : function.scalars) rename(scalar, to);
  for (Buffer& buffer : function.buffers) {
    rename(buffer.name, to);
    for (Expr* e : {&buffer.size, &buffer.least, &buffer.most})
      if (*e) *e = renamed(*e, to);
  }
  for (auto& list : function.apart)
    for (std::string& buffer : list) rename(buffer, to);
  rename(function.body, to);
  return function;
}

}  // namespace weft::loop
