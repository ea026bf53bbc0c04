#include <algorithm>

#include "base/check.h"
#include "base/names.h"
#include "sparse/stage2/loop_kind.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

// The loops of a nest from the first to the last that change places, and the lets and conditions between them. Those
// go inside of all loops, unless they are needed further out: what a loop's extent uses stands around the loop, and so
// does a condition that may be what keeps inside what the extent loads.
class Reordering {
 public:
  Reordering(std::string what, const std::vector<LoopInNest>& loops) : what_(std::move(what)), nest_(loops[0].nest) {
    std::vector<size_t> places;
    for (const LoopInNest& loop : loops) places.push_back(loop.place);
    first_ = *std::min_element(places.begin(), places.end());
    last_ = *std::max_element(places.begin(), places.end());
    take_nest(loops[0].block);
    // Named loops take the places of named loops, in the new order.
    size_t next = 0;
    for (const Stmt& loop : before_) {
      const auto named =
          std::find_if(loops.begin(), loops.end(), [&](const auto& l) { return l.variable == loop.name; });
      const std::string& name = named == loops.end() ? loop.name : loops[next++].variable;
      after_.push_back(*std::find_if(before_.begin(), before_.end(), [&](const Stmt& l) { return l.name == name; }));
    }
  }

  void run(const Stage2& stage) {
    place();
    const Dependences inside(stage, nest_.around(first_), {&nest_.path[first_].stmt()});
    if (const std::string problem = inside.problem_of_order(names(before_), names(after_)); !problem.empty())
      refuse("reorder", what_, problem);
    rebuild();
  }

 private:
  // A let or a condition: how many of the loops stand around it before, and then.
  struct Between {
    Stmt shell;
    size_t num_around = 0, depth = 0;
  };

  static std::vector<std::string> names(const std::vector<Stmt>& loops) {
    std::vector<std::string> list;
    for (const Stmt& loop : loops) list.push_back(loop.name);
    return list;
  }

  void take_nest(const std::string& block) {
    for (size_t place = first_; place <= last_; ++place) {
      const Nest::Level& level = nest_.path[place];
      for (size_t i = 0; place > first_ && i < level.body->size(); ++i) {
        if (i == level.index) continue;
        const Stmt& other = (*level.body)[i];
        if (other.kind != Stmt::Kind::let || i > level.index)
          refuse("reorder", what_, fmt::format("other statements stand between the loops of block '{}'", block));
        between_.push_back({other, before_.size()});
      }
      if (level.stmt().kind != Stmt::Kind::loop && level.stmt().kind != Stmt::Kind::condition)
        refuse("reorder", what_, "a block stands between the loops");
      Stmt shell = level.stmt();
      shell.body.clear();
      if (shell.kind == Stmt::Kind::loop)
        before_.push_back(std::move(shell));
      else
        between_.push_back({std::move(shell), before_.size()});
    }
  }

  void place() {
    for (Between& item : between_) item.depth = after_.size();
    for (size_t d = 0; d < after_.size(); ++d) {
      const Stmt& loop = after_[d];
      const auto was = std::find_if(before_.begin(), before_.end(), [&](const Stmt& l) { return l.name == loop.name; });
      need(loop.value, d, static_cast<size_t>(was - before_.begin()), between_.size(),
           fmt::format("the extent {} of '{}'", loop::to_words(loop.value), loop.name));
    }
  }

