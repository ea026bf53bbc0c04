#include "loop/interpret.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "loop/regions.h"

namespace weft::loop {

Interpreter::Interpreter(Memory& memory, Place place, Failed failed)
    : memory_(memory), place_(std::move(place)), failed_(std::move(failed)), variables_(memory.scalars) {}

void Interpreter::fail_at(const std::string& writer, const std::string& buffer, const std::vector<Expr>& indices) {
  ensure(failed_ != nullptr, "interpreter: '{}' is written where it has no element", buffer);
  failed_({writer, buffer}, integers(indices));
}

bool Interpreter::is_within(const Range& range, int64_t index) {
  if (range.is_whole()) return true;
  const int64_t begin = integer(range.begin);
  return range.is_place() ? index == begin : index >= begin && index < integer(range.end);
}

void Interpreter::check_regions(const std::string& buffer, const std::vector<int64_t>& at, bool writes) {
  std::vector<Running> running = std::exchange(running_, {});  // ranges load, too, what is not the block's access
  for (const auto& [block, own] : running) {
    if (own.contains(buffer)) continue;
    const std::vector<Region>& regions = writes ? block->writes : block->reads;
    const bool found = std::any_of(regions.begin(), regions.end(), [&](const Region& region) {
      bool is_inside = region.buffer == buffer;
      for (size_t d = 0; is_inside && d < at.size(); ++d) is_inside = is_within(region.ranges[d], at[d]);
      return is_inside;
    });
    if (found) continue;  // before the text of the regions is made
    ensure(false, "interpreter: block '{}' {} '{}' at {}, which is not in its regions {}", block->name,
           writes ? "writes" : "reads", buffer, at[0], to_text(regions));
  }
  running_ = std::move(running);
}

std::vector<int64_t> Interpreter::integers(std::span<const Expr> list) {
  std::vector<int64_t> numbers;
  numbers.reserve(list.size());
  for (const Expr& e : list) numbers.push_back(integer(e));
  return numbers;
}

double* Interpreter::element(const std::string& buffer, const std::vector<int64_t>& at, bool writes) {
  if (!running_.empty()) check_regions(buffer, at, writes);
  int64_t place = 0;
  if (const auto local = local_.find(buffer); local != local_.end()) {
    for (size_t i = 0; i < at.size(); ++i) {
      ensure(at[i] >= 0 && at[i] < local->second[i], "interpreter: '{}' has {} places, not {}", buffer,
             local->second[i], at[i]);
      place = place * local->second[i] + at[i];
    }
  } else {
    const std::optional<int64_t> found = place_(buffer, at);
    if (!found) return nullptr;
    place = *found;
  }
  std::vector<double>& values = memory_.buffers.at(buffer);
  ensure(place >= 0 && place < static_cast<int64_t>(values.size()), "interpreter: '{}' has {} elements; {} is accessed",
         buffer, values.size(), place);
  return &values[static_cast<size_t>(place)];
}

double Interpreter::read(const std::string& buffer, const std::vector<int64_t>& at) {
  const double* found = element(buffer, at, false);
  return found == nullptr ? 0 : *found;
}

int64_t Interpreter::search(const Expr& e) {
  const auto operands = std::span(e->operands);
  const int64_t count = integer(operands[operands.size() - 2]), x = integer(operands.back());
  if (count <= 0) return e->op == Op::find ? -1 : 0;
  std::vector<int64_t> at = integers(operands.first(operands.size() - 2));
  int64_t below = 0;  // slow on purpose: no binary search that could err like the generated one
  for (int64_t i = 0; i < count; ++i, ++at.back()) {
    const auto value = static_cast<int64_t>(read(e->name, at));
    if (e->op == Op::find && value == x) return i;
    below += value <= x ? 1 : 0;
  }
  return e->op == Op::find ? -1 : below;
}

int64_t Interpreter::divide(const Expr& e) {
  const int64_t a = integer(e->operands[0]), b = integer(e->operands[1]);
  if (can_divide(e->op, a, b)) return divided(e->op, a, b);
  check(e->failure != nullptr && failed_ != nullptr, ErrorCode::invalid_argument, "{}: {} is divided by {}{}",
        to_words(e), a, b, b == 0 ? "" : ", which does not fit 64 bits");
  std::vector<int64_t> at;
  for (size_t i = 2; i < e->operands.size(); ++i) at.push_back(integer(e->operands[i]));
  at.push_back(b == 0 ? 0 : 1);
  failed_(*e->failure, at);
  return 0;
}

namespace {

// Wraps where it does not fit, as it may anywhere: nobody looks at such a value.
int64_t wrapped(uint64_t x) { return static_cast<int64_t>(x); }
uint64_t bits(int64_t x) { return static_cast<uint64_t>(x); }

}  // namespace

int64_t Interpreter::integer(const Expr& e) {
  const auto& x = e->operands;
  switch (e->op) {
    case Op::integer_literal: return e->integer;
    case Op::variable: {
      const auto found = variables_.find(e->name);
      ensure(found != variables_.end(), "interpreter: '{}' has no value", e->name);
      return found->second;
    }
    case Op::load: return static_cast<int64_t>(read(e->name, integers(x)));
    case Op::add: return wrapped(bits(integer(x[0])) + bits(integer(x[1])));
    case Op::subtract: return wrapped(bits(integer(x[0])) - bits(integer(x[1])));
    case Op::multiply: return wrapped(bits(integer(x[0])) * bits(integer(x[1])));
    case Op::floor_div:
    case Op::modulo: return divide(e);
    case Op::minimum: return std::min(integer(x[0]), integer(x[1]));
    case Op::maximum: return std::max(integer(x[0]), integer(x[1]));
    case Op::negate: return wrapped(0 - bits(integer(x[0])));
    case Op::absolute: {
      const int64_t value = integer(x[0]);
      return value < 0 ? wrapped(0 - bits(value)) : value;
    }
    case Op::select: return integer(condition(x[0]) ? x[1] : x[2]);
    case Op::find:
    case Op::upper_bound: return search(e);
    default: ensure(false, "interpreter: '{}' is no integer", to_words(e));
  }
  return 0;
}

double Interpreter::real(const Expr& e) {
  if (e->type == Type::integer) return static_cast<double>(integer(e));
  const auto& x = e->operands;
  switch (e->op) {
    case Op::real_literal: return e->real;
    case Op::variable: return memory_.reals.at(e->name);
    case Op::load: return read(e->name, integers(x));
    case Op::add: return real(x[0]) + real(x[1]);
    case Op::subtract: return real(x[0]) - real(x[1]);
    case Op::multiply: return real(x[0]) * real(x[1]);
    case Op::divide: return real(x[0]) / real(x[1]);
    case Op::minimum: {
      const double a = real(x[0]), b = real(x[1]);
      return b < a ? b : a;
    }
    case Op::maximum: {
      const double a = real(x[0]), b = real(x[1]);
      return a < b ? b : a;
    }
    case Op::negate: return -real(x[0]);
    case Op::absolute: return std::fabs(real(x[0]));
    case Op::exponential: return std::exp(real(x[0]));
    case Op::logarithm: return std::log(real(x[0]));
    case Op::hyperbolic_tangent: return std::tanh(real(x[0]));
    case Op::sigmoid: return 1 / (1 + std::exp(-real(x[0])));
    case Op::power: return std::pow(real(x[0]), real(x[1]));
    case Op::square_root: return std::sqrt(real(x[0]));
    case Op::to_real: return static_cast<double>(integer(x[0]));
    case Op::select: return real(condition(x[0]) ? x[1] : x[2]);
    default: ensure(false, "interpreter: '{}' is no real", to_words(e));
  }
  return 0;
}

namespace {

template <class T>
bool compare(Op op, T a, T b) {
  switch (op) {
    case Op::less: return a < b;
    case Op::less_equal: return a <= b;
    case Op::greater: return a > b;
    case Op::greater_equal: return a >= b;
    case Op::equal: return a == b;
    default: return a != b;
  }
}

}  // namespace

bool Interpreter::condition(const Expr& e) {
  const auto& x = e->operands;
  switch (e->op) {
    case Op::logical_and: return condition(x[0]) && condition(x[1]);
    case Op::logical_or: return condition(x[0]) || condition(x[1]);
    case Op::logical_not: return !condition(x[0]);
    case Op::less:
    case Op::less_equal:
    case Op::greater:
    case Op::greater_equal:
    case Op::equal:
    case Op::not_equal:
      if (x[0]->type == Type::integer && x[1]->type == Type::integer)
        return compare(e->op, integer(x[0]), integer(x[1]));
      return compare(e->op, real(x[0]), real(x[1]));
    case Op::select: return condition(condition(x[0]) ? x[1] : x[2]);
    default: ensure(false, "interpreter: '{}' is no condition", to_words(e));
  }
  return false;
}

void Interpreter::run_block(const Stmt& block) {
  ensure(block.init.empty(), "interpreter: init of block '{}' has no place yet", block.name);
  const bool has_regions = !block.reads.empty() || !block.writes.empty();
  if (has_regions) running_.push_back({&block});
  run(block.body);
  if (has_regions) running_.pop_back();
}

void Interpreter::run(const Body& body) {
  for (const Stmt& stmt : body) {
    switch (stmt.kind) {
      case Stmt::Kind::loop: {
        const int64_t extent = integer(stmt.value);
        for (int64_t i = 0; i < extent; ++i) {
          variables_[stmt.name] = i;
          run(stmt.body);
        }
        break;
      }
      case Stmt::Kind::store: {
        // As in the code, a value that has no place is not computed, so that nothing in it fails.
        if (double* target = element(stmt.name, integers(stmt.indices), true); target != nullptr)
          *target = real(stmt.value);
        else
          fail_at("", stmt.name, stmt.indices);
        break;
      }
      case Stmt::Kind::condition:
        if (condition(stmt.value)) run(stmt.body);
        break;
      case Stmt::Kind::let: variables_[stmt.name] = integer(stmt.value); break;
      case Stmt::Kind::allocate: {
        std::vector<int64_t> extents;
        int64_t size = 1;
        for (const Expr& extent : stmt.indices) extents.push_back(integer(extent)), size *= extents.back();
        local_[stmt.name] = extents;
        for (Running& running : running_) running.own.insert(stmt.name);
        memory_.buffers[stmt.name].assign(static_cast<size_t>(size), std::nan(""));  // nothing is set until it is
        break;
      }
      case Stmt::Kind::fail: fail_at(stmt.writer, stmt.name, stmt.indices); break;
      case Stmt::Kind::barrier:
      case Stmt::Kind::copy_async:
      case Stmt::Kind::commit_copies:
      case Stmt::Kind::wait_copies:
      case Stmt::Kind::thread_sum: break;  // one thread does it all
      case Stmt::Kind::block: run_block(stmt); break;
    }
  }
}

void interpret(const Function& function, Memory& memory, Interpreter::Failed failed) {
  const auto place = [](const std::string&, const std::vector<int64_t>& indices) { return indices[0]; };
  Interpreter(memory, place, std::move(failed)).run(function.body);
}

}  // namespace weft::loop
