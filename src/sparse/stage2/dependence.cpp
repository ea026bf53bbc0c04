#include "sparse/stage2/dependence.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/names.h"
#include "sparse/stage2/meeting.h"

namespace weft::sparse {
namespace {

// The terms of a sum, or of another operation, with their signs.
void take_apart(const Expr& e, Op op, bool positive, std::vector<std::pair<Expr, bool>>& terms) {
  const bool is_difference = op == Op::add && e->op == Op::subtract;
  if (e->op != op && !is_difference) return terms.emplace_back(e, positive), void();
  take_apart(e->operands[0], op, positive, terms);
  take_apart(e->operands[1], op, is_difference ? !positive : positive, terms);
}

Directions with_same(const std::vector<std::string>& loops, size_t count) {
  Directions signs;
  for (size_t l = 0; l < count; ++l) signs[loops[l]] = Direction::same;
  return signs;
}

bool runs_in(const MemoryAccess& access, const std::string& loop) {
  const bool is_around = std::any_of(access.around.begin(), access.around.end(), [&](const Stmt* stmt) {
    return stmt->kind == Stmt::Kind::loop && stmt->name == loop;
  });
  return is_around && !(access.is_init && access.reductions.contains(loop));
}

// Whether the order of the two matters where they meet.
bool is_ordered(const MemoryAccess& a, const MemoryAccess& b) {
  return a.buffer == b.buffer && (a.writes || b.writes) && !(a.update && a.update == b.update);
}

class AccessCollector {
 public:
  AccessCollector(const Names& written, const loop::Copies& copies, std::vector<MemoryAccess>& accesses)
      : written_(written), copies_(copies), accesses_(accesses) {}

  void collect(const std::vector<const Stmt*>& statements, Around around) {
    for (const Stmt* stmt : statements) {
      stmt_ = stmt;
      add_reads(stmt->indices, around);
      if (stmt->kind == Stmt::Kind::store)
        add_store(*stmt, around);
      else if (stmt->value)
        add_reads({stmt->value}, around);
      if (stmt->kind == Stmt::Kind::let || stmt->kind == Stmt::Kind::allocate) around.push_back(stmt);
      if (stmt->kind == Stmt::Kind::block) {
        const auto outer = std::exchange(block_, {false, reductions_of(*stmt, around)});
        block_.first = true;
        collect_body(stmt->init, around);
        block_.first = false;
        collect_body(stmt->body, around);
        block_ = outer;
        continue;
      }
      Around inner = around;
      if (stmt->kind == Stmt::Kind::loop || stmt->kind == Stmt::Kind::condition) inner.push_back(stmt);
      collect_body(stmt->body, inner);
    }
  }

 private:
  void collect_body(const Body& body, const Around& around) {
    std::vector<const Stmt*> statements;
    for (const Stmt& stmt : body) statements.push_back(&stmt);
    collect(statements, around);
  }

  void add_store(const Stmt& store, const Around& around) {
    const std::optional<Update> update = update_of(store);
    add_reads(update ? update->others : std::vector{store.value}, around);
    add({.buffer = store.name, .indices = store.indices, .writes = true, .atomic = store.atomic, .around = around});
    if (update && written_.contains(store.name)) accesses_.back().update = update->op;
  }

  void add_reads(const std::vector<Expr>& list, const Around& around) {
    for (const Expr& e : list)
      loop::visit(e, [&](const Expr& node) {
        if (node->op == Op::load) add({.buffer = node->name, .indices = node->operands, .around = around});
        if (!loop::is_search(node->op)) return;
        std::vector<Expr> start(node->operands.begin(), node->operands.end() - 2);
        start.back() = {};
        add({.buffer = node->name, .indices = std::move(start), .around = around});
      });
  }

  void add(MemoryAccess access) {
    if (!written_.contains(access.buffer)) return;
    access.stmt = stmt_;
    for (const Expr& index : access.indices) access.places.push_back(index ? copies_.original(index, *stmt_) : index);
    access.is_init = block_.first;
    access.reductions = block_.second;
    accesses_.push_back(std::move(access));
  }

