#include "loop/threads/shared_copies.h"

#include <algorithm>
#include <utility>

#include "loop/linear.h"

namespace weft::loop {
namespace {

constexpr int64_t kPieceBits = 128;

bool is_tracked(const Kernel& kernel, const Expr& e) {
  bool found = false;
  visit(e, [&](const Expr& node) {
    const bool reads = node->op == Op::load || is_search(node->op);
    found |= reads && (kernel.tracked.contains(node->name) || kernel.function.find(node->name) == nullptr);
  });
  return found;
}

Expr both(const Expr& a, const Expr& b) { return a ? operation(Op::logical_and, {a, b}) : b; }

// How many elements side by side a piece has along the loop, from a multiple of as many on; 1: single ones.
int64_t width_along(const Kernel& kernel, const SharedCopy& copy, const Stmt& loop) {
  const Buffer& buffer = *kernel.function.find(copy.source->name);
  const int64_t width = kPieceBits / bits_of(buffer.dtype);
  int64_t extent = 0;
  is_integer(loop.value, &extent);
  if (kernel.shared_types.at(copy.store->name) != buffer.dtype || extent % width != 0) return 1;
  if (copy.condition && uses(copy.condition, loop.name)) return 1;
  for (const Expr& place : {copy.store->indices[0], copy.source->operands[0]}) {
    int64_t step = 0;
    Expr rest;
    if (!is_linear_in(place, loop.name, &step, &rest) || step != 1) return 1;
    const Linear sum = linear_of(rest);
    const auto divides = [&](const auto& term) { return term.second % width == 0; };
    if (sum.overflows || sum.constant % width != 0 || !std::all_of(sum.terms.begin(), sum.terms.end(), divides))
      return 1;
  }
  return width;
}

}  // namespace

std::optional<SharedCopy> shared_copy(const Kernel& kernel, const Stmt& nest) {
  SharedCopy copy;
  const Stmt* at = &nest;
  for (; at->kind == Stmt::Kind::loop || at->kind == Stmt::Kind::condition; at = &at->body[0]) {
    const bool is_loop = at->kind == Stmt::Kind::loop;
    if (at->body.size() != 1 || (is_loop && (at->loop != LoopKind::serial || !is_integer(at->value)))) return {};
    if (is_loop)
      copy.loops.push_back(at);
    else
      copy.condition = both(copy.condition, at->value);
  }
  if (copy.loops.empty() || at->kind != Stmt::Kind::store || at->atomic || !kernel.shared.contains(at->name)) return {};
  copy.store = at;
  copy.source = at->value;
  if (at->value->op == Op::select) {
    const auto& x = at->value->operands;
    if (x[2]->op != Op::real_literal || x[2]->real != 0) return {};
    copy.condition = both(copy.condition, x[0]);
    copy.source = x[1];
  }
  if (copy.source->op != Op::load || is_tracked(kernel, copy.source)) return {};
  if (copy.condition && is_tracked(kernel, copy.condition)) return {};
  return copy;
}

Body copied_together(const Kernel& kernel, const SharedCopy& copy, int number) {
  const auto name = [&](const char* what) { return fmt::format("weft_{}_{}", what, number); };
  int64_t width = 1;
  const Stmt* along = nullptr;
  for (const Stmt* loop : copy.loops)
    if (const int64_t found = width_along(kernel, copy, *loop); found > width) width = found, along = loop;
  // Pieces along that loop first, so that neighbours fetch what lies side by side; then the others, inner ones first.
  std::vector<const Stmt*> order(copy.loops.rbegin(), copy.loops.rend());
  std::stable_partition(order.begin(), order.end(), [&](const Stmt* loop) { return loop == along; });
  int64_t count = 1;
  Body inner;
  Expr rest = variable(name("piece"));
  for (size_t l = 0; l < order.size(); ++l) {
    int64_t pieces = 0;
    is_integer(order[l]->value, &pieces);
    if (order[l] == along) pieces /= width;
    count *= pieces;
    const Expr own = pieces == 1 ? Expr(0) : l + 1 == order.size() ? rest : modulo(rest, pieces);
    inner.push_back(make_let(order[l]->name, order[l] == along ? own * width : own));
    if (pieces > 1) rest = floor_div(rest, pieces);
  }
  Stmt store = *copy.store;
  if (along != nullptr) store.kind = Stmt::Kind::copy_async;
  const Expr zero = copy.source->type == Type::integer ? Expr(0) : real(0);
  store.value = copy.condition ? select(copy.condition, copy.source, zero) : copy.source;
  inner.push_back(std::move(store));
  Stmt pieces = make_loop(name("piece"), count, std::move(inner));
  pieces.loop = LoopKind::bind;
  pieces.thread = "threadIdx.x";
  return {std::move(pieces)};
}

namespace {

void rename_memory(Body& body, const std::string& name, const std::string& to) {
  rewrite_exprs(body, [&](const Expr& e) {
    return rewrite(e, [&](const Expr& node) {
      return node->op == Op::load && node->name == name ? load(to, node->operands, node->type) : node;
    });
  });
  visit(body, [&](Stmt& stmt) {
    const bool is_of_memory = stmt.kind == Stmt::Kind::allocate || stmt.kind == Stmt::Kind::store;
    if (is_of_memory && stmt.name == name) stmt.name = to;
  });
}

void name_apart(Body& body, Names& taken) {
  Names here;
  for (Stmt& loop : body) {
    name_apart(loop.body, taken);
    if (loop.kind != Stmt::Kind::loop || num_stages(loop) == 0) continue;
    Names declared;
    for (const Stmt& stmt : loop.body)
      if (stmt.kind == Stmt::Kind::allocate) declared.insert(stmt.name);
    for (const std::string& name : declared) {
      if (here.insert(name).second) continue;
      const std::string own = fresh_name(name, taken);
      taken.insert(own);
      rename_memory(loop.body, name, own);
    }
  }
}

// Finds places in the expressions of copies, with the conditions under which they are evaluated.
class PlaceFinder {
 public:
  PlaceFinder(const Kernel& kernel, const Stmt& loop, int number,
              const std::function<bool(const Expr& load)>& is_inside)
      : kernel_(kernel), loop_(loop), number_(number), is_inside_(is_inside) {}

