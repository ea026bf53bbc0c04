// compute_at and reverse_compute_at: two nests share their outer loops.
#include <algorithm>
#include <set>
#include <utility>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

class Merging {
 public:
  Merging(Stage2& stage, const char* primitive, const std::string& block, const std::string& loop, bool before)
      : stage_(stage), primitive_(primitive), what_(block + ", " + loop), before_(before) {
    target_ = find_loop(stage, loop);
    moved_ = find_block(stage, block);
    if (moved_.path[0].index == target_.nest.path[0].index)
      stop(fmt::format("'{}' and '{}' stand in one nest already", block, target_.block));
  }

  void merge() {
    check_loops();
    check_between();
    Body inner = moved_.path[target_.place].stmt().body;
    rename(inner);
    // In a copy, which becomes the stage where nothing runs too early.
    Stage2 merged = stage_;
    const LoopInNest target = find_loop(merged, target_.name);
    Body& body = target.loop().body;
    const auto at = body.insert(before_ ? body.begin() : body.end(), inner.begin(), inner.end());
    std::set<const Stmt*> own;
    for (auto stmt = at; stmt != at + static_cast<std::ptrdiff_t>(inner.size()); ++stmt) {
      own.insert(&*stmt);
      for (Body* statements : {&stmt->init, &stmt->body}) visit(*statements, [&](Stmt& s) { own.insert(&s); });
    }
    for (size_t l = 0; l <= target_.place; ++l) target.nest.path[l].stmt().reduction |= moved_.path[l].stmt().reduction;
    check_order(merged, target, own);
    check_init(merged, target);
    merged.body.erase(merged.body.begin() + static_cast<std::ptrdiff_t>(moved_.path[0].index));
    stage_ = std::move(merged);
  }

 private:
  [[noreturn]] void stop(const std::string& why) const { refuse(primitive_, what_, why); }

  // As many outer loops on both sides, alone in their bodies where the moved ones stand, of the same extents.
  void check_loops() {
    Substitution names;
    for (size_t l = 0; l <= target_.place; ++l) {
      const Stmt& theirs = target_.nest.path[l].stmt();
      if (theirs.kind != Stmt::Kind::loop) stop("a condition or a block stands between the loops");
      if (l >= moved_.path.size() || moved_.path[l].stmt().kind != Stmt::Kind::loop)
        stop(fmt::format("the block that is moved has no loop to share with '{}'", theirs.name));
      const Stmt& ours = moved_.path[l].stmt();
      if (l > 0 && (moved_.path[l].body->size() != 1 || has_lets(*target_.nest.path[l].body)))
        stop(fmt::format("other statements stand beside loop '{}'", ours.name));
      if (ours.loop != loop::LoopKind::serial || theirs.loop != loop::LoopKind::serial)
        stop("one of the loops is no serial loop any more; merge before");
      if (!(loop::substitute(ours.value, names) == theirs.value))
        stop(fmt::format("loop '{}' runs to {}, and loop '{}' to {}", ours.name, loop::to_words(ours.value),
                         theirs.name, loop::to_words(theirs.value)));
      names[ours.name] = loop::variable(theirs.name);
      shared_.push_back(theirs.name);
    }
    names_ = std::move(names);
  }

