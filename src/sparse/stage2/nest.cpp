#include "sparse/stage2/nest.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/names.h"

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

Names Nest::reductions() const {
  // What the indices of the block's writes are made of, through what `let` names.
  Names used;
  Body lets;
  for (const Body* body : {&block().init, &block().body})
    visit(*body, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::let) lets.push_back(stmt);
      if (stmt.kind == Stmt::Kind::store && !block().init.empty())
        for (const Expr& index : stmt.indices) used.merge(loop::variables_of(index));
    });
  for (auto let = lets.rbegin(); let != lets.rend(); ++let)
    if (used.contains(let->name)) used.merge(loop::variables_of(let->value));
  for (auto level = path.rbegin(); level != path.rend(); ++level)
    for (size_t before = level->index; before-- > 0;)
      if (const Stmt& let = (*level->body)[before]; let.kind == Stmt::Kind::let && used.contains(let.name))
        used.merge(loop::variables_of(let.value));
  // Memory of its own is new in every iteration of the loops around it.
  size_t outermost = 0;
  for (size_t l = 0; l < path.size(); ++l)
    for (size_t before = 0; before < path[l].index; ++before)
      if (const Stmt& stmt = (*path[l].body)[before];
          stmt.kind == Stmt::Kind::allocate && loop::stores_to(block().init, stmt.name))
        outermost = l;
  Names names;
  for (size_t l = outermost; l < path.size(); ++l)
    if (const Stmt& loop = path[l].stmt(); loop.kind == Stmt::Kind::loop && loop.reduction && !used.contains(loop.name))
      names.insert(loop.name);
  return names;
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

void check_written_surely(const std::string& primitive, const std::string& loop, const Stmt& block) {
  visit(block.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::fail)
      refuse(primitive, loop,
             fmt::format("'{}' is written where it may store nothing; leave such points out by the iteration's where",
                         stmt.name));
  });
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
                       loop::to_text(loop.loop().value)));
  return extent;
}

std::string conflict_of(const loop::Regions& a, const loop::Regions& b) {
  for (const auto& [one, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    for (const loop::Region& written : one->writes)
      for (const loop::Region* accessed : {other->find_read(written.buffer), other->find_written(written.buffer)})
        if (accessed != nullptr && !are_apart(written, *accessed)) return written.buffer;
  return {};
}

Body spatial_nest(const Nest& nest, size_t from, Body inner) {
  // Outer to inner: names that depend on a reduction.
  const Names reductions = nest.reductions();
  Names reduced;
  const auto is_reduced = [&](const Expr& e) {
    const Names used = loop::variables_of(e);
    return std::any_of(used.begin(), used.end(), [&](const std::string& v) { return reduced.contains(v); });
  };
  Body levels;
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
    } else if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::condition) {
      if (is_reduced(stmt.value)) {
        check(stmt.kind == Stmt::Kind::condition, ErrorCode::unsupported,
              "block '{}': the spatial loop '{}' has an extent that depends on a reduction; put it outside",
              nest.block().name, stmt.name);
        continue;
      }
      levels.push_back(stmt);
      levels.back().body.clear();
    }
  }
  Names used;
  visit_exprs(inner, [&](const Expr& e) { used.merge(loop::variables_of(e)); });
  for (const std::string& name : used)
    check(!reduced.contains(name), ErrorCode::unsupported,
          "block '{}': init or write-back needs '{}', which depends on a reduction; keep its spatial loops apart from "
          "the reduction's",
          nest.block().name, name);
  for (auto level = levels.rbegin(); level != levels.rend(); ++level) {
    Stmt stmt = *level;
    if (stmt.kind != Stmt::Kind::let) {
      stmt.body = std::move(inner);
      inner.clear();
    }
    inner.insert(inner.begin(), std::move(stmt));
  }
  return inner;
}

}  // namespace weft::sparse
