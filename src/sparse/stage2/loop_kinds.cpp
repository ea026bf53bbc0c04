// parallel, vectorize, unroll, bind, annotate: how a loop runs.
#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "base/check.h"
#include "sparse/stage2/nest.h"
#include "sparse/stage2/primitives.h"

namespace weft::sparse {
namespace {

using loop::LoopKind;

Stmt& serial_loop(const std::string& primitive, const LoopInNest& found) {
  if (found.loop().loop != LoopKind::serial)
    refuse(primitive, found.name, fmt::format("the loop is {} already", loop::to_string(found.loop().loop)));
  return found.loop();
}

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
    if (array == nullptr || array->is_indptr || !is_own_place(e->operands.back())) return false;
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

void check_writes_apart(const std::string& primitive, const Stage2& stage, const LoopInNest& found) {
  const std::string problem = WritesApart(stage, found.variable).problem_in(found.loop().body);
  if (!problem.empty())
    refuse(primitive, found.name, fmt::format("{} may be the same element in two of its iterations", problem));
  if (const std::string load = foreign_load(stage, found); !load.empty())
    refuse(primitive, found.name, fmt::format("{} may be written by another of its iterations", load));
}

// Whether the loop adds up what a primitive has put into memory of its own: lanes of one vector, in pairs.
bool adds_up_own_memory(const Stage2& stage, const LoopInNest& found) {
  const Body& body = found.nest.block().body;
  if (body.size() != 1 || body[0].kind != Stmt::Kind::store || body[0].value->op != loop::Op::add) return false;
  bool adds = false;
  loop::visit(body[0].value->operands[1], [&](const Expr& e) {
    adds |= e->op == loop::Op::load && stage.find_buffer(e->name) == nullptr &&
            stage.find_auxiliary(e->name) == nullptr && loop::uses(e, found.variable);
  });
  return adds && !loop::uses(body[0].indices.back(), found.variable);
}

// The indptr that says how much an iteration does: some inner loop runs from indptr[v] to indptr[v + 1].
std::string balance_of(const Stage2& stage, const Stmt& loop) {
  std::string balance;
  const Expr v = loop::variable(loop.name);
  visit(loop.body, [&](const Stmt& stmt) {
    if (!balance.empty() || stmt.kind != Stmt::Kind::loop || stmt.value->op != Op::subtract) return;
    const Expr &next = stmt.value->operands[0], &from = stmt.value->operands[1];
    if (next->op != Op::load || from->op != Op::load || next->name != from->name) return;
    const Auxiliary* array = stage.find_auxiliary(from->name);
    if (array == nullptr || !array->is_indptr || !(from->operands.back() == v)) return;
    // Only where the ancestors' positions make the offset v itself.
    for (size_t i = 0; i + 1 < from->operands.size(); ++i)
      if (!loop::is_literal(from->operands[i], 0)) return;
    balance = from->name;
  });
  return balance;
}

// Whether what is added up within is added at once; other writes have elements of their own.
bool adds_atomically(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.atomic; });
  return found;
}

// Threads add up one sum at one place, target = target + x.
void check_thread_sum(const LoopInNest& found, const std::string& thread) {
  const std::string is_reduction = "it is a reduction, whose iterations add to the same elements; ";
  if (thread != "threadIdx.x") refuse("bind", found.name, is_reduction + "use threadIdx.x, rfactor or atomic");
  const Stmt* store = nullptr;
  int num_stores = 0;
  Names inside{found.variable};
  const std::function<void(const Body&)> look = [&](const Body& body) {  // init will stand before the loop
    for (const Stmt& stmt : body) {
      if (stmt.kind == Stmt::Kind::store) store = &stmt, ++num_stores;
      if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::let) inside.insert(stmt.name);
      look(stmt.body);
    }
  };
  look(found.loop().body);
  if (num_stores != 1)
    refuse("bind", found.name,
           fmt::format("{}threads add up one sum, and {} elements are stored within", is_reduction, num_stores));
  const Expr target = loop::load(store->name, store->indices, Type::real);
  if (store->value->op != Op::add || !(store->value->operands[0] == target) ||
      loop::loads_from(store->value->operands[1], store->name))
    refuse("bind", found.name,
           fmt::format("{}threads add up a sum of the form {} = {} + x", is_reduction, loop::to_text(target),
                       loop::to_text(target)));
  for (const Expr& index : store->indices)
    for (const std::string& name : inside)
      if (loop::uses(index, name))
        refuse("bind", found.name,
               fmt::format("{}'{}' within it says where; put the reduction inside", is_reduction, name));
}

}  // namespace

