#include "loop/threads/fragment_nests.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "loop/linear.h"

namespace weft::loop {
namespace {

constexpr int64_t kWarp = 32;

Expr thread() { return variable("threadIdx.x"); }
Expr lane() { return modulo(thread(), kWarp); }
Expr warp() { return floor_div(thread(), kWarp); }

// Where a fragment is accessed in a nest: its element of a row and a column.
class Nest {
 public:
  Nest(const Kernel& kernel, const Stmt& stmt) : kernel_(kernel) {
    const Stmt* at = &stmt;
    for (;; at = &at->body[0]) {
      const bool is_loop = at->kind == Stmt::Kind::loop && at->loop == LoopKind::serial;
      if (is_loop && loops.size() < 2) loops.push_back(at);
      const bool goes_on = (is_loop || at->kind == Stmt::Kind::condition) && at->body.size() == 1;
      if (!goes_on) break;
      if (at->kind == Stmt::Kind::condition) conditions.push_back(at->value);
    }
    store = at;
    visit(Body{stmt}, [&](const Stmt& inner) {
      if (inner.kind == Stmt::Kind::store) note(inner.name, inner.indices[0]);
    });
    visit_exprs(Body{stmt}, [&](const Expr& e) {
      visit(e, [&](const Expr& node) {
        if (node->op == Op::load) note(node->name, node->operands[0]);
      });
    });
    const bool is_whole = loops.size() == 2 && store->kind == Stmt::Kind::store && !store->atomic && is_at_variables();
    if (!is_whole)
      kernel.refuse(kernel.fragments.at(name).scheduled,
                    "'{}' is a fragment, which warps hold together, and is accessed at {} in loop '{}'; required: two "
                    "serial loops over its {} rows and {} columns around one store, or a product by mma",
                    name, to_words(index), stmt.name, fragment().rows, fragment().columns);
  }

  const Fragment& fragment() const { return kernel_.fragments.at(name).fragment; }

  std::vector<const Stmt*> loops;
  std::vector<Expr> conditions;
  const Stmt* store = nullptr;
  std::string name;         // of the fragment
  Expr index;               // the one place
  std::string row, column;  // variables

 private:
  void note(const std::string& memory, const Expr& at) {
    if (!kernel_.fragments.contains(memory)) return;
    if (name.empty()) name = memory, index = at;
    if (name != memory || !(index == at)) is_one_place_ = false;
  }

  bool is_at_variables() {
    if (!is_one_place_) return false;
    for (const bool is_outer : {true, false}) {
      const Stmt &first = *loops[is_outer ? 0 : 1], &second = *loops[is_outer ? 1 : 0];
      if (!is_literal(first.value, fragment().rows) || !is_literal(second.value, fragment().columns)) continue;
      Linear rest = linear_of(index);
      rest.add(variable(first.name), -fragment().columns);
      rest.add(variable(second.name), -1);
      if (!rest.terms.empty() || rest.constant != 0) continue;
      row = first.name;
      column = second.name;
      return true;
    }
    return false;
  }