  // Makes what `e` uses stand outside of the loop at `depth`, with the conditions that `num_around` loops stood around,
  // and before between_[end], where it may load something that they keep inside.
  void need(const Expr& e, size_t depth, size_t num_around, size_t end, const std::string& user) {
    const Names used = loop::variables_of(e);
    for (size_t d = depth; d < after_.size(); ++d)
      if (used.contains(after_[d].name))
        refuse("reorder", what_, fmt::format("{} uses '{}', which would stand within it", user, after_[d].name));
    const Names all = loops_in(e);
    for (size_t i = 0; i < end; ++i) {
      Between& item = between_[i];
      const bool is_let = item.shell.kind == Stmt::Kind::let;
      const bool keeps_inside =
          !is_let && item.num_around <= num_around && loads_anything(e) && have_common(all, loops_in(item.shell.value));
      if (!(is_let ? used.contains(item.shell.name) : keeps_inside) || item.depth <= depth) continue;
      item.depth = depth;
      const std::string what = is_let ? fmt::format("'{}', which {} uses,", item.shell.name, user)
                                      : fmt::format("the condition {}, which may keep {} inside of its array,",
                                                    loop::to_words(item.shell.value), user);
      need(item.shell.value, depth, item.num_around, i, what);
    }
  }

  // Loops that its value follows from.
  Names loops_in(const Expr& e) const {
    const Names used = loop::variables_of(nest_.without_lets(e));
    Names names;
    for (const Stmt* loop : nest_.loops())
      if (used.contains(loop->name)) names.insert(loop->name);
    return names;
  }

  void rebuild() {
    Body inner = std::move(nest_.path[last_].stmt().body);
    for (size_t depth = after_.size() + 1; depth-- > 0;) {
      for (auto item = between_.rbegin(); item != between_.rend(); ++item)
        if (item->depth == depth) inner = wrapped(item->shell, std::move(inner));
      if (depth > 0) inner = wrapped(after_[depth - 1], std::move(inner));
    }
    const Nest::Level& level = nest_.path[first_];
    const auto at = level.body->erase(level.body->begin() + static_cast<std::ptrdiff_t>(level.index));
    level.body->insert(at, std::make_move_iterator(inner.begin()), std::make_move_iterator(inner.end()));
  }

  static Body wrapped(Stmt shell, Body inner) {
    if (shell.kind == Stmt::Kind::let) {
      inner.insert(inner.begin(), std::move(shell));
      return inner;
    }
    shell.body = std::move(inner);
    return {std::move(shell)};
  }

  std::string what_;
  Nest nest_;
  size_t first_ = 0, last_ = 0;
  std::vector<Stmt> before_, after_;  // the loops, without their bodies
  std::vector<Between> between_;
};

// Iterations of a loop are to be independent while the loops around it stand still, which are others now.
void check_bound(const std::string& what, Stage2& stage, const std::string& block) {
  for (const Stmt* loop : find_block(stage, block).loops()) {
    if (loop->loop != loop::LoopKind::bind) continue;
    const LoopInNest found = find_loop(stage, block + "." + loop->name);
    if (const std::string problem = problem_of_binding(stage, found, loop->thread); !problem.empty())
      refuse("reorder", what, fmt::format("'{}' is bound to {}: {}", loop->name, loop->thread, problem));
  }
}

}  // namespace

void reorder(Stage2& stage, const std::vector<std::string>& names) {
  const std::string all = joined(names);
  if (names.size() < 2) refuse("reorder", all, "two loops or more are needed");
  Stage2 changed = stage;  // the stage, once threads may share the loops in their new order, too
  std::vector<LoopInNest> loops;
  for (const std::string& name : names) {
    LoopInNest loop = find_loop(changed, name);
    if (!loops.empty() && loop.block != loops[0].block)
      refuse("reorder", all, fmt::format("'{}' is of another nest than '{}'", loop.name, loops[0].name));
    if (std::any_of(loops.begin(), loops.end(), [&](const auto& other) { return other.place == loop.place; }))
      refuse("reorder", all, fmt::format("'{}' stands twice", loop.name));
    if (loop.loop().loop == loop::LoopKind::parallel || loop.loop().loop == loop::LoopKind::vectorize)
      refuse("reorder", all,
             fmt::format("'{}' is {} already; reorder before", loop.name, loop::to_string(loop.loop().loop)));
    loops.push_back(std::move(loop));
  }
  Reordering(all, loops).run(changed);
  check_bound(all, changed, loops[0].block);
  stage = std::move(changed);
}

}  // namespace weft::sparse
