#include "sparse/stage2/nest.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage2/outside.h"

namespace weft::sparse {
namespace {

bool find_path(Body& body, const std::string& block, std::vector<Nest::Level>& path) {
  for (size_t i = 0; i < body.size(); ++i) {
    path.push_back({&body, i});
    if (body[i].kind == Stmt::Kind::block && body[i].name == block) return true;
    if (find_path(body[i].body, block, path)) return true;
    path.pop_back();
  }
  return false;
}

}  // namespace

std::vector<Stmt*> Nest::loops() const {
  std::vector<Stmt*> list;
  for (const Level& level : path)
    if (level.stmt().kind == Stmt::Kind::loop) list.push_back(&level.stmt());
  return list;
}

size_t Nest::find(const std::string& variable) const {
  for (size_t i = 0; i < path.size(); ++i)
    if (path[i].stmt().kind == Stmt::Kind::loop && path[i].stmt().name == variable) return i;
  return path.size();
}

Around Nest::around(size_t place) const {
  Around list;
  for (size_t l = 0; l <= place; ++l) {
    const Level& level = path[l];
    for (size_t before = 0; before < level.index; ++before)
      if (const Stmt& stmt = (*level.body)[before]; stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate)
        list.push_back(&stmt);
    if (l < place && (level.stmt().kind == Stmt::Kind::loop || level.stmt().kind == Stmt::Kind::condition))
      list.push_back(&level.stmt());
  }
  return list;
}

Names Nest::reductions() const { return reductions_of(block(), around(path.size() - 1)); }

Expr Nest::without_lets(const Expr& e) const {
  const Around list = around(path.size() - 1);
  Expr result = e;
  for (auto stmt = list.rbegin(); stmt != list.rend(); ++stmt)
    if ((*stmt)->kind == Stmt::Kind::let) result = loop::substitute(result, {{(*stmt)->name, (*stmt)->value}});
  return result;
}

Nest find_block(Stage2& stage, const std::string& block) {
  Nest nest;
  if (find_path(stage.body, block, nest.path)) return nest;
  std::vector<std::string> known;
  visit(stage.body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::block) known.push_back(stmt.name);
  });
  fail(ErrorCode::invalid_argument, "'{}': there is no such block; there are {}{}", block, joined(known),
       did_you_mean(block, known));
}

LoopInNest find_loop(Stage2& stage, const std::string& name) {
  const size_t dot = name.find('.');
  check(dot != name.npos && dot > 0 && dot + 1 < name.size(), ErrorCode::invalid_argument,
        "'{}': a loop is named by its block and its variable, as in csrmm.k", name);
  LoopInNest found{.name = name, .block = name.substr(0, dot), .variable = name.substr(dot + 1)};
  found.nest = find_block(stage, found.block);
  found.place = found.nest.find(found.variable);
  if (found.place < found.nest.path.size()) return found;
  const std::string list = joined(found.nest.loops(), [](const Stmt* loop) { return loop->name; });
  fail(ErrorCode::invalid_argument, "'{}': no loop of that variable is around block '{}'; there are {}", name,
       found.block, list.empty() ? "none" : list);
}

void refuse(const std::string& primitive, const std::string& loop, const std::string& why) {
  fail(ErrorCode::invalid_argument, "{}({}): {}", primitive, loop, why);
}

void check_written_surely(const std::string& primitive, const std::string& loop, const Stmt& block,
                          const std::string& buffer) {
  for (const Body* body : {&block.init, &block.body})
    visit(*body, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::fail && (buffer.empty() || stmt.name == buffer))
        refuse(primitive, loop,
               fmt::format("'{}' is written where it may store nothing; leave such points out by the iteration's where",
                           stmt.name));
    });
}

std::string memory_needed(const Body& statements, const Body& moved) {
  std::string needed;
  visit(statements, [&](const Stmt& stmt) {
    if (needed.empty() && stmt.kind == Stmt::Kind::allocate && loop::accesses(moved, stmt.name)) needed = stmt.name;
  });
  return needed;
}

void check_memory_around(const Nest& nest, size_t place, const Body& moved) {
  const std::string memory = memory_needed(nest.path[place].stmt().body, moved);
  check(memory.empty(), ErrorCode::unsupported,
        "block '{}': what would run around loop '{}' needs '{}', which is kept within it; name a loop within that "
        "memory, or keep it later",
        nest.block().name, nest.path[place].stmt().name, memory);
}

Names taken_names(const Stage2& stage) {
  Names names = stage.all_names();
  visit(stage.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate)
      names.insert(stmt.name);
  });
  return names;
}

