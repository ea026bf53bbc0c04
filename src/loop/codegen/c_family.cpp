#include "loop/codegen/c_family.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "loop/linear.h"
#include "loop/operators.h"

namespace weft::loop {
namespace {

std::string parenthesised(std::string text, int own, int needed) { return own < needed ? "(" + text + ")" : text; }

constexpr int kCastPrecedence = 7;
struct Infix {
  Op op;
  const char* symbol;
  int precedence;
};
constexpr Infix kInfix[] = {{Op::logical_or, "||", 1},
                            {Op::logical_and, "&&", 2},
                            {Op::less_equal, "<=", 4},
                            {Op::greater_equal, ">=", 4},
                            {Op::equal, "==", 4},
                            {Op::not_equal, "!=", 4},
                            {Op::less, "<", 4},
                            {Op::greater, ">", 4},
                            {Op::add, "+", kSumPrecedence},
                            {Op::subtract, "-", kSumPrecedence},
                            {Op::multiply, "*", kProductPrecedence},
                            {Op::divide, "/", kProductPrecedence}};

// Of the number that says where it failed first.
std::string place_of(const Function& function, const Failure& failure) {
  const std::vector<Failure> all = failures_of(function);
  return fmt::format("weft_failures + {}", std::find(all.begin(), all.end(), failure) - all.begin());
}

// Whether it is made of literals and variables of loops.
bool is_of_loops(const Expr& e, const Function& function, const Facts& facts) {
  bool is_known = true;
  visit(e, [&](const Expr& node) {
    is_known = is_known && node->op != Op::load && !is_search(node->op);
    if (!is_known || node->op != Op::variable) return;
    const auto& scalars = function.scalars;
    const Expr* value = facts.let_of(node->name);
    is_known = value != nullptr ? is_of_loops(*value, function, facts)
                                : std::find(scalars.begin(), scalars.end(), node->name) == scalars.end();
  });
  return is_known;
}

// Whether what a condition allows to be read may be a mask that is known when the code is compiled: a comparison of
// variables of loops, which are lanes where a loop becomes a vector.
bool compares_lanes(const Expr& e, const Function& function, const Facts& facts) {
  const auto& x = e->operands;
  return e->type == Type::boolean && x.size() == 2 && x[0]->type == Type::integer && x[1]->type == Type::integer &&
         is_of_loops(e, function, facts) && !variables_of(e).empty();
}

bool has_load(const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& node) { found = found || node->op == Op::load || is_search(node->op); });
  return found;
}

// Whether compilers may put copies of its body in its place.
bool is_short(const Stmt& loop) {
  int64_t extent = 0;
  return loop.loop == LoopKind::unroll || (is_integer(loop.value, &extent) && extent <= 16);
}

// Whether copies of its body would be many statements that have nothing to gain: lanes that ask each for themselves and
// access memory that is no register, or searches and loops of any length.
bool is_long_unrolled(const Stmt& loop, const Function& function) {
  if (!is_integer(loop.value) || loop.loop == LoopKind::unroll) return false;
  bool has_condition = false, has_loop = false, has_search = false, has_registers = false;
  visit(loop.body, [&](const Stmt& stmt) {
    has_condition |= stmt.kind == Stmt::Kind::condition;
    has_loop |= stmt.kind == Stmt::Kind::loop && !is_integer(stmt.value);
    has_registers |= stmt.kind == Stmt::Kind::store && function.find(stmt.name) == nullptr;
  });
  visit_exprs(loop.body, [&](const Expr& e) {
    visit(e, [&](const Expr& node) {
      has_search |= is_search(node->op);
      has_registers |= node->op == Op::load && function.find(node->name) == nullptr;
    });
  });
  if (loop.loop == LoopKind::vectorize) return has_condition && !has_registers;
  return loop.loop == LoopKind::serial && (has_loop || has_search);
}

// Whether compilers may make vectors of several statements of such a loop at once: it stores twice, and no loop stays
// in it.
bool may_be_grouped(const Body& body) {
  int stores = 0;
  bool has_loop = false;
  visit(body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store) ++stores;
    if (stmt.kind == Stmt::Kind::loop) stores += 1, has_loop = has_loop || !is_short(stmt);
  });
  return stores > 1 && !has_loop;
}

