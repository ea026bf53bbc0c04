// Loops over the lanes of a vector, and the memory of a loop nest that lives in vector registers.
#include <algorithm>

#include "base/check.h"
#include "loop/codegen/c_family.h"
#include "loop/linear.h"
#include "loop/operators.h"

namespace weft::loop {
namespace {

constexpr int64_t kMostCopies = 256;  // statements that an unrolled loop may become

int64_t num_statements(const Body& body) {
  int64_t count = 0;
  visit(body, [&](const Stmt&) { ++count; });
  return count;
}

bool declares(const Body& body) {
  return std::any_of(body.begin(), body.end(), [](const Stmt& stmt) {
    return stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate;
  });
}

}  // namespace

Body unrolled(Body body) {
  Body result;
  for (Stmt& stmt : body) {
    stmt.body = unrolled(std::move(stmt.body));
    int64_t times = 0;
    const bool copies = stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::unroll &&
                        is_integer(stmt.value, &times) && times * num_statements(stmt.body) <= kMostCopies &&
                        !declares(stmt.body);
    if (!copies) {
      result.push_back(std::move(stmt));
      continue;
    }
    for (int64_t i = 0; i < times; ++i) {
      Body copy = stmt.body;
      substitute(copy, {{stmt.name, i}});
      rewrite_exprs(copy, [](const Expr& e) {
        return rewrite(e, [](const Expr& node) {
          return node->type == Type::integer && node->op == Op::add ? expr_of(linear_of(node)) : node;
        });
      });
      result.insert(result.end(), std::make_move_iterator(copy.begin()), std::make_move_iterator(copy.end()));
    }
  }
  return result;
}

std::map<std::string, int64_t> vector_locals(const Body& body, DType dtype) {
  std::map<std::string, int64_t> sizes, lanes;
  visit(body, [&](const Stmt& stmt) {
    int64_t size = 0;
    if (stmt.kind == Stmt::Kind::allocate && stmt.scope == Scope::registers && stmt.dtype == dtype &&
        is_integer(stmt.indices[0], &size))
      sizes[stmt.name] = size;
  });
  visit(body, [&](const Stmt& loop) {
    int64_t width = 0;
    if (loop.kind != Stmt::Kind::loop || loop.loop != LoopKind::vectorize || !is_integer(loop.value, &width)) return;
    for (const auto& [name, size] : sizes)
      if (size % width == 0 && accesses(loop.body, name)) lanes[name] = width;
  });
  return lanes;
}

// `name[at + lane]` of memory in registers; what is not a whole vector of it is noted, and then it is no vector at all.
std::string CFamily::register_at(const std::string& name, const Expr& at, int64_t lanes) {
  int64_t first = 0;
  if (is_integer(at, &first) && lanes == registers_.at(name) && first % lanes == 0)
    return fmt::format("{}[{}]", name, first / lanes);
  spilled_.insert(name);
  return name;
}

std::string CFamily::vector_type(const Stmt& loop) const {
  return text_of(Intrinsic::vector, {real_type(), fmt::format("{}", literal_of(loop.value))});
}

int64_t literal_of(const Expr& e) {
  int64_t value = 0;
  ensure(is_integer(e, &value), "'{}' is no literal", to_text(e));
  return value;
}

// All statements over all lanes, if each can be; a guard at the end of the range is asked once for the whole vector.
bool CFamily::emit_vector_loop(const Stmt& loop) {
  const Body* body = &loop.body;
  std::string whole;
  const bool guarded = body->size() == 1 && (*body)[0].kind == Stmt::Kind::condition;
  if (guarded) {
    const Expr& guard = (*body)[0].value;
    int64_t step = 0, other = 0;
    Expr rest, bound;
    if (guard->op != Op::less || !is_linear_in(guard->operands[0], loop.name, &step, &rest) || step != 1 ||
        !is_linear_in(guard->operands[1], loop.name, &other, &bound) || other != 0)
      return false;
    whole = fmt::format("{} <= {}", expr(expr_of(linear_of(rest + loop.value)), kSumPrecedence),
                        expr(bound, kSumPrecedence));
    body = &(*body)[0].body;
  }
  std::vector<std::string> stores;
  for (const Stmt& stmt : *body) {
    if (stmt.kind != Stmt::Kind::store || stmt.atomic) return false;
    stores.push_back(loop.reduction ? lane_sum(stmt, loop) : vector_store(stmt, loop));
    if (stores.back().empty()) return false;
  }
  if (guarded) line(fmt::format("if ({}) {{", whole)), ++indent_;
  for (const std::string& store : stores) line(store);
  if (guarded) {
    --indent_;
    line("} else {");
    ++indent_;
    line(fmt::format("for (long long {0} = 0; {0} < {1}; ++{0}) {{", loop.name, expr(loop.value, kSumPrecedence)));
    ++indent_;
    emit(loop.body);
    --indent_;
    line("}");
    --indent_;
    line("}");
  }
  return true;
}

std::string CFamily::vector_store(const Stmt& store, const Stmt& loop) {
  int64_t step = 0;
  Expr rest;
  if (!is_linear_in(store.indices[0], loop.name, &step, &rest) || step != 1) return {};
  bool possible = true;
  const std::string value = vector_expr(store.value, loop, &possible);
  if (!possible) return {};
  const std::string vector = vector_type(loop);
  const bool varies = uses(store.value, loop.name);
  const std::string real = store.value->type == Type::integer ? fmt::format("({})({})", real_type(), value) : value;
  const std::string whole = varies ? value : fmt::format("{} - {}{{}}", real, vector);
  if (registers_.contains(store.name))
    return fmt::format("{} = {};", register_at(store.name, rest, literal_of(loop.value)), whole);
  switch (const DType dtype = dtype_of(store.name); dtype) {
    case DType::fp16:
    case DType::bf16:
      if (is_double_) return {};
      return text_of(Intrinsic::store_narrow, {std::string(weft::to_string(dtype)), address(store.name, rest), whole});
    case DType::fp32:
    case DType::fp64:
      if ((dtype_of(store.name) == DType::fp64) != is_double_) return {};
      return fmt::format("*({}*)({} + {}) = {};", vector, store.name, expr(rest, kSumPrecedence), whole);
    default: return {};
  }
}

// The lanes of a sum, added to what all of them add to.
std::string CFamily::lane_sum(const Stmt& store, const Stmt& loop) {
  const Expr target = load(store.name, store.indices, Type::real);
  const bool is_sum = store.value->op == Op::add && store.value->operands[0] == target &&
                      !uses(store.indices[0], loop.name) && uses(store.value->operands[1], loop.name);
  if (!is_sum || is_narrow(dtype_of(store.name))) return {};
  bool possible = true;
  const std::string lanes = vector_expr(store.value->operands[1], loop, &possible);
  if (!possible) return {};
  const std::string place = fmt::format("{}[{}]", store.name, expr(store.indices[0]));
  return fmt::format("{0} = {0} + weft_sum({1});", place, lanes);
}

std::string CFamily::vector_expr(const Expr& e, const Stmt& loop, bool* possible) {
  if (!uses(e, loop.name)) return expr(e, kPostfixPrecedence);
  const std::string vector = vector_type(loop);
  if (e->op == Op::load) {
    int64_t step = 0;
    Expr rest;
    const DType dtype = dtype_of(e->name);
    if (is_linear_in(e->operands[0], loop.name, &step, &rest) && step == 1) {
      if (registers_.contains(e->name)) return register_at(e->name, rest, literal_of(loop.value));
      if (dtype == (is_double_ ? DType::fp64 : DType::fp32))
        return fmt::format("*(const {}*)({} + {})", vector, e->name, expr(rest, kSumPrecedence));
      if (is_narrow(dtype) && !is_double_)
        return text_of(Intrinsic::load_narrow, {std::string(weft::to_string(dtype)), address(e->name, rest),
                                                fmt::format("{}", literal_of(loop.value))});
    }
  }
  if (e->type == Type::real)
    if (const char* symbol = infix_symbol(e->op))
      return fmt::format("({} {} {})", vector_expr(e->operands[0], loop, possible), symbol,
                         vector_expr(e->operands[1], loop, possible));
  *possible = false;
  return {};
}

}  // namespace weft::loop