void parallel(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("parallel", found);
  if (loop.reduction && !adds_atomically(loop.body))
    refuse("parallel", name,
           "it is a reduction, whose iterations add to the same elements; use rfactor, atomic, or a spatial loop");
  if (found.place != 0)
    refuse(
        "parallel", name,
        fmt::format("it stands within {}; the team shares an outermost loop",
                    found.nest.path[0].stmt().kind == Stmt::Kind::loop ? "loop '" + found.nest.path[0].stmt().name + "'"
                                                                       : "a condition"));
  check_writes_apart("parallel", stage, found);
  loop.loop = LoopKind::parallel;
  loop.balance = balance_of(stage, loop);
}

void vectorize(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("vectorize", found);
  const int64_t extent = literal_extent("vectorize", found);
  if (extent < 2 || extent > 64 || (extent & (extent - 1)) != 0)
    refuse("vectorize", name, fmt::format("its extent is {}; 2, 4, 8, 16, 32 and 64 are allowed", extent));
  if (loop.reduction && !adds_up_own_memory(stage, found))
    refuse("vectorize", name,
           "it is a reduction; rfactor makes partial sums of it, one a lane, and loops to vectorise");
  for (size_t i = found.place + 1; i < found.nest.path.size(); ++i)
    if (found.nest.path[i].stmt().kind == Stmt::Kind::loop)
      refuse("vectorize", name,
             fmt::format("loop '{}' stands within it; reorder first, a vector is innermost",
                         found.nest.path[i].stmt().name));
  if (!loop.reduction) check_writes_apart("vectorize", stage, found);
  loop.loop = LoopKind::vectorize;
}

void unroll(Stage2& stage, const std::string& name) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("unroll", found);
  const int64_t extent = literal_extent("unroll", found);
  if (extent > 64) refuse("unroll", name, fmt::format("its extent is {}; at most 64 are allowed", extent));
  loop.loop = LoopKind::unroll;
}

void bind(Stage2& stage, const std::string& name, const std::string& thread) {
  const LoopInNest found = find_loop(stage, name);
  Stmt& loop = serial_loop("bind", found);
  constexpr const char* kThreads[] = {"blockIdx.x",  "blockIdx.y",  "blockIdx.z",
                                      "threadIdx.x", "threadIdx.y", "threadIdx.z"};
  if (std::find(std::begin(kThreads), std::end(kThreads), thread) == std::end(kThreads))
    refuse("bind", name, fmt::format("'{}' is no thread axis; allowed are blockIdx and threadIdx, .x to .z", thread));
  const bool is_sum = loop.reduction && !adds_atomically(loop.body);
  if (is_sum) check_thread_sum(found, thread);
  for (const Stmt* other : found.nest.loops())
    if (other->thread == thread)
      refuse("bind", name, fmt::format("loop '{}' is bound to {} already", other->name, thread));
  if (!is_sum) check_writes_apart("bind", stage, found);
  loop.loop = LoopKind::bind;
  loop.thread = thread;
}

void annotate(Stage2& stage, const std::string& name, const std::string& annotation, int64_t distance) {
  const LoopInNest found = find_loop(stage, name);
  if (annotation == "dot") {
    int64_t extent = 0;
    if (!found.loop().reduction || !loop::is_integer(found.loop().value, &extent) || extent != 2)
      refuse("annotate", name, "dot: required is a reduction of two; split one by 2");
    found.loop().annotations.emplace_back("dot");
    return;
  }
  if (annotation != "prefetch")
    refuse("annotate", name,
           fmt::format("'{}' means nothing to any generator; allowed are prefetch and dot", annotation));
  if (distance < 1 || distance > 1024)
    refuse("annotate", name, fmt::format("prefetching {} iterations ahead; 1 to 1024 are allowed", distance));
  auto& list = found.loop().annotations;
  std::erase_if(list, [](const std::string& word) { return word.starts_with("prefetch"); });
  list.push_back(fmt::format("prefetch={}", distance));
}

}  // namespace weft::sparse