// Whether several statements of a loop that may become vectors stand under a condition that is one and the same for
// them: copies of a short loop that it does not depend on, or statements side by side. Those of whole vectors, in
// `registers`, become no others.
bool is_shared(const Expr& condition, const std::vector<const Stmt*>& loops,
               const std::map<std::string, int64_t>& registers) {
  if (loops.empty()) return false;
  for (const auto& [name, lanes] : registers)
    if (stores_to(loops.back()->body, name)) return false;
  for (size_t i = loops.size(); i-- > 1 && is_short(*loops[i]);)
    if (!uses(condition, loops[i]->name)) return true;
  return may_be_grouped(loops.back()->body);
}

const Infix* infix_of(Op op) {
  const Infix* const found =
      std::find_if(std::begin(kInfix), std::end(kInfix), [&](const Infix& i) { return i.op == op; });
  return found == std::end(kInfix) ? nullptr : found;
}

// Of cards' threads, which are unsigned.
bool is_axis_of_card(const std::string& variable) { return variable.find('.') != variable.npos; }

// Of a comparison of x + 1, which does not fit an int, with y: that of x with y - 1, which does. None where it is no
// such.
Expr with_literal_moved(const Expr& e, const Integers& integers) {
  const Expr& sum = e->operands[0];
  const bool is_offset = e->type == Type::boolean && sum->type == Type::integer &&
                         e->operands[1]->type == Type::integer && (sum->op == Op::add || sum->op == Op::subtract) &&
                         is_integer(sum->operands[1]);
  if (!integers.are_ints() || !is_offset || integers.fits_int(sum) || !integers.fits_int(sum->operands[0])) return {};
  const Expr right = sum->op == Op::add ? e->operands[1] - sum->operands[1] : e->operands[1] + sum->operands[1];
  return integers.fits_int(right) ? operation(e->op, {sum->operands[0], right}) : Expr();
}

std::string qualified(std::string text, const std::string& qualifier) {
  const std::string_view placeholder = "QUALIFIER";
  for (size_t at; (at = text.find(placeholder)) != text.npos;) text.replace(at, placeholder.size(), qualifier);
  return text;
}

}  // namespace

std::string search_functions(const std::string& qualifier) {
  std::string text = R"(// How many of `count` sorted elements from `start` on are at most x.
template <class T>
QUALIFIER long long weft_upper_bound(const T* array, long long start, long long count, long long x) {
  long long low = 0, high = count;
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (array[start + middle] <= x) low = middle + 1; else high = middle;
  }
  return low;
}
// The place of x among them; -1 where it is absent.
template <class T>
QUALIFIER long long weft_find(const T* array, long long start, long long count, long long x) {
  long long low = 0, high = count;
  while (low < high) {
    const long long middle = (low + high) / 2;
    if (array[start + middle] < x) low = middle + 1; else high = middle;
  }
  return low < count && array[start + low] == x ? low : -1;
}
)";
  return qualified(std::move(text), qualifier);
}

std::string division_functions(const std::string& qualifier) {
  return qualified(
      R"(// By any divisor. Where there is no quotient of 64 bits it is 0, and what fails is counted: the last digit
// says why.
QUALIFIER long long weft_any_floor_div(long long a, long long b) {
  if (b == 0 || (b == -1 && a < -9223372036854775807)) return 0;
  return a / b - (a % b != 0 && (a % b < 0) != (b < 0));
}
QUALIFIER long long weft_any_modulo(long long a, long long b) {
  if (b == 0 || b == -1) return 0;
  return a % b + (a % b != 0 && (a % b < 0) != (b < 0) ? b : 0);
}
QUALIFIER long long weft_any_floor_div(long long a, long long b, unsigned long long* least,
                                       unsigned long long number) {
  if (b == 0 || (b == -1 && a < -9223372036854775807)) weft_fail(least, number * 2 + (b != 0));
  return weft_any_floor_div(a, b);
}
QUALIFIER long long weft_any_modulo(long long a, long long b, unsigned long long* least, unsigned long long number) {
  if (b == 0) weft_fail(least, number * 2);
  return weft_any_modulo(a, b);
}
)",
      qualifier);
}

std::string phase_name(const Function& function, size_t phase) {
  return fmt::format("weft_{}_{}", function.name, phase);
}

std::string element_type(DType dtype) {
  switch (dtype) {
    case DType::fp32: return "float";
    case DType::fp64: return "double";
    case DType::fp16: return "weft_half";
    case DType::bf16: return "unsigned short";
    case DType::int32: return "int";
    case DType::int64: return "long long";
    default: ensure(false, "buffers of {} cannot be generated", weft::to_string(dtype));
  }
  return {};
}