  const Kernel& kernel_;
  bool is_one_place_ = true;
};

// What a place is a multiple of, as far as its terms tell.
bool is_multiple(const Expr& place, int64_t factor) {
  const Linear sum = linear_of(place);
  const auto divides = [&](const auto& term) { return term.second % factor == 0; };
  return !sum.overflows && sum.constant % factor == 0 && std::all_of(sum.terms.begin(), sum.terms.end(), divides);
}

}  // namespace

bool accesses_fragments(const Kernel& kernel, const Stmt& stmt) {
  if (stmt.kind != Stmt::Kind::loop || kernel.fragments.empty()) return false;
  // One alone in the other: what stands around several of them is gone through as any other loop.
  const Stmt* at = &stmt;
  for (int loops = 0; at->kind == Stmt::Kind::loop || at->kind == Stmt::Kind::condition; at = &at->body[0]) {
    if (at->kind == Stmt::Kind::loop) ++loops;
    if (at->body.size() != 1 || !at->annotations.empty() || loops > 2) return false;
  }
  bool found = false;
  for (const auto& [name, memory] : kernel.fragments) found |= accesses(Body{stmt}, name);
  return found;
}

Body through_pairs(const Kernel& kernel, const Stmt& stmt, int number) {
  const Nest nest(kernel, stmt);
  const Fragment& f = nest.fragment();
  const auto name = [&](const char* what) { return fmt::format("weft_{}_{}", what, number); };
  const Expr pair = variable(name("pair")), half = variable(name("lane")), tile = floor_div(pair, 2);
  // Along rows and columns of tiles.
  const Expr m = floor_div(warp(), f.warps_n) * (f.tiles_m * kTileRows) + floor_div(lane(), 4);
  const Expr n = modulo(warp(), f.warps_n) * (f.tiles_n * kTileColumns / 2) + modulo(lane(), 4);
  const Expr own_m = floor_div(tile, f.tiles_n) * kTileRows + modulo(pair, 2) * (kTileRows / 2),
             own_n = modulo(tile, f.tiles_n) * (kTileColumns / 2);
  const std::string &of_m = f.is_turned ? nest.column : nest.row, &of_n = f.is_turned ? nest.row : nest.column;

  Body inner{*nest.store};
  for (auto condition = nest.conditions.rbegin(); condition != nest.conditions.rend(); ++condition)
    inner = {make_condition(*condition, std::move(inner))};
  const Expr here = load(nest.name, {nest.index}, Type::real), own = load(nest.name, {pair * 2 + half}, Type::real);
  rewrite_exprs(inner,
                [&](const Expr& e) { return rewrite(e, [&](const Expr& node) { return node == here ? own : node; }); });
  visit(inner, [&](Stmt& store) {
    if (store.kind == Stmt::Kind::store && store.name == nest.name) store.indices = own->operands;
  });
  substitute(inner, {{of_n, variable(name("n")) * 2 + half}});
  Stmt lanes = make_loop(half->name, 2, std::move(inner));
  lanes.loop = LoopKind::vectorize;
  Stmt pairs = make_loop(pair->name, f.num_pairs(),
                         {make_let(of_m, variable(name("first_m")) + own_m),
                          make_let(name("n"), variable(name("first_n")) + own_n), std::move(lanes)});
  pairs.loop = LoopKind::unroll;
  Body result{make_let(name("first_m"), m), make_let(name("first_n"), n), std::move(pairs)};
  if (f.num_warps() * kWarp == kFragmentThreads) return result;
  return {make_condition(less(thread(), f.num_warps() * kWarp), std::move(result))};
}

void check_mma(const Kernel& kernel, const Stmt& loop, const ProductNest& nest) {
  const ProductCall call = product_call(kernel.function, loop, nest);
  const auto stop = [&](const std::string& why) {
    kernel.refuse(loop.scheduled, "loop '{}' is a product by mma: {}", loop.name, why);
  };
  const auto sum = kernel.fragments.find(call.c.buffer);
  if (sum == kernel.fragments.end())
    stop(fmt::format("'{}' is added to; required: memory of scope fragment, as cache_write makes it", call.c.buffer));
  const Fragment& f = sum->second.fragment;
  const bool is_whole = call.m == f.rows && call.n == f.columns && is_literal(call.c.begin, 0) &&
                        is_literal(call.c.row, f.columns) && is_literal(call.c.column, 1);
  if (!is_whole)
    stop(fmt::format("{} x {} elements of '{}' are added to; required: all {} x {}, at its rows and columns", call.m,
                     call.n, call.c.buffer, f.rows, f.columns));
  if (call.k % kTileDepth != 0)
    stop(fmt::format("its reduction has {} iterations; required: a multiple of {}", call.k, kTileDepth));
  const auto type_of_factor = [&](const std::string& name) {
    const auto memory = kernel.shared_types.find(name);
    if (memory == kernel.shared_types.end() || !(is_narrow(memory->second) || memory->second == DType::fp32))
      stop(
          fmt::format("'{}' is multiplied; required: shared memory that holds bf16, fp16 or fp32, as cache_read makes "
                      "it of a buffer of such",
                      name));
    return memory->second;
  };
  const DType of_a = type_of_factor(call.a.buffer), of_b = type_of_factor(call.b.buffer);
  if (of_a != of_b)
    stop(fmt::format("'{}' holds {} and '{}' {}; required: one type", call.a.buffer, weft::to_string(of_a),
                     call.b.buffer, weft::to_string(of_b)));
  const int64_t piece = 128 / bits_of(of_a);  // elements that are read at once
  for (const ProductCall::Operand* factor : {&call.a, &call.b}) {
    const bool is_row_of_one = is_literal(factor->row, 1);
    if (!is_row_of_one && !is_literal(factor->column, 1))
      stop(fmt::format("neither rows nor columns of '{}' lie in one piece", factor->buffer));
    if (!is_multiple(factor->begin, piece) || !is_multiple(is_row_of_one ? factor->column : factor->row, piece))
      stop(fmt::format("rows of '{}' do not begin at multiples of {} elements; use storage_align", factor->buffer,
                       piece));
  }
}

}  // namespace weft::loop