  void find_in(const SharedCopy& copy) {
    for (const Stmt* inner : copy.loops) within_.insert(inner->name);
    find(copy.source, copy.condition ? Conditions{copy.condition} : Conditions{});
    if (copy.condition) find(copy.condition, {});
  }

  std::vector<StagedPlace> found() {
    std::erase_if(places_, [&](const StagedPlace& place) { return is_unknown(place.condition); });
    for (StagedPlace& place : places_) place.is_fixed &= !place.condition || !uses(place.condition, loop_.name);
    std::stable_partition(places_.begin(), places_.end(), [](const StagedPlace& place) { return place.is_fixed; });
    return std::move(places_);
  }

 private:
  using Conditions = std::vector<Expr>;

  void find(const Expr& e, const Conditions& asked) {
    const auto find_where = [&](const Expr& operand, const Expr& condition) {
      Conditions all = asked;
      all.push_back(condition);
      find(operand, all);
    };
    const auto& x = e->operands;
    if (e->op == Op::select || e->op == Op::logical_and || e->op == Op::logical_or) {
      find(x[0], asked);
      const Expr fails = operation(Op::logical_not, {x[0]});
      find_where(x[1], e->op == Op::logical_or ? fails : x[0]);
      if (e->op == Op::select) find_where(x[2], fails);
      return;
    }
    const bool is_fixed = !uses(e, loop_.name);
    const Buffer* const buffer = e->op == Op::load ? kernel_.function.find(e->name) : nullptr;
    const bool is_place = buffer != nullptr && e->type == Type::integer && !is_unknown(e);
    if (!is_place || !is_fixed)
      for (const Expr& operand : x) find(operand, asked);
    if (is_place) add({e, {}, buffer->dtype, is_fixed, is_inside_(e) ? Expr() : all_of(asked)});
  }

  // Loaded where any of those who read it do.
  void add(StagedPlace place) {
    const auto is_same = [&](const StagedPlace& other) { return other.load == place.load; };
    const auto same = std::find_if(places_.begin(), places_.end(), is_same);
    if (same == places_.end()) {
      place.name = fmt::format("weft_place_{}_{}", number_, places_.size());
      return places_.push_back(std::move(place));
    }
    if (implies(same->condition, place.condition))
      same->condition = place.condition;
    else if (!implies(place.condition, same->condition))
      same->condition = operation(Op::logical_or, {same->condition, place.condition});
  }