  static bool has_lets(const Body& body) {
    return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) { return stmt.kind == Stmt::Kind::let; });
  }

  // What it passes on its way does not depend on it.
  void check_between() const {
    const size_t from = moved_.path[0].index, to = target_.nest.path[0].index;
    if (before_ != (from < to))
      stop(before_ ? "the block is computed after the loop; use reverse_compute_at"
                   : "the block is computed before the loop; use compute_at");
    const Stmt* own = &stage_.body[from];
    std::vector<const Stmt*> statements{own};
    for (size_t i = std::min(from, to) + 1; i < std::max(from, to); ++i) {
      statements.push_back(&stage_.body[i]);
      if (const std::string memory = memory_needed({stage_.body[i]}, {*own}); !before_ && !memory.empty())
        stop(fmt::format("it needs '{}', which is kept from behind the loop on", memory));
    }
    const Dependences all(stage_, {}, statements);
    const auto is_own = [&](const MemoryAccess& access) { return access.stmt == own || access.is_within(*own); };
    if (const auto found = all.meets(is_own))
      stop(fmt::format("what stands between them accesses '{}', too; move that first", found->later.buffer));
  }

  // The moved statements speak of the loops they come to; names that are taken there become others.
  void rename(Body& inner) const {
    Names taken = stage_.all_names();
    visit(Body{stage_.body[target_.nest.path[0].index]}, [&](const Stmt& stmt) {
      if (stmt.kind != Stmt::Kind::store && stmt.kind != Stmt::Kind::block) taken.insert(stmt.name);
    });
    Names lets;
    visit(Body{stage_.body[target_.nest.path[0].index]}, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::let) lets.insert(stmt.name);
    });
    lets.insert(shared_.begin(), shared_.end());
    // A new name is neither theirs nor one of the moved statements.
    Names used = taken;
    visit(inner, [&](const Stmt& stmt) { used.insert(stmt.name); });
    rename_declared(inner, taken, lets, used);
    substitute(inner, names_);
  }

  // Loops may be called as others that stand beside them.
  void rename_declared(Body& body, const Names& taken, const Names& not_for_loops, Names& used) const {
    for (size_t i = 0; i < body.size(); ++i) {
      Stmt& stmt = body[i];
      const bool is_loop = stmt.kind == Stmt::Kind::loop;
      const bool clashes = (is_loop ? not_for_loops : taken).contains(stmt.name);
      if ((is_loop || stmt.kind == Stmt::Kind::let) && clashes) {
        const std::string name = loop::fresh_name(stmt.name, used);
        if (!is_loop) used.insert(name);
        const Substitution other{{stmt.name, loop::variable(name)}};
        if (is_loop) {
          substitute(stmt.body, other);
        } else {
          Body rest(std::make_move_iterator(body.begin() + static_cast<std::ptrdiff_t>(i) + 1),
                    std::make_move_iterator(body.end()));
          substitute(rest, other);
          std::move(rest.begin(), rest.end(), body.begin() + static_cast<std::ptrdiff_t>(i) + 1);
        }
        body[i].name = name;
      }
      if (stmt.kind == Stmt::Kind::allocate && clashes)
        stop(fmt::format("both keep memory of the name '{}'; merge first, then keep it", stmt.name));
      rename_declared(body[i].init, taken, not_for_loops, used);
      rename_declared(body[i].body, taken, not_for_loops, used);
    }
  }

  // Nothing that needs what another one computes runs before it now.
  void check_order(const Stage2& merged, const LoopInNest& target, const std::set<const Stmt*>& own) const {
    const Dependences all(merged, {}, {&target.nest.path[0].stmt()});
    const auto is_moved = [&](const MemoryAccess& access) { return own.contains(access.stmt); };
    const auto found =
        all.overtakes([&](const MemoryAccess& access) { return before_ ? is_moved(access) : !is_moved(access); });
    if (!found) return;
    const MemoryAccess& theirs = before_ ? found->later : found->earlier;
    const std::string& buffer = theirs.buffer;
    for (size_t l = 1; l <= target.place; ++l)
      if (!theirs.is_within(target.nest.path[l].stmt()))
        stop(fmt::format("what stands beside loop '{}' accesses '{}', too", target.nest.path[l].stmt().name, buffer));
    stop(fmt::format("'{}' is complete only after all iterations of '{}': {} may need what {} is in a later one",
                     buffer, found->loop.empty() ? shared_.back() : found->loop, found->later.text(),
                     found->earlier.text()));
  }

  // Loops that have become reductions are none of a block whose init ran within them.
  void check_init(Stage2& merged, const LoopInNest& target) const {
    visit(Body{target.nest.path[0].stmt()}, [&](const Stmt& stmt) {
      if (stmt.kind != Stmt::Kind::block || stmt.init.empty()) return;
      const Names before = find_block(stage_, stmt.name).reductions();
      for (const std::string& loop : find_block(merged, stmt.name).reductions()) {
        const auto ours = std::find(shared_.begin(), shared_.end(), loop);
        if (ours == shared_.end()) continue;
        const auto l = static_cast<size_t>(ours - shared_.begin());
        if (!before.contains(loop) && !before.contains(moved_.path[l].stmt().name))
          stop(fmt::format("init of block '{}' would run before '{}', which is a reduction of the other one", stmt.name,
                           loop));
      }
    });
  }

  Stage2& stage_;
  const char* primitive_;
  std::string what_;
  bool before_;
  LoopInNest target_;
  Nest moved_;
  Substitution names_;
  std::vector<std::string> shared_;  // the variables of the loops that become one
};

}  // namespace

void compute_at(Stage2& stage, const std::string& block, const std::string& loop) {
  Merging(stage, "compute_at", block, loop, true).merge();
}

void reverse_compute_at(Stage2& stage, const std::string& block, const std::string& loop) {
  Merging(stage, "reverse_compute_at", block, loop, false).merge();
}

}  // namespace weft::sparse