std::string CFamily::address(const std::string& buffer, const Expr& place) {
  return fmt::format("{} + {}", buffer, expr(place, kSumPrecedence));
}

void CFamily::line(const std::string& text) {
  text_ += std::string(static_cast<size_t>(indent_) * 2, ' ') + text + "\n";
}

DType CFamily::dtype_of(const std::string& buffer) const {
  if (const auto found = local_.find(buffer); found != local_.end()) return found->second;
  const Buffer* found = function_->find(buffer);
  ensure(found != nullptr, "no buffer '{}'", buffer);
  return found->dtype;
}

std::string CFamily::real_literal(double value) const {
  const char* suffix = is_double_ ? "" : "f";
  if (std::isinf(value))
    return (value < 0 ? "-" : "") + text_of(is_double_ ? Intrinsic::infinity_fp64 : Intrinsic::infinity_fp32, {});
  if (std::isnan(value)) return text_of(is_double_ ? Intrinsic::nan_fp64 : Intrinsic::nan_fp32, {});
  return to_text(real(value)) + suffix;
}

std::string CFamily::expr(const Expr& e, int precedence) { return written(e, precedence).text; }

Written CFamily::infix(const Expr& e, const char* symbol, int own, int precedence) {
  const auto& x = e->operands;
  Written a = written(x[0], own);
  if (const Expr moved = a.is_int ? Expr() : with_literal_moved(e, integers_))
    return infix(moved, symbol, own, precedence);
  const Written b = written(x[1], own + 1);
  const bool is_hidden = has(Intrinsic::vector, target()) && compares_lanes(e, *function_, facts_);
  hides_masks_ |= is_hidden;
  const bool is_int = a.is_int && b.is_int && e->type == Type::integer && integers_.fits_int(e);
  if (integers_.are_ints() && e->type == Type::integer && !is_int) {
    if (a.is_int && b.is_int)
      a.text = "(long long)" + expr(x[0], kCastPrecedence);
    else if (e->op != Op::multiply)
      return {parenthesised(wide_sum(e), own, precedence)};
  }
  return {parenthesised(fmt::format("{} {} {}{}", a.text, symbol, b.text, is_hidden ? " + weft_zero" : ""), own,
                        precedence),
          is_int};
}

// Of what does not fit an int: what does is added up first, in one.
std::string CFamily::wide_sum(const Expr& e) {
  std::vector<std::pair<Expr, bool>> addends;  // with whether it is subtracted
  const auto collect = [&](const auto& self, const Expr& part, bool is_less) -> void {
    if (part->type == Type::integer && (part->op == Op::add || part->op == Op::subtract)) {
      self(self, part->operands[0], is_less);
      return self(self, part->operands[1], is_less != (part->op == Op::subtract));
    }
    addends.emplace_back(part, is_less);
  };
  collect(collect, e, false);
  Expr small = 0;
  std::string text;
  for (const auto& [part, is_less] : addends) {
    const bool is_int = written(part).is_int;
    const Expr sum = is_less ? small - part : small + part;
    if (is_int && integers_.fits_int(sum)) {
      small = sum;
      continue;
    }
    const std::string one = is_int ? "(long long)" + expr(part, kCastPrecedence) : expr(part, kProductPrecedence);
    text += text.empty() ? (is_less ? "-" : "") + one : (is_less ? " - " : " + ") + one;
  }
  if (text.empty()) return "(long long)" + expr(small, kCastPrecedence);
  if (is_literal(small, 0)) return text;
  int64_t literal = 0;
  if (is_integer(small, &literal) && literal < 0) return fmt::format("{} - {}", text, -literal);
  return fmt::format("{} + {}", text, expr(small, kProductPrecedence));
}

