#include "loop/threads/surroundings.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "loop/linear.h"

namespace weft::loop {
namespace {

// A loop over rows and columns at once, v // c and v % c, tells both where each of them tells an element.
struct Fused {
  std::string words = {};
  Expr offset = {};
};
std::optional<Fused> fused_place(const Facts& facts, const Expr& place, const std::string& variable) {
  const Linear sum = linear_of(place);
  for (const auto& [row, step] : sum.terms) {
    int64_t columns = 0;
    if (row->op != Op::floor_div || !is_variable(row->operands[0], variable) || step <= 0 ||
        !is_integer(row->operands[1], &columns))
      continue;
    Linear rest = sum;
    rest.add(row, -step);
    const Expr column = modulo(row->operands[0], columns);
    int64_t own = 0;
    for (const auto& [term, coefficient] : rest.terms)
      if (term == column) own = coefficient;
    if (own <= 0) continue;
    rest.add(column, -own);
    const Expr offset = expr_of(rest);
    if (uses(offset, variable) || !facts.is_nonnegative(offset) || !facts.holds(less(offset, own)) ||
        own * columns > step)
      continue;
    return Fused{fmt::format("// {} * {} and % * {} + ", columns, step, own), offset};
  }
  return std::nullopt;
}

bool binds_axes_of_ctas_once(const Stmt& loop) {
  Names axes;
  bool is_once = true;
  visit(Body{loop}, [&](const Stmt& stmt) { is_once &= !is_cta_loop(stmt) || axes.insert(stmt.thread).second; });
  return is_once;
}

}  // namespace

void Surroundings::open(const Stmt& loop) {
  if (is_bound_loop(loop)) {
    for (const BoundLoop& outer : bound_)
      if (outer.loop->thread == loop.thread)
        kernel_.refuse(loop.scheduled, "loop '{}' is bound to {} within loop '{}', which is bound to it already",
                       loop.name, loop.thread, outer.loop->name);
    BoundLoop bound{&loop, names_.size()};
    if (is_cta_loop(loop) && cta_loops().empty())
      bound.nest = {++num_cta_nests_, num_repeating_ == 0 && binds_axes_of_ctas_once(loop)};
    bound_.push_back(bound);
  } else {
    ++num_repeating_;
  }
  names_.push_back(loop.name);
  facts_.push_loop(loop.name, loop.value);
}

void Surroundings::close(const Stmt& loop) {
  if (is_bound_loop(loop))
    bound_.pop_back();
  else
    --num_repeating_;
  names_.pop_back();
  facts_.pop_loop();
}

void Surroundings::declare(const Stmt& stmt) {
  if (stmt.kind == Stmt::Kind::store) {
    if (kernel_.function.find(stmt.name) == nullptr) stored_[stmt.name].merge(inputs_of(stmt.value));
    return;
  }
  lets_[stmt.name] = inputs_of(stmt.value);
  names_.push_back(stmt.name);
}

std::vector<BoundLoop> Surroundings::thread_loops() const {
  std::vector<BoundLoop> loops;
  for (const BoundLoop& bound : bound_)
    if (is_thread_loop(*bound.loop)) loops.push_back(bound);
  return loops;
}

std::vector<BoundLoop> Surroundings::cta_loops() const {
  std::vector<BoundLoop> loops;
  for (const BoundLoop& bound : bound_)
    if (is_cta_loop(*bound.loop)) loops.push_back(bound);
  return loops;
}

Names Surroundings::missing_threads() const {
  Names missing = kernel_.threads;
  for (const BoundLoop& bound : bound_) missing.erase(bound.loop->thread);
  for (const std::string& axis : first_) missing.erase(axis);
  return missing;
}

bool Surroundings::is_inside(const std::string& buffer, const Expr& index) const {
  const Buffer* found = kernel_.function.find(buffer);
  return found == nullptr || (facts_.is_nonnegative(index) && facts_.holds(less(index, found->size)));
}

Names Surroundings::inputs_of(const Expr& e) const {
  Names inputs = variables_of(e);
  for (const std::string& name : variables_of(e))
    if (const auto let = lets_.find(name); let != lets_.end()) inputs.insert(let->second.begin(), let->second.end());
  visit(e, [&](const Expr& node) {
    const auto stored = node->op == Op::load ? stored_.find(node->name) : stored_.end();
    if (stored != stored_.end()) inputs.insert(stored->second.begin(), stored->second.end());
  });
  return inputs;
}

// "threadIdx.x * 4 + i * 64": iterations of these loops access elements of their own, each so many from there on. Where
// they stay below 64, the same one's are all that lie a multiple of 64 apart, a row's columns in every row:
// "threadIdx.x * 4 + modulo 64".
Owner Surroundings::owner_of(const Expr& index, const std::vector<BoundLoop>& loops) const {
  const Linear sum = linear_of(index);
  if (sum.overflows) return {};
  Linear same, rest;
  rest.constant = sum.constant;
  for (const auto& [term, coefficient] : sum.terms)
    (is_same_in_all(term, loops[0].num_names) ? same : rest).add(term, coefficient);
  int64_t period = 0;
  for (const auto& [term, coefficient] : same.terms) period = std::gcd(period, coefficient);
  Linear within = rest;
  if (period > 1) within.constant = (rest.constant % period + period) % period;
  const bool repeats = period > 1 && facts_.holds(less(expr_of(within), period));
  const std::string words = words_of(expr_of(repeats ? within : rest), loops);
  if (words.empty()) return {};
  if (repeats) return {fmt::format("{}modulo {}", words, period), {}};
  return {words + to_text(expr_of(same)), variables_of(expr_of(same))};
}

// "threadIdx.x * 4 + ", of which iteration of each loop the element is; "" where it may be of several.
std::string Surroundings::words_of(Expr place, std::vector<BoundLoop> loops) const {
  std::string words;
  while (!loops.empty()) {
    int64_t factor = 0;
    Expr offset;
    const auto next = std::find_if(loops.begin(), loops.end(), [&](const BoundLoop& bound) {
      return is_linear_in(place, bound.loop->name, &factor, &offset) && factor > 0 && facts_.is_nonnegative(offset) &&
             facts_.holds(less(offset, factor));
    });
    if (next == loops.end()) {
      std::optional<Fused> fused;
      const auto also = std::find_if(loops.begin(), loops.end(), [&](const BoundLoop& bound) {
        return (fused = fused_place(facts_, place, bound.loop->name)).has_value();
      });
      if (also == loops.end()) return {};
      words += also->loop->thread + " " + fused->words;
      loops.erase(also);
      place = fused->offset;
      continue;
    }
    words += fmt::format("{} * {} + ", next->loop->thread, factor);
    loops.erase(next);
    place = offset;
  }
  return words;
}

std::string Surroundings::cta_of(const Expr& index) const {
  const std::vector<BoundLoop> loops = cta_loops();
  if (loops.empty()) return {};
  const Owner owner = owner_of(index, loops);
  for (size_t i = 0; i < loops[0].num_names; ++i)
    if (owner.fixed.contains(names_[i])) return {};  // another one in other iterations of loops around
  return owner.words;
}

// Whether all threads see one value, which is known outside of the loops.
bool Surroundings::is_same_in_all(const Expr& e, size_t num_names) const {
  bool is_same = true;
  visit(e, [&](const Expr& node) {
    if (node->op == Op::variable)
      is_same = is_same && std::find(names_.begin() + static_cast<std::ptrdiff_t>(num_names), names_.end(),
                                     node->name) == names_.end();
    if (node->op == Op::load || is_search(node->op))
      is_same = is_same && kernel_.function.find(node->name) != nullptr && !kernel_.tracked.contains(node->name);
  });
  return is_same;
}

}  // namespace weft::loop
