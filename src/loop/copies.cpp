#include "loop/copies.h"

#include <algorithm>
#include <utility>

namespace weft::loop {
namespace {

// The way to the only store to the memory, from the statement on; init runs elsewhere.
bool find_store(const Stmt& stmt, const std::string& memory, std::vector<const Stmt*>& path) {
  path.push_back(&stmt);
  if (stmt.kind == Stmt::Kind::store && stmt.name == memory) return true;
  for (const Stmt& inner : stmt.body)
    if (find_store(inner, memory, path)) return true;
  path.pop_back();
  return false;
}

const Stmt* loop_of(const std::vector<const Stmt*>& path, const Expr& variable) {
  const auto found = std::find_if(path.begin(), path.end(), [&](const Stmt* stmt) {
    return stmt->kind == Stmt::Kind::loop && is_variable(variable, stmt->name);
  });
  return found == path.end() ? nullptr : *found;
}

// Variables that are set along the path, but for those of its loops.
Names lets_along(const std::vector<const Stmt*>& path) {
  Names names;
  for (size_t l = 0; l + 1 < path.size(); ++l)
    for (const Stmt& before : path[l]->body) {
      if (&before == path[l + 1]) break;
      if (before.kind == Stmt::Kind::let) names.insert(before.name);
    }
  return names;
}

}  // namespace

Copies::Copies(const Body& body, Facts facts) : facts_(std::move(facts)) {
  std::map<std::string, int> num_memories;
  Names loaded;  // what a load is stored to
  visit(body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::allocate) ++num_memories[stmt.name];
    if (stmt.kind != Stmt::Kind::store) return;
    ++num_stores_[stmt.name];
    if (stmt.value->op == Op::load) loaded.insert(stmt.name);
  });
  for (const auto& [memory, count] : num_memories)
    if (count == 1 && loaded.contains(memory) && num_stores_.at(memory) == 1) memories_.insert(memory);
  if (!memories_.empty()) look(body, {});
}

void Copies::look(const Body& body, Scope scope) {
  std::vector<const Stmt*> memories;  // of this body, which nothing is known to be copied to yet
  for (const Stmt& stmt : body) {
    note(stmt, scope);
    Scope inner = scope;
    if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::condition) inner.around.push_back(&stmt);
    look(stmt.body, inner);
    if (stmt.kind == Stmt::Kind::let) scope.around.push_back(&stmt);
    std::erase_if(memories, [&](const Stmt* memory) {
      const Copy* copy = copy_by(*memory, stmt);
      if (copy != nullptr) scope.copies.push_back(copy);
      return copy != nullptr;
    });
    if (stmt.kind == Stmt::Kind::allocate && memories_.contains(stmt.name)) memories.push_back(&stmt);
  }
}

void Copies::note(const Stmt& stmt, const Scope& scope) {
  const auto loads = [&](const Expr& e) {
    return e && std::any_of(scope.copies.begin(), scope.copies.end(),
                            [&](const Copy* copy) { return loads_from(e, copy->memory); });
  };
  if (loads(stmt.value) || std::any_of(stmt.indices.begin(), stmt.indices.end(), loads)) scopes_.emplace(&stmt, scope);
}

// What the statement, which stands behind the memory in one body, copies to it; null: nothing, or not in this way.
const Copies::Copy* Copies::copy_by(const Stmt& memory, const Stmt& stmt) {
  std::vector<const Stmt*> path;
  if (!find_store(stmt, memory.name, path)) return nullptr;
  const Stmt& store = *path.back();
  Copy copy{.memory = memory.name, .extents = memory.indices, .source = original(store.value, store)};
  if (store.atomic || copy.source->op != Op::load) return nullptr;
  Names loops;
  for (const Expr& index : store.indices) {
    const Stmt* loop = loop_of(path, index);
    if (loop != nullptr && !loops.insert(loop->name).second) return nullptr;
    copy.places.push_back({index, loop == nullptr ? Expr() : loop->value});
  }
  for (const Stmt* outer : path) {
    if (outer->kind == Stmt::Kind::loop && !loops.contains(outer->name)) return nullptr;
    if (outer->kind == Stmt::Kind::condition) copy.conditions.push_back(original(outer->value, *outer));
  }
  // Whatever else these speak of is the same where the memory is loaded from.
  const Names lets = lets_along(path);
  Names set_inside = lets;
  set_inside.insert(loops.begin(), loops.end());
  const auto is_fixed = [&](const Place& place) {
    return is_constant(place.end ? place.end : place.index, set_inside);
  };
  const auto is_same = [&](const Expr& condition) { return is_constant(condition, lets); };
  if (!is_constant(copy.source, lets) || !std::all_of(copy.places.begin(), copy.places.end(), is_fixed) ||
      !std::all_of(copy.conditions.begin(), copy.conditions.end(), is_same))
    return nullptr;
  visit(copy.source, [&](const Expr& node) {
    if (node->op == Op::load || is_search(node->op)) sources_.insert(node->name);
  });
  return &copies_.emplace_back(std::move(copy));
}

// Whether it uses none of these, and loads nothing that is stored to.
bool Copies::is_constant(const Expr& e, const Names& set_inside) const {
  bool found = true;
  visit(e, [&](const Expr& node) {
    if (node->op == Op::variable && set_inside.contains(node->name)) found = false;
    if ((node->op == Op::load || is_search(node->op)) && num_stores_.contains(node->name)) found = false;
  });
  return found;
}

Expr Copies::original(const Expr& e, const Stmt& in) const {
  const auto found = scopes_.find(&in);
  if (found == scopes_.end()) return e;
  const Scope& scope = found->second;
  return rewrite(e, [&](const Expr& node) {
    if (node->op != Op::load) return node;
    for (const Copy* copy : scope.copies)
      if (copy->memory == node->name)
        if (const Expr source = original(*copy, node->operands, scope)) return source;
    return node;
  });
}

Expr Copies::original(const Copy& copy, const std::vector<Expr>& indices, const Scope& scope) const {
  Substitution at;
  for (size_t d = 0; d < copy.places.size(); ++d) {
    const auto& [place, end] = copy.places[d];
    if (!end) {
      if (!(indices[d] == place)) return {};
      continue;
    }
    at[place->name] = indices[d];
    if (end == copy.extents[d]) continue;
    const Facts facts = facts_within(scope);
    if (!facts.is_nonnegative(indices[d]) || !facts.holds(less(indices[d], end))) return {};
  }
  for (const Expr& condition : copy.conditions)
    if (!holds(substitute(condition, at), scope)) return {};
  return substitute(copy.source, at);
}

bool Copies::holds(const Expr& condition, const Scope& scope) const {
  const auto is_it = [&](const Stmt* stmt) {
    return stmt->kind == Stmt::Kind::condition && original(stmt->value, *stmt) == condition;
  };
  return std::any_of(scope.around.begin(), scope.around.end(), is_it) || facts_within(scope).holds(condition);
}

Facts Copies::facts_within(const Scope& scope) const {
  Facts facts = facts_;
  for (const Stmt* stmt : scope.around) {
    if (stmt->kind == Stmt::Kind::loop) facts.push_loop(stmt->name, stmt->value);
    if (stmt->kind == Stmt::Kind::let) facts.push_let(stmt->name, stmt->value);
    if (stmt->kind == Stmt::Kind::condition) facts.push_condition(stmt->value, stmt->body);
  }
  return facts;
}

}  // namespace weft::loop
