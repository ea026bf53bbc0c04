// Stage I -> stage II. Equations 3.1 to 3.5 with ancestors' positions where 3.3 prints their coordinates, which is the
// same for CSR alone.
#include <map>
#include <set>
#include <utility>

#include "base/check.h"
#include "sparse/failures.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"
#include "sparse/stage2/stage2.h"

namespace weft::sparse {
namespace {

Expr both(const Expr& a, const Expr& b) { return a ? loop::operation(Op::logical_and, {a, b}) : b; }

class IterationLowering {
 public:
  IterationLowering(const Stage1& program, const Iteration& it, const Names& named)
      : program_(program), it_(with_failures(it)), named_(named), facts_(facts_of(program)) {
    check_divisors();
    taken_ = program.all_names();
    taken_.insert(it.iterators.begin(), it.iterators.end());
  }

  // The nest, with init in its block.
  Body lower() {
    make_loops();
    is_condition_ = true;
    for (const Expr& condition : it_.where) guards_.push_back({translate(condition), uses_reduction(condition)});
    is_condition_ = false;
    // Init runs before the reductions, so no condition on them holds there.
    const auto is_spatial = [](const Guard& guard) { return !guard.of_reduction; };
    push_guards(is_spatial);
    init_ = lower_stores(it_.init);
    pop_guards(is_spatial);
    push_guards([](const Guard&) { return true; });
    return around(loop::make_block(it_.name, lower_stores(it_.body), init_), false);
  }

  // After that: init as a nest of its own, and whether it has to be one, because a condition on reductions stands
  // around the block that no loop tells as such.
  Body init_nest(const std::string& name) const { return around(loop::make_block(name, init_), true); }
  bool is_init_guarded() const {
    const Names reduced = names_of_reductions();
    return std::any_of(guards_.begin(), guards_.end(), [&](const Guard& guard) {
      return guard.of_reduction && !have_common(loop::variables_of(guard.condition), reduced);
    });
  }

 private:
  struct Guard {
    Expr condition;
    bool of_reduction = false;
  };

  template <class Wanted>
  void push_guards(const Wanted& wanted) {
    Body stores = it_.init;
    stores.insert(stores.end(), it_.body.begin(), it_.body.end());
    for (const Guard& guard : guards_)
      if (wanted(guard)) facts_.push_condition(guard.condition, stores);
  }
  template <class Wanted>
  void pop_guards(const Wanted& wanted) {
    for (const Guard& guard : guards_)
      if (wanted(guard)) facts_.pop_condition();
  }

  bool uses_reduction(const Expr& condition) const {
    for (size_t i = 0; i < it_.iterators.size(); ++i)
      if (it_.kinds[i] == 'R' && loop::uses(condition, it_.iterators[i])) return true;
    return false;
  }

  // Loops, lets and conditions around a block; of init those that are no reductions'.
  Body around(Stmt block, bool is_init) const {
    Body nest{std::move(block)};
    for (auto guard = guards_.rbegin(); guard != guards_.rend(); ++guard)
      if (!is_init || !guard->of_reduction) nest = {loop::make_condition(guard->condition, std::move(nest))};
    const Names reduced = names_of_reductions();
    for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
      if (is_init && reduced.contains(level->name)) {
        if (loop::is_literal(level->value, 1)) loop::substitute(nest, {{level->name, 0}});  // a loop that was named
        continue;
      }
      Stmt stmt = *level;
      check(!is_init || !have_common(loop::variables_of(stmt.value), reduced), ErrorCode::unsupported,
            "iteration '{}': init runs over '{}', whose extent {} depends on a reduction", it_.name, stmt.name,
            loop::to_words(stmt.value));
      if (stmt.kind == Stmt::Kind::loop) {
        stmt.body = std::move(nest);
        nest.clear();
      }
      nest.insert(nest.begin(), std::move(stmt));
    }
    return nest;
  }

