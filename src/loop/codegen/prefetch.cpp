// What a loop loads at loaded places, fetched some iterations ahead.
#include <algorithm>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/linear.h"
#include "loop/operators.h"

namespace weft::loop {
namespace {

constexpr int64_t kLineBytes = 64;

// Loads whose place is loaded in turn, with each iteration of unrolled loops, at the first of others.
void collect_gathers(const Body& body, const std::string& variable, std::vector<Expr>& gathers) {
  for (const Stmt& stmt : body) {
    int64_t times = 1;
    if (stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::unroll) is_integer(stmt.value, &times);
    for (int64_t i = 0; i < times; ++i) {
      Body inner = stmt.body;
      if (stmt.kind == Stmt::Kind::loop) substitute(inner, {{stmt.name, i}});
      collect_gathers(inner, variable, gathers);
    }
    if (stmt.kind != Stmt::Kind::store) continue;
    visit(stmt.value, [&](const Expr& e) {
      if (e->op != Op::load || e->may_fail) return;  // ahead of the loop a divisor may be another
      bool is_gathered = false;
      visit(e->operands[0], [&](const Expr& place) { is_gathered |= place->op == Op::load && uses(place, variable); });
      if (is_gathered && std::find(gathers.begin(), gathers.end(), e) == gathers.end()) gathers.push_back(e);
    });
  }
}

}  // namespace

// Beyond the end of the loop, too, as long as the places are there to be read: what follows in an index array is what
// the next row gathers.
void CFamily::emit_prefetch(const Stmt& loop, int64_t ahead) {
  std::vector<Expr> gathers;
  collect_gathers(loop.body, loop.name, gathers);
  std::string open;                // the condition of the prefetches before
  std::vector<std::string> lines;  // of memory that are fetched already
  const auto close = [&] {
    if (!open.empty()) line("}");
  };
  for (const Expr& gather : gathers) {
    bool is_known = true;  // what memory within the loop will hold then is not
    visit(gather, [&](const Expr& e) { is_known = is_known && (e->op != Op::load || function_->find(e->name)); });
    if (!is_known) continue;
    const Expr place = substitute(gather->operands[0], {{loop.name, variable(loop.name) + ahead}});
    std::string condition;
    visit(place, [&](const Expr& e) {
      if (e->op != Op::load || !uses(e, loop.name)) return;
      const Expr index = expr_of(linear_of(e->operands[0]));
      condition += (condition.empty() ? "" : " && ") +
                   fmt::format("{} < {}", expr(index, kSumPrecedence), expr(size_of(e->name), kSumPrecedence));
    });
    Linear first = linear_of(place);
    const int64_t per_line = kLineBytes * 8 / bits_of(dtype_of(gather->name));
    first.constant = first.constant / per_line * per_line;
    const std::string fetch =
        fmt::format("__builtin_prefetch({} + {});", gather->name, expr(expr_of(first), kSumPrecedence));
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

Expr CFamily::size_of(const std::string& buffer) const {
  const Buffer* found = function_->find(buffer);
  ensure(found != nullptr, "'{}' is no buffer of {}", buffer, function_->name);
  return found->size;
}

}  // namespace weft::loop
