#include "sparse/stage2/loop_kind.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace weft::sparse {

Stmt& serial_loop(const std::string& primitive, const LoopInNest& found) {
  if (found.loop().loop != LoopKind::serial)
    refuse(primitive, found.name, fmt::format("the loop is {} already", loop::to_string(found.loop().loop)));
  return found.loop();
}

namespace {

// Shows that no two iterations of a loop write the same element.
class WritesApart {
 public:
  WritesApart(const Stage2& stage, std::string variable)
      : stage_(stage), variable_(std::move(variable)), facts_(facts_of(stage)) {}

  // What may be written twice; empty where nothing may.
  std::string problem_in(const Body& body) {
    for (const Stmt& stmt : body) {
      const bool is_output = stmt.kind == Stmt::Kind::store && !stmt.atomic && stage_.find_buffer(stmt.name) != nullptr;
      if (is_output && !is_apart(stmt.indices)) return loop::to_text(loop::load(stmt.name, stmt.indices, Type::real));
      if (stmt.kind == Stmt::Kind::loop) {
        facts_.push_loop(stmt.name, stmt.value);
        inner_.insert(stmt.name);
      }
      std::string problem = problem_in(stmt.init);
      if (problem.empty()) problem = problem_in(stmt.body);
      if (stmt.kind == Stmt::Kind::loop) {
        facts_.pop_loop();
        inner_.erase(stmt.name);
      }
      if (!problem.empty()) return problem;
    }
    return {};
  }

 private:
  bool uses_inner(const Expr& e) const {
    const Names used = loop::variables_of(e);
    return std::any_of(used.begin(), used.end(), [&](const std::string& v) { return inner_.contains(v); });
  }

  bool is_apart(const std::vector<Expr>& indices) const {
    const Expr v = loop::variable(variable_);
    for (size_t i = 0; i < indices.size(); ++i) {
      const Expr& e = indices[i];
      // An index of the axis is as good as v: unique, and never negative.
      const Expr own =
          loop::rewrite(e, [&](const Expr& node) { return is_own_index(node) ? loop::variable("") : node; });
      int64_t factor = 0;
      Expr rest;
      for (const auto& [index, unique] : {std::pair(e, variable_), std::pair(own, std::string())}) {
        if (!loop::is_linear_in(index, unique, &factor, &rest) || factor <= 0) continue;
        if (!uses_inner(rest) && !may_change(rest) && !loop::uses(rest, variable_)) return true;
        if (facts_.is_nonnegative(rest) && facts_.holds(loop::less(rest, factor))) return true;  // v * 4 + below 4
      }
      // (v // e, v % e), which two fused loops are, or one of them with the other * 4 + below 4.
      const bool is_half = e->op == Op::floor_div || e->op == Op::modulo;
      if (is_half && e->operands[0] == v && !uses_inner(e->operands[1]))
        for (const Expr& other : indices) {
          const Expr second = loop::rewrite(other, [&](const Expr& node) {
            const bool is_other = node->op == (e->op == Op::modulo ? Op::floor_div : Op::modulo);
            return is_other && node->operands == e->operands ? loop::variable("") : node;
          });
          if (loop::is_linear_in(second, "", &factor, &rest) && factor > 0 && facts_.is_nonnegative(rest) &&
              facts_.holds(loop::less(rest, factor)))
            return true;
        }
      // (row, v - indptr[row]), which fused axes are.
      const std::vector<Expr> before(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(i));
      if (e->op == Op::subtract && e->operands[0] == v && e->operands[1]->op == Op::load &&
          e->operands[1]->operands == before && stage_.find_auxiliary(e->operands[1]->name) != nullptr)
        return true;
    }
    return false;
  }

  // v, or v * 4 + below 4: a place that no other iteration has.
  bool is_own_place(const Expr& e) const {
    if (loop::is_variable(e, variable_)) return true;
    int64_t factor = 0;
    Expr rest;
    return loop::is_linear_in(e, variable_, &factor, &rest) && factor > 0 && !loop::uses(rest, variable_) &&
           facts_.is_nonnegative(rest) && facts_.holds(loop::less(rest, factor));
  }

  // indices[..., own place] of an axis, which are unique below one parent.
  bool is_own_index(const Expr& e) const {
    if (e->op != Op::load) return false;
    const Auxiliary* array = stage_.find_auxiliary(e->name);
    if (array == nullptr || array->kind != Auxiliary::Kind::indices || !is_own_place(e->operands.back())) return false;
    for (size_t i = 0; i + 1 < e->operands.size(); ++i)
      if (loop::uses(e->operands[i], variable_) || uses_inner(e->operands[i])) return false;
    return true;
  }

  // Whether it may differ from one iteration to the next, by a load or by what `let` names.
  bool may_change(const Expr& e) const {
    bool found = false;
    loop::visit(e, [&](const Expr& node) { found |= node->op == Op::load || loop::is_search(node->op); });
    const Names used = loop::variables_of(e);
    for (const std::string& name : used)
      found |= !inner_.contains(name) &&
               std::find(stage_.params.begin(), stage_.params.end(), name) == stage_.params.end() &&
               !is_outer_loop(name);
    return found;
  }
  bool is_outer_loop(const std::string& name) const {
    bool is_let = false;
    visit(stage_.body, [&](const Stmt& stmt) { is_let |= stmt.kind == Stmt::Kind::let && stmt.name == name; });
    return !is_let;
  }

  const Stage2& stage_;
  std::string variable_;
  loop::Facts facts_;
  Names inner_;
};

// A load of what another iteration may write; empty where there is none. It is one's own where all indices, or one that
// is the loop's variable, are those of every store.
std::string foreign_load(const Stage2& stage, const LoopInNest& found) {
  std::map<std::string, std::vector<std::vector<Expr>>> stores;
  const Body& body = found.loop().body;
  visit(body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store && !stmt.atomic && stage.find_buffer(stmt.name) != nullptr)
      stores[stmt.name].push_back(stmt.indices);
  });
  std::string problem;
  visit_exprs(body, [&](const Expr& e) {
    loop::visit(e, [&](const Expr& node) {
      const auto written = node->op == Op::load ? stores.find(node->name) : stores.end();
      if (written == stores.end()) return;
      const auto& all = written->second;
      bool is_own = std::all_of(all.begin(), all.end(), [&](const auto& at) { return at == node->operands; });
      for (size_t d = 0; d < node->operands.size(); ++d)
        is_own |= loop::uses(node->operands[d], found.variable) &&
                  std::all_of(all.begin(), all.end(), [&](const auto& at) { return at[d] == node->operands[d]; });
      if (!is_own) problem = loop::to_text(node);
    });
  });
  return problem;
}

}  // namespace

bool adds_atomically(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.atomic; });
  return found;
}

void check_writes_apart(const std::string& primitive, const Stage2& stage, const LoopInNest& found) {
  const std::string problem = WritesApart(stage, found.variable).problem_in(found.loop().body);
  if (!problem.empty())
    refuse(primitive, found.name, fmt::format("{} may be the same element in two of its iterations", problem));
  if (const std::string load = foreign_load(stage, found); !load.empty())
    refuse(primitive, found.name, fmt::format("{} may be written by another of its iterations", load));
}

}  // namespace weft::sparse