  // A divisor that is the literal 0 wherever the iteration computes.
  void check_divisors() const {
    if (!it_.where.empty()) return;
    for (const Body* body : {&it_.init, &it_.body})
      if (!has_no_point(body == &it_.init)) visit_exprs(*body, [&](const Expr& e) { check_divisors(e); });
  }
  // Whether an axis stores nothing; of init one that is no reduction.
  bool has_no_point(bool is_init) const {
    const std::vector<std::string> axes = it_.flat_axes();
    for (size_t a = 0; a < axes.size(); ++a) {
      const Axis& axis = program_.axis(axes[a]);
      const bool is_empty = loop::is_literal(axis.length, 0) || (axis.nnz && loop::is_literal(axis.nnz, 0));
      if (is_empty && !(is_init && it_.kinds[a] == 'R')) return true;
    }
    return false;
  }
  void check_divisors(const Expr& e) const {
    if (!e->may_fail) return;
    if (e->failure != nullptr && loop::is_literal(e->operands[1], 0))
      fail(ErrorCode::invalid_argument, "{}iteration '{}' divides by 0: {}", place_text(), it_.name_in_errors(),
           e->failure->division);
    const bool is_lazy = e->op == Op::select || e->op == Op::logical_and || e->op == Op::logical_or;
    for (size_t i = 0; i < (is_lazy ? 1 : e->operands.size()); ++i) check_divisors(e->operands[i]);
  }
  std::string place_text() const {
    return it_.place.line == 0 ? "" : fmt::format("line {}, column {}: ", it_.place.line, it_.place.column);
  }

  Names names_of_reductions() const {
    Names names;
    for (const Stmt& level : levels_)
      if (level.kind == Stmt::Kind::loop ? level.reduction : have_common(loop::variables_of(level.value), names))
        names.insert(level.name);
    return names;
  }

  // Step 2: a loop for each axis or fused group, outer ones first; positions and coordinates of each axis (3.2, 3.3).
  void make_loops() {
    size_t next = 0;
    for (const auto& group : it_.axes) {
      if (group.size() == 1)
        add_axis(program_.axis(group[0]), next);
      else
        add_fused(group, next);
      for (const std::string& name : group) add_coordinate(program_.axis(name), next++);
    }
  }

  std::vector<Expr> positions_of(const std::vector<std::string>& axes) const {
    std::vector<Expr> positions;
    for (const std::string& axis : axes) positions.push_back(position_.at(axis));
    return positions;
  }

  void add_loop(const std::string& variable, const Expr& extent, bool reduction) {
    Stmt loop = loop::make_loop(variable, extent, {});
    loop.reduction = reduction;
    levels_.push_back(std::move(loop));
    facts_.push_loop(variable, extent);
  }

  void add_axis(const Axis& axis, size_t index) {
    const Expr extent = extent_of(program_, axis, positions_of(program_.ancestors(axis.name)));
    const std::string& iterator = it_.iterators[index];
    if (loop::is_literal(extent, 1) && !named_.contains(axis.name)) {  // one position needs no loop
      position_[axis.name] = 0;
      return;
    }
    position_[axis.name] = loop::variable(iterator);
    add_loop(iterator, extent, it_.kinds[index] == 'R');
  }

  // One loop over all positions of the last axis; those of the others are recovered from the last to the first.
  void add_fused(const std::vector<std::string>& group, size_t index) {
    std::string name = it_.iterators[index];
    bool reduction = it_.kinds[index] == 'R';
    for (size_t a = 1; a < group.size(); ++a) {
      name += "_" + it_.iterators[index + a];
      reduction |= it_.kinds[index + a] == 'R';
    }
    name = loop::fresh_name(name, taken_);
    taken_.insert(name);
    add_loop(name, program_.num_positions(group.back()), reduction);
    // Offsets of the fused loop's place in each axis, last to first.
    std::vector<Expr> offsets(group.size());
    offsets.back() = loop::variable(name);
    for (size_t a = group.size() - 1; a > 0; --a) {
      const Axis& axis = program_.axis(group[a]);
      if (!axis.is_variable) {
        offsets[a - 1] = loop::floor_div(offsets[a], axis.nnz);
        continue;
      }
      const std::vector<Expr> start(a, Expr(0));
      const Expr rows = program_.num_positions(group[a - 1]) + 1;
      offsets[a - 1] = let(it_.iterators[index + a - 1] + (a > 1 ? "_offset" : ""),
                           loop::search(Op::upper_bound, axis.indptr, start, rows, offsets[a]) - 1);
    }
    position_[group[0]] = offsets[0];
    for (size_t a = 1; a < group.size(); ++a) {
      const Axis& axis = program_.axis(group[a]);
      const std::vector<Expr> above = positions_of(program_.ancestors(axis.name));
      position_[axis.name] = axis.is_variable ? offsets[a] - loop::load(axis.indptr, above, Type::integer)
                                              : loop::modulo(offsets[a], axis.nnz);
    }
  }