Written CFamily::written(const Expr& e, int precedence) {
  const auto& x = e->operands;
  if (const Infix* const found = infix_of(e->op)) return infix(e, found->symbol, found->precedence, precedence);
  switch (e->op) {
    case Op::integer_literal:
      return {parenthesised(fmt::format("{}", e->integer), e->integer < 0 ? kCastPrecedence : 9, precedence),
              integers_.is_int(e->integer)};
    case Op::real_literal:
      return {parenthesised(real_literal(e->real), std::signbit(e->real) ? kCastPrecedence : kPostfixPrecedence,
                            precedence)};
    case Op::variable: {
      const bool is_int = integers_.is_int(e->name);
      return {is_int && is_axis_of_card(e->name) ? fmt::format("int({})", e->name) : e->name, is_int};
    }
    case Op::load: {
      if (registers_.contains(e->name)) spilled_.insert(e->name);
      const std::string element = fmt::format("{}[{}]", e->name, expr(x[0]));
      const DType dtype = dtype_of(e->name);
      // What is computed of an index may not fit 32 bits.
      if (dtype == DType::int32)
        return {integers_.are_ints() ? element : "(long long)" + element, integers_.are_ints()};
      return {is_narrow(dtype) ? fmt::format("weft_from_{}({})", weft::to_string(dtype), element) : element};
    }
    case Op::floor_div:
    case Op::modulo: return division(e);
    case Op::minimum:
    case Op::maximum: {
      const Written a = written(x[0]), b = written(x[1]);
      return {fmt::format("weft_{}({}, {})", e->op == Op::minimum ? "min" : "max", a.text, b.text),
              a.is_int && b.is_int};
    }
    case Op::negate: {
      const Written a = written(x[0], kPostfixPrecedence);
      const bool is_wide = a.is_int && !integers_.fits_int(e);
      return {parenthesised((is_wide ? "-(long long)" : "-") + a.text, kCastPrecedence, precedence),
              a.is_int && !is_wide};
    }
    case Op::select: return select(e);
    default: return {call(e)};
  }
}

// What is called by its name, or is no number.
std::string CFamily::call(const Expr& e) {
  const auto& x = e->operands;
  switch (e->op) {
    case Op::logical_not: return "!" + expr(x[0], kPostfixPrecedence);
    case Op::exponential: return fmt::format("weft_exp({})", expr(x[0]));
    case Op::logarithm: return fmt::format("weft_log({})", expr(x[0]));
    case Op::hyperbolic_tangent: return fmt::format("weft_tanh({})", expr(x[0]));
    case Op::sigmoid: return fmt::format("weft_sigmoid({})", expr(x[0]));
    case Op::power:  // of one type: a buffer of fp32 may stand beside one of fp64
      return is_double_ ? fmt::format("weft_pow(double({}), double({}))", expr(x[0]), expr(x[1]))
                        : fmt::format("weft_pow({}, {})", expr(x[0]), expr(x[1]));
    case Op::square_root: return fmt::format("weft_sqrt({})", expr(x[0]));
    case Op::absolute: {
      const Written a = written(x[0]);
      return fmt::format("weft_abs({}{})", a.is_int ? "0ll + " : "", a.text);
    }
    case Op::to_real: return fmt::format("{}({})", real_type(), expr(x[0]));
    case Op::find:
    case Op::upper_bound:
      return fmt::format("weft_{}({}, {}, {}, {})", e->op == Op::find ? "find" : "upper_bound", e->name, expr(x[0]),
                         expr(x[1]), expr(x[2]));
    default: break;
  }
  ensure(false, "'{}' cannot be generated", to_text(e));
  return {};
}

Written CFamily::select(const Expr& e) {
  const auto& x = e->operands;
  const std::string condition = expr(x[0], 1);
  const bool branches = has(Intrinsic::vector, target()) && is_shared(x[0], loops_, registers_);
  const auto branch = [&](const Expr& value) {
    Written result = written(value, 1);
    if (branches && has_load(value)) result.text = fmt::format("(weft_branch(), {})", result.text);
    return result;
  };
  facts_.push_condition(x[0]);
  Written a = branch(x[1]);
  facts_.pop_condition();
  const Written b = branch(x[2]);
  if (!integers_.are_ints() && is_integer(x[1]) && is_integer(x[2])) a.text += "ll";  // else it would be of 32 bits
  return {fmt::format("({} ? {} : {})", condition, a.text, b.text), a.is_int && b.is_int};
}

// By a divisor of 1 or more, which is asked nothing, or by any: that counts a failure where there is no quotient.
Written CFamily::division(const Expr& e) {
  const auto& x = e->operands;
  const char* name = e->op == Op::floor_div ? "floor_div" : "modulo";
  const Written a = written(x[0]), b = written(x[1]);
  if (facts_.is_positive(x[1])) {
    const bool is_int = a.is_int && b.is_int;
    if (is_int && integers_.is_never_negative(x[0])) name = e->op == Op::floor_div ? "quotient" : "rest";
    return {fmt::format("weft_{}({}, {})", name, a.text, b.text), is_int};
  }
  if (e->failure == nullptr) return {fmt::format("weft_any_{}({}, {})", name, a.text, b.text)};
  ensure(x.size() == 3, "'{}' has {} numbers of its place; flat loops have 1", to_text(e), x.size() - 2);
  return {
      fmt::format("weft_any_{}({}, {}, {}, {})", name, a.text, b.text, place_of(*function_, *e->failure), expr(x[2]))};
}

