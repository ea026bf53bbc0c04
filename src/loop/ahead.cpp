#include "loop/ahead.h"

#include <algorithm>

#include "loop/linear.h"

namespace weft::loop {
namespace {

constexpr int64_t kMostAhead = 4;      // iterations
constexpr int64_t kMostElements = 32;  // of a thread, in registers
constexpr const char* kGroups = "weft_q_";

bool loads_within(const Expr& index) {
  bool loads = false;
  visit(index, [&](const Expr& e) { loads |= e->op == Op::load; });
  return loads;
}

// What a vector loop of the body gathers: B[I[j] + k].
struct Gather {
  Expr load = {};
  std::string lane = {};
  int64_t lanes = 0;
};

class LoadsAhead {
 public:
  explicit LoadsAhead(const Function& function) : function_(function) {}

  Body made(const Body& body) {
    Body result;
    for (const Stmt& stmt : body) {
      if (is_serial(stmt) && prefetch_distance(stmt) > 1 && add(stmt, result)) continue;
      result.push_back(stmt);
      result.back().body = made(stmt.body);
    }
    return result;
  }

 private:
  static bool is_serial(const Stmt& stmt) { return stmt.kind == Stmt::Kind::loop && stmt.loop == LoopKind::serial; }

  // Nothing in the loop but loops over lanes, and stores.
  bool find_gathers(const Stmt& loop, std::vector<Gather>& gathers) const {
    for (const Stmt& stmt : loop.body) {
      if (stmt.kind == Stmt::Kind::store) continue;
      int64_t lanes = 0;
      if (stmt.kind != Stmt::Kind::loop || !is_integer(stmt.value, &lanes)) return false;
      for (const Stmt& inner : stmt.body) {
        if (inner.kind != Stmt::Kind::store || inner.atomic) return false;
        if (stmt.loop == LoopKind::vectorize) add_gathers(inner.value, loop, stmt.name, lanes, gathers);
      }
    }
    return !gathers.empty();
  }

  void add_gathers(const Expr& e, const Stmt& loop, const std::string& lane, int64_t lanes,
                   std::vector<Gather>& gathers) const {
    if (e->op == Op::select) return;  // reads what its condition allows
    for (const Expr& operand : e->operands) add_gathers(operand, loop, lane, lanes, gathers);
    int64_t step = 0;
    Expr first;
    if (e->op != Op::load || e->type != Type::real || function_.find(e->name) == nullptr ||
        stores_to(loop.body, e->name) || !is_linear_in(e->operands[0], lane, &step, &first) || step != 1 ||
        !loads_within(first) || !uses(first, loop.name))
      return;
    const auto is_same = [&](const Gather& g) { return g.load == e && g.lane == lane; };
    if (std::none_of(gathers.begin(), gathers.end(), is_same)) gathers.push_back({e, lane, lanes});
  }

  bool add(const Stmt& loop, Body& result) {
    std::vector<Gather> gathers;
    if (!find_gathers(loop, gathers)) return false;
    int64_t elements = 0;
    for (const Gather& gather : gathers) elements += gather.lanes;
    const int64_t ahead = std::min({prefetch_distance(loop), kMostAhead, kMostElements / elements});
    if (ahead < 2) return false;
    const std::string outer = fmt::format("{}{}", kGroups, num_loops_);
    const Expr extent = variable(fmt::format("weft_extent_{}", num_loops_++));
    result.push_back(make_let(extent->name, loop.value));
    const Expr whole = floor_div(extent, ahead), rest = modulo(extent, ahead);
    Body group;
    add_iterations(loop, gathers, ahead, variable(outer) * ahead, {}, group);
    Stmt groups = make_loop(outer, whole, std::move(group));
    groups.reduction = loop.reduction;
    result.push_back(std::move(groups));
    // Of the last ones, fewer than a group, each is read once at least.
    Body last;
    add_iterations(loop, gathers, ahead - 1, whole * ahead, rest, last);
    result.push_back(make_condition(less(0, rest), std::move(last)));
    return true;
  }

  // `count` iterations from the first on; `rest`: so many of them alone, where it is given.
  void add_iterations(const Stmt& loop, const std::vector<Gather>& gathers, int64_t count, const Expr& first,
                      const Expr& rest, Body& result) {
    std::vector<std::vector<std::string>> names;
    for (int64_t u = 0; u < count; ++u) {
      const Expr within = rest ? operation(Op::minimum, {Expr(u), rest - 1}) : Expr(u);
      names.emplace_back();
      for (const Gather& gather : gathers) {
        const std::string name = fmt::format("weft_ahead_{}", num_names_++);
        names.back().push_back(name);
        const bool is_wide = function_.find(gather.load->name)->dtype == DType::fp64;
        const DType type = is_wide ? DType::fp64 : DType::fp32;
        result.push_back(make_allocate(name, {gather.lanes}, type, Scope::registers));
        Body copy{make_store(name, {variable(gather.lane)}, gather.load)};
        substitute(copy, {{loop.name, first + within}});
        Stmt lanes = make_loop(gather.lane, gather.lanes, std::move(copy));
        lanes.loop = LoopKind::vectorize;
        result.push_back(std::move(lanes));
      }
    }
    for (int64_t u = 0; u < count; ++u) {
      Body body = loop.body;
      for (Stmt& stmt : body) {
        if (stmt.kind != Stmt::Kind::loop) continue;
        rewrite_exprs(stmt.body, [&](const Expr& e) {
          return rewrite(e, [&](const Expr& node) {
            for (size_t g = 0; g < gathers.size(); ++g)
              if (node == gathers[g].load && stmt.name == gathers[g].lane)
                return load(names[static_cast<size_t>(u)][g], {variable(stmt.name)}, Type::real);
            return node;
          });
        });
      }
      substitute(body, {{loop.name, first + u}});
      if (rest)
        result.push_back(make_condition(less(u, rest), std::move(body)));
      else
        result.insert(result.end(), std::make_move_iterator(body.begin()), std::make_move_iterator(body.end()));
    }
  }

  const Function& function_;
  int num_loops_ = 0, num_names_ = 0;
};

}  // namespace

Body with_loads_ahead(const Function& function, const Body& body) { return LoadsAhead(function).made(body); }

bool has_loads_ahead(const Body& body) {
  bool found = false;
  visit(body, [&](const Stmt& stmt) { found |= stmt.kind == Stmt::Kind::loop && stmt.name.starts_with(kGroups); });
  return found;
}

}  // namespace weft::loop