  Expr let(const std::string& stem, const Expr& value) {
    std::string name = stem;
    if (taken_.contains(name) && !is_iterator(name)) name = loop::fresh_name(stem, taken_);
    taken_.insert(name);
    levels_.push_back(loop::make_let(name, value));
    return loop::variable(name);
  }

  bool is_iterator(const std::string& name) const {
    for (const std::string& iterator : it_.iterators)
      if (iterator == name) return true;
    return false;
  }

  void add_coordinate(const Axis& axis, size_t index) {
    Expr coordinate = position_.at(axis.name);
    if (axis.is_sparse) {
      std::vector<Expr> positions = positions_of(program_.ancestors(axis.name));
      positions.push_back(coordinate);
      coordinate = loop::load(axis.indices, positions, Type::integer);
      if (!axis.is_variable)  // padding holds the length
        guards_.push_back({loop::less(coordinate, axis.length), it_.kinds[index] == 'R'});
    }
    coordinate_[it_.iterators[index]] = coordinate;
    axis_of_iterator_[it_.iterators[index]] = axis.name;
  }

  // What is written where it may be absent is asked for first; where it is, the run fails.
  Body lower_stores(const Body& stores) {
    Body body;
    for (const Stmt& store : stores) {
      const Access target = locate(store.name, store.indices);
      if (target.never)
        fail(ErrorCode::invalid_argument, "{}iteration '{}' writes {}, where '{}' never stores anything: {} is false",
             place_text(), it_.name_in_errors(), loop::to_words(loop::load(store.name, store.indices, Type::real)),
             store.name, loop::to_words(target.never));
      written_ = &store, written_at_ = &target;
      if (target.present) asked_.push_back(target.present);
      const Expr value = translate(store.value);
      if (target.present) asked_.pop_back();
      written_ = nullptr, written_at_ = nullptr;
      body.insert(body.end(), lets_.begin(), lets_.end());
      lets_.clear();
      Stmt written = loop::make_store(store.name, target.positions, value);
      if (!target.present) {
        body.push_back(std::move(written));
        continue;
      }
      body.push_back(loop::make_condition(loop::operation(Op::logical_not, {target.present}),
                                          {loop::make_fail(it_.name_in_errors(), store.name, target.coordinates)}));
      body.push_back(loop::make_condition(target.present, {std::move(written)}));
    }
    return body;
  }

  struct Access {
    std::vector<Expr> positions = {}, coordinates = {};
    Expr present = {};  // none: always
    Expr never = {};    // what would have to hold, and cannot
  };

  void require(Access& access, const Expr& condition) {
    if (facts_.fails(condition)) access.never = condition;
    if (!facts_.holds(condition)) access.present = both(access.present, condition);
  }

  // Step 3: coordinates of an access to positions (3.1, 3.4).
  Access locate(const std::string& name, const std::vector<Expr>& indices) {
    const SparseBuffer& buffer = program_.buffer(name);
    Access access;
    std::map<std::string, Expr> known;  // positions by axis
    for (size_t j = 0; j < indices.size(); ++j) {
      const Axis& axis = program_.axis(buffer.axes[j]);
      const std::vector<std::string> ancestors = program_.ancestors(axis.name);
      access.coordinates.push_back(translate(indices[j]));
      const Expr position = is_own(axis, ancestors, indices[j], known)
                                ? position_.at(axis.name)
                                : search(access, axis, ancestors, known, access.coordinates.back());
      known[axis.name] = position;
      access.positions.push_back(position);
    }
    return access;
  }

