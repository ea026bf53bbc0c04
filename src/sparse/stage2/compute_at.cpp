// compute_at and reverse_compute_at: two nests share their outer loops.
#include <algorithm>
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
    check_shared(inner);
    Body& body = target_.loop().body;
    body.insert(before_ ? body.begin() : body.end(), inner.begin(), inner.end());
    for (size_t l = 0; l <= target_.place; ++l)
      target_.nest.path[l].stmt().reduction |= moved_.path[l].stmt().reduction;
    stage_.body.erase(stage_.body.begin() + static_cast<std::ptrdiff_t>(moved_.path[0].index));
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
        stop(fmt::format("loop '{}' runs to {}, and loop '{}' to {}", ours.name, loop::to_text(ours.value), theirs.name,
                         loop::to_text(theirs.value)));
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
    const loop::Regions own = loop::regions_of({stage_.body[from]});  // of a whole nest: no variables of loops
    for (size_t i = std::min(from, to) + 1; i < std::max(from, to); ++i)
      if (const std::string buffer = conflict_of(own, loop::regions_of({stage_.body[i]})); !buffer.empty())
        stop(fmt::format("what stands between them accesses '{}', too; move that first", buffer));
    // Within the outer loops that are shared, beside the inner ones.
    for (size_t l = 1; l <= target_.place; ++l) {
      const Nest::Level& level = target_.nest.path[l];
      for (size_t i = 0; i < level.body->size(); ++i) {
        if (before_ ? i >= level.index : i <= level.index) continue;
        if (const std::string buffer = conflict_of(own, loop::regions_of({(*level.body)[i]})); !buffer.empty())
          stop(fmt::format("what stands beside loop '{}' accesses '{}', too", level.stmt().name, buffer));
      }
    }
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
    rename_declared(inner, taken, lets);
    substitute(inner, names_);
  }

  // Loops may be called as others that stand beside them.
  void rename_declared(Body& body, const Names& taken, const Names& not_for_loops) const {
    for (size_t i = 0; i < body.size(); ++i) {
      Stmt& stmt = body[i];
      const bool is_loop = stmt.kind == Stmt::Kind::loop;
      const bool clashes = (is_loop ? not_for_loops : taken).contains(stmt.name);
      if ((is_loop || stmt.kind == Stmt::Kind::let) && clashes) {
        const std::string name = loop::fresh_name(stmt.name, taken);
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
      rename_declared(body[i].body, taken, not_for_loops);
    }
  }

  // An element that one writes and the other accesses belongs to one iteration of the shared loops.
  void check_shared(const Body& inner) const {
    const Body& theirs = target_.loop().body;
    const loop::Regions ours = loop::regions_of(inner), other = loop::regions_of(theirs);
    for (const auto& [writer, reader] : {std::pair(&ours, &other), std::pair(&other, &ours)})
      for (const loop::Region& written : writer->writes) {
        const std::string& buffer = written.buffer;
        const loop::Region *read = reader->find_read(buffer), *overwritten = reader->find_written(buffer);
        if (read == nullptr && overwritten == nullptr) continue;
        const std::vector<const loop::Region*> accesses{&written, writer->find_read(buffer), read, overwritten};
        for (const std::string& variable : shared_)
          if (!is_fixed_by(variable, accesses))
            stop(fmt::format("'{}' is complete only after all iterations of '{}': it is not accessed at '{}' alone",
                             buffer, variable, variable));
      }
  }

  // Whether some dimension is accessed at the variable alone, by all who access the buffer.
  static bool is_fixed_by(const std::string& variable, const std::vector<const loop::Region*>& accesses) {
    for (size_t d = 0; d < accesses[0]->ranges.size(); ++d)
      if (std::all_of(accesses.begin(), accesses.end(), [&](const loop::Region* region) {
            return region == nullptr ||
                   (region->ranges[d].is_place() && loop::is_variable(region->ranges[d].begin, variable));
          }))
        return true;
    return false;
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