void CFamily::emit(const Body& body) {
  const Integers before = integers_;
  size_t lets = 0;
  for (const Stmt& stmt : body) {
    switch (stmt.kind) {
      case Stmt::Kind::loop: emit_loop(stmt); break;
      case Stmt::Kind::store: emit_store(stmt); break;
      case Stmt::Kind::let: {
        const Written value = written(stmt.value);
        const char* const type = integers_.declare(stmt.name, integers_.range_of(stmt.value, value));
        line(fmt::format("const {} {} = {};", type, stmt.name, value.text));
        facts_.push_let(stmt.name, stmt.value);
        ++lets;
        break;
      }
      case Stmt::Kind::allocate:
        local_[stmt.name] = stmt.dtype;
        integers_.declare_memory(stmt, body);
        if (const auto found = registers_.find(stmt.name); found != registers_.end()) {
          int64_t size = 0;
          is_integer(stmt.indices[0], &size);
          const std::string type = text_of(Intrinsic::vector, {real_type(), fmt::format("{}", found->second)});
          line(fmt::format("{} {}[{}];", type, stmt.name, size / found->second));
          break;
        }
        line(allocation(stmt));
        break;
      case Stmt::Kind::condition:
        line(fmt::format("if ({}) {{", expr(stmt.value)));
        ++indent_;
        if (has(Intrinsic::vector, target()) && is_shared(stmt.value, loops_, registers_)) line("weft_branch();");
        facts_.push_condition(stmt.value, stmt.body);
        emit(stmt.body);
        facts_.pop_condition();
        --indent_;
        line("}");
        break;
      case Stmt::Kind::fail:
        line(fmt::format("weft_fail({}, {});", place_of(*function_, {stmt.writer, stmt.name}), expr(stmt.indices[0])));
        break;
      case Stmt::Kind::barrier:
      case Stmt::Kind::thread_sum:
      case Stmt::Kind::copy_async:
      case Stmt::Kind::commit_copies:
      case Stmt::Kind::wait_copies: line(of_thread(stmt)); break;
      case Stmt::Kind::block: ensure(false, "block '{}' is left", stmt.name);
    }
  }
  while (lets-- > 0) facts_.pop_let();
  integers_ = before;
}

std::string CFamily::allocation(const Stmt& stmt) {
  return fmt::format("{} {}[{}];", element_type(stmt.dtype), stmt.name, expr(stmt.indices[0]));
}

void CFamily::emit_store(const Stmt& store) {
  if (store.atomic)
    return line(fmt::format("weft_atomic_add({} + {}, {});", store.name, expr(store.indices[0], kSumPrecedence),
                            expr(store.value->operands[1])));
  if (registers_.contains(store.name)) spilled_.insert(store.name);
  const DType dtype = dtype_of(store.name);
  if (store.value->op == Op::load && is_narrow(dtype) && dtype_of(store.value->name) == dtype)  // bits as they are
    return line(fmt::format("{}[{}] = {}[{}];", store.name, expr(store.indices[0]), store.value->name,
                            expr(store.value->operands[0])));
  const std::string value = expr(store.value);
  line(fmt::format("{}[{}] = {};", store.name, expr(store.indices[0]),
                   is_narrow(dtype) ? fmt::format("weft_to_{}({})", weft::to_string(dtype), value) : value));
}