  // Whether an index is the iterator of the very axis, below the same positions.
  bool is_own(const Axis& axis, const std::vector<std::string>& ancestors, const Expr& index,
              const std::map<std::string, Expr>& known) const {
    if (index->op != Op::variable) return false;
    const auto found = axis_of_iterator_.find(index->name);
    if (found == axis_of_iterator_.end() || found->second != axis.name) return false;
    for (const std::string& ancestor : ancestors)
      if (!(known.at(ancestor) == position_.at(ancestor))) return false;
    return true;
  }

  Expr search(Access& access, const Axis& axis, const std::vector<std::string>& ancestors,
              const std::map<std::string, Expr>& known, const Expr& x) {
    std::vector<Expr> start;
    for (const std::string& ancestor : ancestors) start.push_back(known.at(ancestor));
    const Expr extent = extent_of(program_, axis, start);
    if (!axis.is_sparse) {
      require(access, loop::at_least(x, 0));
      require(access, loop::less(x, extent));
      return x;
    }
    for (const Expr& condition : {loop::at_least(x, 0), loop::less(x, axis.length)})
      if (facts_.fails(condition)) access.never = condition;
    start.push_back(0);
    Expr found = loop::search(Op::find, axis.indices, start, extent, x);
    // Where the value is not asked for, nothing that may fail is.
    Expr asked;
    if (found->may_fail)
      for (const Expr& condition : asked_) asked = both(asked, condition);
    if (access.present) asked = both(asked, access.present);
    // Padding holds the length, which is no coordinate.
    if (const Expr below = loop::less(x, axis.length); !axis.is_variable && !facts_.holds(below))
      asked = both(asked, below);
    // What is added to is read where it is there.
    if (asked && !found->may_fail && written_at_ != nullptr && written_at_->present &&
        loop::loads_from(asked, written_->name))
      asked = both(written_at_->present, asked);
    if (asked) found = loop::select(asked, found, -1);
    if (is_condition_) {
      access.present = loop::at_least(found, 0);
      return found;
    }
    const std::string name = loop::fresh_name("at_" + axis.name, taken_);
    taken_.insert(name);
    lets_.push_back(loop::make_let(name, found));
    access.present = loop::at_least(loop::variable(name), 0);  // -1 where an ancestor is absent, too
    return loop::variable(name);
  }

  // What has to hold of those before for the next operand to be evaluated; none: it always is.
  static Expr condition_of_operand(Op op, const std::vector<Expr>& before) {
    const auto negated = [](const Expr& e) { return loop::operation(Op::logical_not, {e}); };
    if (op == Op::logical_and) return before[0];
    if (op == Op::logical_or) return negated(before[0]);
    if (op != Op::select) return {};
    return before.size() == 1 ? before[0] : negated(before[0]);
  }

  Expr translate(const Expr& e) {
    if (e->op == Op::variable) {
      const auto found = coordinate_.find(e->name);
      return found == coordinate_.end() ? e : found->second;
    }
    if (e->op != Op::load) {
      std::vector<Expr> operands;
      for (const Expr& operand : e->operands) {
        const Expr condition = operands.empty() ? Expr() : condition_of_operand(e->op, operands);
        if (condition) asked_.push_back(condition);
        operands.push_back(translate(operand));
        if (condition) asked_.pop_back();
      }
      if (e->failure != nullptr && facts_.is_positive(operands[1]))
        return loop::operation(e->op, {operands[0], operands[1]});
      return loop::with_operands(e, std::move(operands));
    }
    // What is added to is where it is written.
    if (written_ != nullptr && e->name == written_->name && e->operands == written_->indices)
      return loop::load(e->name, written_at_->positions, e->type);
    const size_t num_lets = lets_.size();
    const Access access = locate(e->name, e->operands);
    const Expr absent = e->type == Type::real ? loop::real(0) : Expr(0);
    if (access.never) {  // nothing is searched, and nothing is there to be read
      lets_.resize(num_lets);
      return absent;
    }
    const Expr value = loop::load(e->name, access.positions, e->type);
    return access.present ? loop::select(access.present, value, absent) : value;
  }