void check_new_name(const Stage2& stage, const Nest& nest, const std::string& name) {
  Names names = stage.all_names();
  visit(Body{nest.path[0].stmt()}, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::store && stmt.kind != Stmt::Kind::block) names.insert(stmt.name);
  });
  check(!names.contains(name), ErrorCode::invalid_argument,
        "'{}': a loop cannot be called so: something in its nest, or of the program, has the name", name);
}

int64_t literal_extent(const std::string& primitive, const LoopInNest& loop) {
  int64_t extent = 0;
  if (!loop::is_integer(loop.loop().value, &extent))
    refuse(primitive, loop.name,
           fmt::format("its extent {} is no literal; split the loop by a literal first, or specialise the parameter",
                       loop::to_words(loop.loop().value)));
  return extent;
}

bool loads_anything(const Expr& e) {
  bool found = false;
  loop::visit(e, [&](const Expr& node) { found |= node->op == Op::load || loop::is_search(node->op); });
  return found;
}

Names names_in(const Expr& e) {
  Names names = loop::variables_of(e);
  loop::visit(e, [&](const Expr& node) {
    if (!node->name.empty()) names.insert(node->name);
  });
  return names;
}

bool have_common(const Names& a, const Names& b) {
  return std::any_of(a.begin(), a.end(), [&](const std::string& name) { return b.contains(name); });
}

Body spatial_nest(const Stage2& stage, const Nest& nest, size_t from, Body inner, Inner kind) {
  // Outer to inner: names that depend on a reduction.
  const Names reductions = nest.reductions();
  Names reduced;
  const auto is_reduced = [&](const Expr& e) { return have_common(loop::variables_of(e), reduced); };
  Body levels;
  std::vector<const Stmt*> left_out;
  for (size_t i = from; i + 1 < nest.path.size(); ++i) {
    const Nest::Level& level = nest.path[i];
    // Lets stand before what they are for, in the same body.
    for (size_t before = 0; before < level.index; ++before) {
      const Stmt& let = (*level.body)[before];
      if (let.kind != Stmt::Kind::let || i == from) continue;
      if (is_reduced(let.value))
        reduced.insert(let.name);
      else
        levels.push_back(let);
    }
    const Stmt& stmt = level.stmt();
    if (stmt.kind == Stmt::Kind::loop && reductions.contains(stmt.name)) {
      reduced.insert(stmt.name);
      left_out.push_back(&stmt);
    } else if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::condition) {
      if (is_reduced(stmt.value)) {
        check(stmt.kind == Stmt::Kind::condition, ErrorCode::unsupported,
              "block '{}': the spatial loop '{}' has an extent that depends on a reduction; put it outside",
              nest.block().name, stmt.name);
        left_out.push_back(&stmt);
        continue;
      }
      levels.push_back(stmt);
      levels.back().body.clear();
    }
  }
  // Lets beside the block, as far as they are needed.
  Names used;
  visit_exprs(inner, [&](const Expr& e) { used.merge(loop::variables_of(e)); });
  const size_t last = nest.path.size() - 1;
  Body beside;
  for (size_t before = nest.path[last].index; before-- > 0 && last > from;) {
    const Stmt& let = (*nest.path[last].body)[before];
    if (let.kind != Stmt::Kind::let || !used.contains(let.name)) continue;
    used.merge(loop::variables_of(let.value));
    if (is_reduced(let.value))
      reduced.insert(let.name);
    else
      beside.insert(beside.begin(), let);
  }
  levels.insert(levels.end(), beside.begin(), beside.end());
  for (const std::string& name : used)
    check(!reduced.contains(name), ErrorCode::unsupported,
          "block '{}': init or write-back needs '{}', which depends on a reduction; keep its spatial loops apart from "
          "the reduction's",
          nest.block().name, name);
  if (kind == Inner::copy)
    inner = where_they_run(stage, nest, from, nest.around(from), levels, left_out, std::move(inner));
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    Stmt stmt = *level;
    if (stmt.kind != Stmt::Kind::let) {
      stmt.body = std::move(inner);
      inner.clear();
    }
    inner.insert(inner.begin(), std::move(stmt));
  }
  check_memory_around(nest, from, inner);
  // Lets around all of it would meet those of the nest in the body around both.
  while (!inner.empty() && inner[0].kind == Stmt::Kind::let) {
    const Substitution value{{inner[0].name, inner[0].value}};
    inner.erase(inner.begin());
    substitute(inner, value);
  }
  return inner;
}

}  // namespace weft::sparse