  // Whether `of` holds wherever the condition does, as far as conjunctions tell; none always holds.
  static bool implies(const Expr& condition, const Expr& of) {
    if (!of || condition == of) return true;
    if (!condition) return false;
    if (of->op == Op::logical_and) return implies(condition, of->operands[0]) && implies(condition, of->operands[1]);
    return condition->op == Op::logical_and &&
           (implies(condition->operands[0], of) || implies(condition->operands[1], of));
  }

  static Expr all_of(const Conditions& conditions) {
    Expr all;
    for (const Expr& condition : conditions) all = both(all, condition);
    return all;
  }

  // Whether it is another for other elements of a copy.
  bool is_unknown(const Expr& e) const {
    const Names used = e ? variables_of(e) : Names();
    return std::any_of(used.begin(), used.end(), [&](const std::string& name) { return within_.contains(name); });
  }

  const Kernel& kernel_;
  const Stmt& loop_;
  const int number_;
  const std::function<bool(const Expr& load)>& is_inside_;
  Names within_;
  std::vector<StagedPlace> places_;
};

}  // namespace

Body with_stages_apart(const Function& function, Body body) {
  Names taken(function.scalars.begin(), function.scalars.end());
  taken.insert(function.reals.begin(), function.reals.end());
  for (const Buffer& buffer : function.buffers) taken.insert(buffer.name);
  visit(body, [&](const Stmt& stmt) { taken.insert(stmt.name); });
  name_apart(body, taken);
  return body;
}

std::vector<StagedPlace> staged_places(const Kernel& kernel, const Stmt& loop, const std::vector<const Stmt*>& copies,
                                       int number, const std::function<bool(const Expr& load)>& is_inside) {
  PlaceFinder finder(kernel, loop, number, is_inside);
  for (const Stmt* nest : copies) finder.find_in(*shared_copy(kernel, *nest));
  return finder.found();
}

Expr loaded(const StagedPlace& place) { return place.condition ? select(place.condition, place.load, 0) : place.load; }

void read_at_places(Body& body, const std::vector<StagedPlace>& places) {
  // Of those that move as they were written, before what is fixed within them is another.
  for (auto place = places.rbegin(); place != places.rend(); ++place)
    rewrite_exprs(body, [&](const Expr& e) {
      return rewrite(
          e, [&](const Expr& node) { return node == place->load ? load(place->name, {0}, Type::integer) : node; });
    });
}

StagedLoop staged_loop(const Kernel& kernel, const Stmt& loop) {
  StagedLoop parts;
  Names memory;
  for (const Stmt& stmt : loop.body) {
    const std::optional<SharedCopy> copy = shared_copy(kernel, stmt);
    if (copy) memory.insert(copy->store->name);
  }
  for (const Stmt& stmt : loop.body) {
    const bool is_memory = stmt.kind == Stmt::Kind::allocate && memory.contains(stmt.name);
    if (is_memory) parts.memory.push_back(&stmt);
    if (const std::optional<SharedCopy> copy = shared_copy(kernel, stmt); copy || is_memory) {
      if (copy) parts.copies.push_back(&stmt);
      continue;
    }
    parts.rest.push_back(stmt);
    if (stmt.kind == Stmt::Kind::let)
      kernel.refuse(loop.scheduled, "loop '{}' has stages and sets '{}'; supported: copies that need no such variable",
                    loop.name, stmt.name);
  }
  const bool is_whole =
      parts.memory.size() == memory.size() &&
      std::none_of(memory.begin(), memory.end(), [&](const std::string& name) { return stores_to(parts.rest, name); });
  if (memory.empty() || !is_whole)
    kernel.refuse(loop.scheduled,
                  "loop '{}' has stages; required: memory in it that cache_read makes, in shared, of buffers that the "
                  "kernel does not write",
                  loop.name);
  return parts;
}

Body at_stage(Body body, const std::vector<const Stmt*>& memory, const Expr& stage) {
  const auto moved = [&](const std::string& name, const Expr& index) {
    for (const Stmt* own : memory)
      if (own->name == name) return stage * own->indices[0] + index;
    return index;
  };
  rewrite_exprs(body, [&](const Expr& e) {
    return rewrite(e, [&](const Expr& node) {
      return node->op == Op::load ? load(node->name, {moved(node->name, node->operands[0])}, node->type) : node;
    });
  });
  visit(body, [&](Stmt& stmt) {
    if (stmt.kind == Stmt::Kind::store || stmt.kind == Stmt::Kind::copy_async)
      stmt.indices[0] = moved(stmt.name, stmt.indices[0]);
  });
  return body;
}

}  // namespace weft::loop
