// What a loop loads at loaded places, fetched some iterations ahead.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/linear.h"
#include "loop/operators.h"

namespace weft::loop {
namespace {

constexpr int64_t kLineBytes = 64;

// Whether a place can be known some iterations early and cheaply: it searches nothing, divides by nothing that could be
// 0 there, and uses no variable of `within`, whose values are known further on.
bool is_known_early(const Expr& place, const Names& within) {
  bool known = true;
  visit(place, [&](const Expr& e) {
    int64_t divisor = 0;
    const bool divides = e->op == Op::floor_div || e->op == Op::modulo;
    known &= !is_search(e->op) && (e->op != Op::variable || !within.contains(e->name)) &&
             (!divides || (is_integer(e->operands[1], &divisor) && divisor > 0));
  });
  return known;
}

// Loads of a function's buffers whose place is loaded in turn, with each iteration of unrolled loops, at the first of
// others. `values`: of the variables between here and the loop that fetches.
class Gathers {
 public:
  Gathers(const Function& function, std::string variable) : function_(function), variable_(std::move(variable)) {}

  void collect(const Body& body, Substitution values = {}) {
    for (const Stmt& stmt : body) {
      if (stmt.kind == Stmt::Kind::let) {
        const Expr value = substitute(stmt.value, values);
        if (is_known_early(value, unknown_))
          values[stmt.name] = value;
        else
          unknown_.insert(stmt.name);
        continue;
      }
      int64_t times = 1;
      if (stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::unroll) is_integer(stmt.value, &times);
      for (int64_t i = 0; i < times; ++i) {
        if (stmt.kind == Stmt::Kind::loop) values[stmt.name] = i;
        collect(stmt.body, values);
      }
      if (stmt.kind == Stmt::Kind::store) visit(substitute(stmt.value, values), [&](const Expr& e) { add(e); });
    }
  }

  std::vector<Expr> found;

 private:
  void add(const Expr& e) {
    if (e->op != Op::load || !is_known_early(e, unknown_) || std::find(found.begin(), found.end(), e) != found.end())
      return;
    bool is_gathered = false, is_in_memory = true;  // of the caller's, where ends are known
    visit(e, [&](const Expr& node) {
      if (node->op == Op::load) is_in_memory &= function_.find(node->name) != nullptr;
    });
    visit(e->operands[0], [&](const Expr& place) { is_gathered |= place->op == Op::load && uses(place, variable_); });
    if (is_gathered && is_in_memory) found.push_back(e);
  }

  const Function& function_;
  std::string variable_;
  Names unknown_;
};

// What holds of every index that is made of loops, parameters and arrays of structures.
bool is_never_negative(const Expr& index, const Function& function, const Names& lets) {
  const auto is_fine = [&](const Expr& e) { return is_never_negative(e, function, lets); };
  switch (index->op) {
    case Op::integer_literal: return index->integer >= 0;
    case Op::variable: return !lets.contains(index->name);
    case Op::load: {
      int64_t least = -1;
      const Buffer* buffer = function.find(index->name);
      return buffer != nullptr && buffer->least && is_integer(buffer->least, &least) && least >= 0;
    }
    case Op::add:
    case Op::multiply:
    case Op::floor_div:
    case Op::modulo: return is_fine(index->operands[0]) && is_fine(index->operands[1]);
    default: return false;
  }
}

}  // namespace

// Beyond the end of the loop, too, as long as the places are there to be read: what follows in an index array is what
// the next row gathers.
void CFamily::emit_prefetch(const Stmt& loop, int64_t ahead) {
  Gathers gathers(*function_, loop.name);
  gathers.collect(loop.body);
  Names lets;
  visit(function_->body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::let) lets.insert(stmt.name);
  });
  std::string open;                // the condition of the prefetches before
  std::vector<std::string> lines;  // of memory that are fetched already
  const auto close = [&] {
    if (!open.empty()) line("}");
  };
  for (const Expr& gather : gathers.found) {
    const Expr place = substitute(gather->operands[0], {{loop.name, variable(loop.name) + ahead}});
    std::string condition;
    visit(place, [&](const Expr& e) {
      if (e->op != Op::load || !uses(e, loop.name)) return;
      const Expr index = expr_of(linear_of(e->operands[0]));
      const std::string text = expr(index, kSumPrecedence);
      if (!condition.empty()) condition += " && ";
      if (!is_never_negative(index, *function_, lets)) condition += fmt::format("{} >= 0 && ", text);
      condition += fmt::format("{} < {}", text, expr(find_buffer(e->name)->size, kSumPrecedence));
    });
    Linear first = linear_of(place);
    const int64_t per_line = kLineBytes * 8 / bits_of(dtype_of(gather->name));
    first.constant = first.constant / per_line * per_line;
    const std::string fetch = text_of(Intrinsic::prefetch, {address(gather->name, expr_of(first))});
    if (std::find(lines.begin(), lines.end(), fetch) != lines.end()) continue;
    lines.push_back(fetch);
    if (condition != open) {
      close();
      line(fmt::format("if ({}) {{", condition));
      open = condition;
    }
    line("  " + fetch);
  }
  close();
}

}  // namespace weft::loop