  const Names& written_;
  const loop::Copies& copies_;
  std::vector<MemoryAccess>& accesses_;
  const Stmt* stmt_ = nullptr;
  std::pair<bool, Names> block_ = {};  // whether within init, and the reductions
};

// What the statements load, for which facts are needed.
Names loaded_by(const std::vector<const Stmt*>& statements) {
  Names names;
  const auto add = [&](const Expr& e) {
    loop::visit(e, [&](const Expr& node) {
      if (node->op == Op::load || loop::is_search(node->op)) names.insert(node->name);
    });
  };
  for (const Stmt* stmt : statements) {
    for (const Expr& index : stmt->indices) add(index);
    if (stmt->value) add(stmt->value);
    visit_exprs(stmt->init, add);
    visit_exprs(stmt->body, add);
  }
  return names;
}

// In the place of loops' own signs: init runs before all iterations of its reductions.
std::optional<Direction> sign_of_init(const MemoryAccess& a, const MemoryAccess& b, const std::string& loop) {
  const bool first = a.is_init && a.reductions.contains(loop), second = b.is_init && b.reductions.contains(loop);
  if (!first && !second) return std::nullopt;
  return first && second ? Direction::same : first ? Direction::before : Direction::after;
}

}  // namespace

std::string MemoryAccess::text() const {
  return buffer + "[" + joined(indices, [](const Expr& e) { return e ? loop::to_words(e) : std::string(":"); }) + "]";
}

bool MemoryAccess::is_within(const Stmt& loop) const {
  return std::find(around.begin(), around.end(), &loop) != around.end();
}

std::optional<Update> update_of(const Stmt& store) {
  const Op op = store.value->op == Op::subtract ? Op::add : store.value->op;
  if (op != Op::add && op != Op::multiply && op != Op::maximum && op != Op::minimum) return std::nullopt;
  std::vector<std::pair<Expr, bool>> terms;
  take_apart(store.value, op, true, terms);
  Update update{.op = op};
  int targets = 0;
  for (const auto& [term, positive] : terms) {
    if (positive && term->op == Op::load && term->name == store.name && term->operands == store.indices)
      ++targets;
    else if (loop::loads_from(term, store.name))
      return std::nullopt;
    else
      update.others.push_back(term);
  }
  for (const Expr& index : store.indices)
    if (loop::loads_from(index, store.name)) return std::nullopt;
  return targets == 1 ? std::optional(update) : std::nullopt;
}

Names reductions_of(const Stmt& block, const Around& around) {
  // What the indices of init's writes are made of, through what `let` names.
  Names used;
  std::vector<const Stmt*> lets;
  const auto add_let = [&](const Stmt* stmt) {
    if (stmt->kind == Stmt::Kind::let) lets.push_back(stmt);
  };
  for (const Stmt* stmt : around) add_let(stmt);
  for (const Body* body : {&block.init, &block.body})
    visit(*body, [&](const Stmt& stmt) {
      add_let(&stmt);
      if (stmt.kind == Stmt::Kind::store && body == &block.init)
        for (const Expr& index : stmt.indices) used.merge(loop::variables_of(index));
    });
  for (auto let = lets.rbegin(); let != lets.rend(); ++let)
    if (used.contains((*let)->name)) used.merge(loop::variables_of((*let)->value));
  Names names;
  for (const Stmt* stmt : around) {
    if (stmt->kind == Stmt::Kind::allocate && loop::accesses(block.init, stmt->name)) names.clear();
    if (stmt->kind == Stmt::Kind::loop && stmt->reduction && !used.contains(stmt->name)) names.insert(stmt->name);
  }
  return names;
}

Dependences::Dependences(const Stage2& stage, const Around& around, const std::vector<const Stmt*>& statements)
    : stage_(stage), around_(around), copies_(stage.body, facts_of(stage)) {
  for (const Stmt* stmt : statements) {
    const auto add = [&](const Stmt& inner) {
      if (inner.kind == Stmt::Kind::store) written_.insert(inner.name);
    };
    add(*stmt);
    visit(stmt->init, add);
    visit(stmt->body, add);
  }
  Names loaded = loaded_by(statements);
  for (const Stmt* stmt : around) {  // what stands within them is of no use
    Stmt head = *stmt;
    head.body.clear();
    loaded.merge(loaded_by({&head}));
  }
  loaded.insert(copies_.sources().begin(), copies_.sources().end());
  facts_ = facts_of(stage, loaded);
  AccessCollector(written_, copies_, accesses_).collect(statements, around);
}

bool Dependences::may_meet(const MemoryAccess& a, const MemoryAccess& b, const Directions& directions) const {
  Meeting meeting(stage_, copies_, facts_, written_);
  return meeting.take(a, b, around_.size(), directions) && !meeting.is_refuted();
}

bool Dependences::may_meet_in_others(const MemoryAccess& a, const Stmt& loop_a, const MemoryAccess& b,
                                     const Stmt& loop_b, const Directions& directions) const {
  if (&loop_a == &loop_b) {
    Directions other = directions;
    for (const Direction direction : {Direction::before, Direction::after}) {
      other[loop_a.name] = direction;
      if (may_meet(a, b, other)) return true;
    }
    return false;
  }
  for (const auto assume : {&Meeting::assume_less_at_first, &Meeting::assume_less_at_second}) {
    Meeting meeting(stage_, copies_, facts_, written_);
    if (!meeting.take(a, b, around_.size(), directions)) return false;
    (meeting.*assume)(loop_a, loop_b);
    if (!meeting.is_refuted()) return true;
  }
  return false;
}

// `signs` say which of the two runs first as far as a loop tells.
bool Dependences::may_meet_signed(const MemoryAccess& a, const MemoryAccess& b, const Directions& signs) const {
  Directions directions;
  for (const auto& [loop, sign] : signs) {
    if (const std::optional<Direction> fixed = sign_of_init(a, b, loop)) {
      if (*fixed != sign) return false;
    } else {
      directions[loop] = sign;
    }
  }
  return may_meet(a, b, directions);
}

// In the order of `from`, the loop at p decides that `a` runs first; in that of `to` the loop at q that it does not.
bool Dependences::changes_order(const MemoryAccess& a, const MemoryAccess& b, const std::vector<std::string>& from,
                                const std::vector<std::string>& to) const {
  for (size_t p = 0; p < from.size(); ++p)
    for (size_t q = 0; q < to.size(); ++q) {
      Directions signs = with_same(from, p);
      signs.merge(with_same(to, q));
      if (signs.contains(from[p]) || signs.contains(to[q]) || from[p] == to[q]) continue;
      signs[from[p]] = Direction::before;
      signs[to[q]] = Direction::after;
      if (may_meet_signed(a, b, signs)) return true;
    }
  return false;
}

std::string Dependences::problem_of_order(const std::vector<std::string>& from,
                                          const std::vector<std::string>& to) const {
  const auto is_between = [&](const MemoryAccess& access) {
    return !std::all_of(from.begin(), from.end(), [&](const std::string& loop) {
      return std::any_of(access.around.begin(), access.around.end(),
                         [&](const Stmt* stmt) { return stmt->kind == Stmt::Kind::loop && stmt->name == loop; });
    });
  };
  for (size_t x = 0; x < accesses_.size(); ++x)
    for (size_t y = x; y < accesses_.size(); ++y) {
      const MemoryAccess &a = accesses_[x], &b = accesses_[y];
      if (!is_ordered(a, b)) continue;
      if (is_between(a) || is_between(b)) {
        if (may_meet(a, b, {}))
          return fmt::format("{} is read between the loops, and may be written within them",
                             (is_between(a) ? a : b).text());
        continue;
      }
      if (!changes_order(a, b, from, to) && (x == y || !changes_order(b, a, from, to))) continue;
      if (a.text() == b.text())
        return fmt::format("{} may be one element at several points of {}, which would run in another order", a.text(),
                           joined(from));
      return fmt::format("{} and {} may be one element at different points of {}, which would run in another order",
                         (b.writes ? b : a).text(), (b.writes ? a : b).text(), joined(from));
    }
  return {};
}

std::string Dependences::problem_of_sharing(const std::string& loop) const {
  for (const bool both_write : {true, false})
    for (size_t x = 0; x < accesses_.size(); ++x)
      for (size_t y = x; y < accesses_.size(); ++y) {
        const MemoryAccess &a = accesses_[x], &b = accesses_[y];
        if (a.buffer != b.buffer || !(both_write ? a.writes && b.writes : a.writes != b.writes)) continue;
        if ((a.atomic && b.atomic) || !runs_in(a, loop) || !runs_in(b, loop)) continue;
        if (!may_meet(a, b, {{loop, Direction::before}}) && (x == y || !may_meet(a, b, {{loop, Direction::after}})))
          continue;
        return both_write ? fmt::format("{} may be the same element in two of its iterations", a.text())
                          : fmt::format("{} may be written by another of its iterations", (a.writes ? b : a).text());
      }
  return {};
}

std::string Dependences::written_twice(const std::string& buffer, const std::string& loop) const {
  for (size_t x = 0; x < accesses_.size(); ++x)
    for (size_t y = x; y < accesses_.size(); ++y) {
      const MemoryAccess &a = accesses_[x], &b = accesses_[y];
      if (a.buffer != buffer || b.buffer != buffer || !a.writes || !b.writes || !runs_in(a, loop) || !runs_in(b, loop))
        continue;
      if (may_meet(a, b, {{loop, Direction::before}}) || (x != y && may_meet(a, b, {{loop, Direction::after}})))
        return a.text();
    }
  return {};
}

std::vector<std::string> Dependences::loops_around_both(const MemoryAccess& a, const MemoryAccess& b) const {
  std::vector<std::string> loops;
  for (size_t i = 0; i < a.around.size() && i < b.around.size() && a.around[i] == b.around[i]; ++i)
    if (i >= around_.size() && a.around[i]->kind == Stmt::Kind::loop) loops.push_back(a.around[i]->name);
  return loops;
}

std::optional<Dependences::Meet> Dependences::meets(const IsEarlier& is_earlier) const {
  for (const MemoryAccess& a : accesses_)
    for (const MemoryAccess& b : accesses_)
      if (is_ordered(a, b) && is_earlier(a) && !is_earlier(b) && may_meet(a, b, {})) return Meet{a, b};
  return std::nullopt;
}

std::optional<Dependences::Meet> Dependences::overtakes(const IsEarlier& is_earlier) const {
  for (const MemoryAccess& a : accesses_)
    for (const MemoryAccess& b : accesses_) {
      if (!is_ordered(a, b) || !is_earlier(a) || is_earlier(b)) continue;
      const std::vector<std::string> loops = loops_around_both(a, b);
      for (size_t l = 0; l < loops.size(); ++l) {
        Directions signs = with_same(loops, l);
        signs[loops[l]] = Direction::before;
        if (may_meet_signed(b, a, signs)) return Meet{a, b, loops[l]};
      }
      // Accesses stand in the order of the text.
      if (&b < &a && may_meet_signed(b, a, with_same(loops, loops.size()))) return Meet{a, b};
    }
  return std::nullopt;
}

}  // namespace weft::sparse