void CFamily::emit_loop(const Stmt& given) {
  if (given.loop == LoopKind::vectorize && has(Intrinsic::vector, target())) {
    facts_.push_loop(given.name, given.value);
    const bool is_vector = emit_vector_loop(given);
    facts_.pop_loop();
    if (is_vector) return;
  }
  const bool is_of_lanes = given.loop == LoopKind::vectorize || given.loop == LoopKind::unroll;
  const auto [loop, behind] = is_of_lanes ? with_wide_accesses(given) : std::pair(given, std::string());
  if (is_tensorised(loop)) return emit_product(loop);
  if (has_annotation(loop, "dot") && has(Intrinsic::dot, target()) && emit_dot(loop)) return;
  const Integers before = integers_;
  if (loop.loop == LoopKind::parallel || loop.loop == LoopKind::bind) {
    open_shared_loop(loop);
  } else {
    const bool is_rolled =
        has(Intrinsic::rolled, target()) && (has_annotation(loop, "rolled") || is_long_unrolled(loop, *function_));
    if (is_rolled) line(text_of(Intrinsic::rolled, {}));
    if (loop.loop == LoopKind::unroll) line(text_of(Intrinsic::unroll, {expr(loop.value)}));
    if (loop.loop == LoopKind::vectorize && !is_rolled) line(text_of(Intrinsic::lanes, {}));
    const Written extent = written(loop.value, kSumPrecedence);
    const char* const type = integers_.declare(loop.name, integers_.range_of(loop.value, extent).of_loop());
    line(fmt::format("for ({2} {0} = 0; {0} < {1}; ++{0}) {{", loop.name, extent.text, type));
  }
  ++indent_;
  const bool has_prefetch = has(Intrinsic::prefetch, target());
  if (const int64_t ahead = prefetch_distance(loop); ahead > 0 && has_prefetch) emit_prefetch(loop, ahead);
  facts_.push_loop(loop.name, loop.value);
  loops_.push_back(&loop);
  emit(loop.body);
  loops_.pop_back();
  facts_.pop_loop();
  integers_ = before;
  --indent_;
  line("}");
  if (!behind.empty()) line(behind);
}

const char* infix_symbol(Op op) {
  const Infix* const found = infix_of(op);
  return found == nullptr ? nullptr : found->symbol;
}

// Memory that was taken to be in vector registers and is not used as whole vectors makes the phase anew, as an array.
std::string CFamily::phase(const Function& function, const Phase& phase, size_t index) {
  function_ = &function;
  is_double_ = false;
  for (const Buffer& buffer : function.buffers) is_double_ |= buffer.dtype == DType::fp64;
  const Phase made{prepared(function, phase), phase.threads};
  registers_.clear();
  if (has(Intrinsic::vector, target())) registers_ = vector_locals(made.body, is_double_ ? DType::fp64 : DType::fp32);
  do {
    for (const std::string& name : spilled_) registers_.erase(name);
    spilled_.clear();
    write_phase(function, made, index);
  } while (!spilled_.empty());
  return text_;
}

void CFamily::write_phase(const Function& function, const Phase& phase, size_t index) {
  text_.clear();
  indent_ = 0;
  local_.clear();
  facts_ = Facts(function);
  integers_ = target() == Target::cuda ? Integers(function, facts_) : Integers();
  hides_masks_ = false;
  Names used;
  visit(phase.body, [&](const Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store) used.insert(stmt.name);
    if (!stmt.balance.empty()) used.insert(stmt.balance);
    if (prefetch_distance(stmt) > 0 && has(Intrinsic::prefetch, target()))  // asks whether places are there to be read
      for (const Buffer& buffer : function.buffers)
        if (type_of(buffer.dtype) == Type::integer && loads_from(stmt.body, buffer.name))
          used.merge(variables_of(buffer.size));
  });
  visit_exprs(phase.body, [&](const Expr& e) {
    visit(e, [&](const Expr& node) {
      if (!node->name.empty()) used.insert(node->name);
    });
  });
  line(head(phase_name(function, index), function, phase));
  ++indent_;
  if (const std::string note = note_of(phase); !note.empty()) line(note);
  for (size_t i = 0; i < function.buffers.size(); ++i)
    if (const Buffer& buffer = function.buffers[i]; used.contains(buffer.name))
      line(buffer_declaration(buffer, i, stores_to(phase.body, buffer.name)));
  for (size_t i = 0; i < function.scalars.size(); ++i)
    if (used.contains(function.scalars[i])) line(scalar_declaration(function.scalars[i], i, false));
  for (size_t i = 0; i < function.reals.size(); ++i)
    if (used.contains(function.reals[i]))
      line(scalar_declaration(function.reals[i], function.scalars.size() + i, true));
  if (may_fail(phase.body)) line(failures_declaration(function.buffers.size()));
  std::string above = std::exchange(text_, {});
  emit(phase.body);
  const std::string body = std::exchange(text_, std::move(above));
  if (hides_masks_) line("const long long weft_zero = weft_hidden_zero();");
  for (const std::string& check : checks()) line(check);
  text_ += body;
  --indent_;
  line("}");
}

std::string CFamily::module(const std::vector<Launches>& functions) {
  std::string text = prelude();
  for (const auto& [function, phases] : functions)
    for (size_t i = 0; i < phases.size(); ++i) text += "\n" + phase(function, phases[i], i);
  return text;
}

}  // namespace weft::loop
