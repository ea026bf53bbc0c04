#include "sparse/stage2/outside.h"

#include <algorithm>

#include "base/check.h"
#include "loop/linear.h"
#include "sparse/stage2/product.h"

namespace weft::sparse {
namespace {

struct AskedAccess {
  Expr element = {};
  std::vector<Expr> asked = {};  // by selects around it
};

// Proves that accesses lie inside of what they access.
class InsideProof {
 public:
  InsideProof(const Stage2& stage, const Around& around) : stage_(stage), facts_(facts_within(stage, around)) {}

  bool covers(const AskedAccess& access) const {
    loop::Facts facts = facts_;
    for (const Expr& condition : access.asked) facts.push_condition(condition);
    return covers(access.element->name, access.element->operands, facts);
  }

 private:
  bool covers(const std::string& name, const std::vector<Expr>& positions, const loop::Facts& facts) const {
    const auto is_below = [&](const Expr& position, const Expr& extent) {
      return facts.is_nonnegative(position) && facts.holds(loop::less(position, extent));
    };
    const Auxiliary* array = stage_.find_auxiliary(name);
    const SparseBuffer* buffer = stage_.find_buffer(name);
    if (array == nullptr && buffer == nullptr) return true;  // memory of its own, at loops' variables
    if (array != nullptr && array->kind == Auxiliary::Kind::rows)
      return is_below(positions[0], length_of(stage_, *array));
    const std::vector<std::string> axes = array != nullptr ? axes_of(stage_, *array) : buffer->axes;
    std::vector<Expr> ancestors;  // of the chain that is gone down
    for (size_t d = 0; d < axes.size(); ++d) {
      const Axis& axis = stage_.axis(axes[d]);
      if (axis.parent.empty()) ancestors.clear();
      const bool one_further = array != nullptr && array->kind == Auxiliary::Kind::indptr && d + 1 == axes.size();
      const Expr extent = extent_of(stage_, axis, ancestors);
      if (!is_below(positions[d], one_further ? extent + 1 : extent)) return false;
      ancestors.push_back(positions[d]);
    }
    return true;
  }

  const Stage2& stage_;
  loop::Facts facts_;
};

// `0 < extent`, of extents as split makes them without the division.
Expr has_iterations(const Expr& extent) {
  int64_t divisor = 0;
  if (extent->op != Op::floor_div || !loop::is_integer(extent->operands[1], &divisor) || divisor <= 0)
    return loop::less(0, extent);
  return has_iterations(loop::expr_of(loop::linear_of(extent->operands[0] - (divisor - 1))));
}

// Whether a condition that holds at some point of loops holds at the first one: these variables only add to what is to
// be small.
bool holds_at_first(const Names& changing, const Expr& condition) {
  if (condition->op != Op::less && condition->op != Op::less_equal) return false;
  const auto& x = condition->operands;
  if (x[0]->type != Type::integer || have_common(names_in(x[1]), changing)) return false;
  const loop::Linear sum = loop::linear_of(x[0]);
  return !sum.overflows && std::all_of(sum.terms.begin(), sum.terms.end(), [&](const auto& part) {
    const auto& [term, coefficient] = part;
    return !have_common(names_in(term), changing) || (term->op == Op::variable && coefficient > 0);
  });
}

void add_asked_accesses(const Expr& e, const std::vector<Expr>& asked, std::vector<AskedAccess>& accesses) {
  if (e->op == Op::load || loop::is_search(e->op)) accesses.push_back({e, asked});
  for (size_t i = 0; i < e->operands.size(); ++i) {
    std::vector<Expr> inner = asked;
    if (e->op == Op::select && i == 1) inner.push_back(e->operands[0]);
    add_asked_accesses(e->operands[i], inner, accesses);
  }
}

std::vector<AskedAccess> accesses_of(const Body& body) {
  std::vector<AskedAccess> accesses;
  visit(body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store) accesses.push_back({loop::load(stmt.name, stmt.indices, Type::real)});
  });
  visit_exprs(body, [&](const Expr& e) { add_asked_accesses(e, {}, accesses); });
  return accesses;
}

// Throws where a condition that is left out may be what keeps an access inside.
void check_conditions(const Stage2& stage, const Nest& nest, const InsideProof& proof, const AskedAccess& checked,
                      const std::vector<const Stmt*>& left_out) {
  const Expr& access = checked.element;
  if (access->op == Op::load && proof.covers(checked)) return;
  const auto variables = [&](const Expr& e) {
    Names names = loop::variables_of(nest.without_lets(e));
    for (const std::string& param : stage.params) names.erase(param);
    return names;
  };
  Names used;
  for (const Expr& index : access->operands) used.merge(variables(index));
  for (const Stmt* stmt : left_out)
    check(stmt->kind != Stmt::Kind::condition || !have_common(variables(stmt->value), used), ErrorCode::unsupported,
          "block '{}': {} would be accessed where {} does not hold, which depends on a reduction and may be what "
          "keeps it inside; reorder, or leave the points out by conditions on spatial iterators",
          nest.block().name, loop::to_words(loop::load(access->name, access->operands, Type::real)),
          loop::to_words(stmt->value));
}

// The first division that may fail in it, as the program says it; empty where there is none.
std::string failing_division(const Body& body) {
  std::string division;
  visit_exprs(body, [&](const Expr& e) {
    loop::visit(e, [&](const Expr& node) {
      if (node->failure != nullptr && division.empty()) division = node->failure->division;
    });
  });
  return division;
}