  const Stage1& program_;
  const Iteration it_;
  const Names& named_;
  loop::Facts facts_;
  Names taken_;
  std::vector<Stmt> levels_;  // loops, and lets between them
  std::map<std::string, Expr> position_;
  std::map<std::string, Expr> coordinate_;
  std::map<std::string, std::string> axis_of_iterator_;
  std::vector<Guard> guards_;
  bool is_condition_ = false;  // has its searches within: init may stand behind copies of it
  Body init_;
  Body lets_;                      // searches of the store that is being lowered
  std::vector<Expr> asked_;        // conditions that hold where what is translated is evaluated
  const Stmt* written_ = nullptr;  // that store, where its value is translated
  const Access* written_at_ = nullptr;
};

// Puts the nest of an iteration into the innermost of the loops around a block that belong to its first axes. An axis
// of one position has no loop; where none has one, the two run one after another as they are.
void share_loops(Stage2& stage, const Iteration& it, const std::string& block, size_t num_axes) {
  const Nest nest = find_block(stage, block);
  for (size_t a = num_axes; a-- > 0;) {
    if (nest.find(it.iterators[a]) == nest.path.size()) continue;
    return reverse_compute_at(stage, it.name, fmt::format("{}.{}", block, it.iterators[a]));
  }
}

// Iterations of one nest share its loops. Throws where they may not: where one of them needs what another computes at
// other points of the nest.
void merge_nests(const Stage1& program, Stage2& stage) {
  for (size_t i = 1; i < program.iterations.size(); ++i) {
    const Iteration &before = program.iterations[i - 1], &it = program.iterations[i];
    if (const size_t depth = num_common(before, it); depth > 0)
      share_loops(stage, it, before.name, it.around[depth - 1].num_axes);
  }
}

// Whether what the body does at one point may meet init at a later one, all of which runs first.
bool meets_init(const Iteration& it, Stage2& stage, size_t first) {
  std::set<const Stmt*> init;
  visit(find_block(stage, it.name).block().init, [&](Stmt& stmt) { init.insert(&stmt); });
  std::vector<const Stmt*> statements;
  for (size_t i = first; i < stage.body.size(); ++i) statements.push_back(&stage.body[i]);
  const auto is_init = [&](const MemoryAccess& access) { return init.contains(access.stmt); };
  return Dependences(stage, {}, statements).overtakes(is_init).has_value();
}

void add_nest(const Stage1& program, const Iteration& it, const Names& named, Stage2& stage) {
  const size_t first = stage.body.size();
  IterationLowering lowering(program, it, named);
  const Body nest = lowering.lower();
  stage.body.insert(stage.body.end(), nest.begin(), nest.end());
  if (it.init.empty()) return;
  const bool meets = meets_init(it, stage, first);
  if (!meets && !lowering.is_init_guarded()) return;
  check(!meets || it.around.empty(), ErrorCode::unsupported,
        "iteration '{}', within another one: what init stores may be stored or read at other points; required: an "
        "iteration of its own",
        it.name);
  Names names;
  for (const Iteration& other : program.iterations) names.insert(other.name);
  const std::string name = loop::fresh_name(it.name + "_init", names);
  find_block(stage, it.name).block().init.clear();
  const Body init = lowering.init_nest(name);
  stage.body.insert(stage.body.begin() + static_cast<std::ptrdiff_t>(first), init.begin(), init.end());
  if (!it.around.empty()) share_loops(stage, it, name, it.num_shared_axes());
}

}  // namespace

void lower_iterations(const Stage1& program, Stage2& stage, const Names& named) {
  verify(program);
  for (const Iteration& it : program.iterations) add_nest(program, it, named, stage);
  merge_nests(program, stage);
  verify(stage);
}

}  // namespace weft::sparse