// Without loops' iterations nothing divides, but init asks the conditions of its point.
void check_divisions(const Stage2& stage, const Nest& nest, const Around& outer, const Runs& runs, const Body& kept,
                     const Body& inner) {
  const std::string kept_division = nest.block().init.empty() ? failing_division(kept) : "";
  const std::string division = kept_division.empty() ? failing_division(inner) : kept_division;
  check(division.empty() || (runs.exact && !unproven(facts_within(stage, outer), runs.conditions)),
        ErrorCode::unsupported,
        "block '{}': {} may fail, and would be computed where loops that it is taken out of have no iteration; leave "
        "such points out by select, or fix the extents",
        nest.block().name, division);
}

}  // namespace

void visit_within(const Body& body, const std::function<void(const Stmt& stmt, const Around& around)>& call,
                  Around around) {
  for (const Stmt& stmt : body) {
    call(stmt, around);
    around.push_back(&stmt);
    visit_within(stmt.init, call, around);
    visit_within(stmt.body, call, around);
    if (stmt.kind != Stmt::Kind::let) around.pop_back();
  }
}

loop::Facts facts_within(const Stage2& stage, const Around& around) {
  loop::Facts facts = facts_of(stage);
  for (const Stmt* stmt : around) {
    if (stmt->kind == Stmt::Kind::loop) facts.push_loop(stmt->name, stmt->value);
    if (stmt->kind == Stmt::Kind::let) facts.push_let(stmt->name, stmt->value);
    if (stmt->kind == Stmt::Kind::condition) facts.push_condition(stmt->value);
  }
  return facts;
}

Runs runs_of(const Nest& nest, size_t from, const Names& kept, const std::vector<const Stmt*>& left_out) {
  Names changing;  // variables, and memory that is set
  visit(Body{nest.path[from].stmt()}, [&](const Stmt& stmt) {
    if (stmt.kind != Stmt::Kind::block && !kept.contains(stmt.name)) changing.insert(stmt.name);
  });
  Substitution first;
  for (const Stmt* stmt : left_out)
    if (stmt->kind == Stmt::Kind::loop) first[stmt->name] = 0;
  Runs runs;
  for (const Stmt* stmt : left_out) {
    const bool is_loop = stmt->kind == Stmt::Kind::loop;
    const Expr value = nest.without_lets(stmt->value);
    const bool is_same = !have_common(names_in(value), changing);
    if (!value->may_fail && (is_same || (!is_loop && holds_at_first(changing, value))))
      runs.conditions.push_back(loop::substitute(is_loop ? has_iterations(value) : value, first));
    else
      runs.exact = false;
  }
  return runs;
}

Expr unproven(const loop::Facts& facts, std::vector<Expr> conditions) {
  for (size_t i = 0; i < conditions.size();) {
    loop::Facts known = facts;
    for (size_t other = 0; other < conditions.size(); ++other)
      if (other != i && !loads_anything(conditions[other])) known.push_condition(conditions[other]);
    if (known.holds(conditions[i]))
      conditions.erase(conditions.begin() + static_cast<std::ptrdiff_t>(i));
    else
      ++i;
  }
  return all_hold(conditions);
}

Body where_they_run(const Stage2& stage, const Nest& nest, size_t from, const Around& outer, const Body& kept,
                    const std::vector<const Stmt*>& left_out, Body inner) {
  if (left_out.empty()) return inner;
  Around around = outer;
  for (const Stmt& stmt : kept) around.push_back(&stmt);
  Around within = around;
  within.insert(within.end(), left_out.begin(), left_out.end());
  Names known;
  for (const Stmt* stmt : around) known.insert(stmt->name);
  const Runs runs = runs_of(nest, from, known, left_out);
  check_divisions(stage, nest, outer, runs, kept, inner);
  const InsideProof proof(stage, around), proof_within(stage, within);
  const auto is_kept_inside = [&](const AskedAccess& access) {
    return access.element->op == Op::load && !proof.covers(access) && proof_within.covers(access);
  };
  const std::vector<AskedAccess> accesses = accesses_of(inner), before = accesses_of(kept);
  Around asked = around;
  Stmt condition;
  if (std::any_of(accesses.begin(), accesses.end(), is_kept_inside)) {
    if (const Expr asks = unproven(facts_within(stage, around), runs.conditions)) {
      condition = loop::make_condition(asks, {});
      asked.push_back(&condition);
    }
  }
  const InsideProof proof_asked(stage, asked);
  const auto check_access = [&](const AskedAccess& access, const InsideProof& own) {
    check_conditions(stage, nest, own, access, left_out);
    check(!is_kept_inside(access) || own.covers(access), ErrorCode::unsupported,
          "block '{}': {} would be accessed where loops that it is taken out of have no iteration, which may be what "
          "keeps it inside; reorder, or leave the points out by conditions on spatial iterators",
          nest.block().name, loop::to_words(access.element));
  };
  for (const AskedAccess& access : before) check_access(access, proof);
  for (const AskedAccess& access : accesses) check_access(access, proof_asked);
  if (asked.size() == around.size()) return inner;
  condition.body = std::move(inner);
  return {std::move(condition)};
}

}  // namespace weft::sparse
