#include "loop/threads.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "loop/facts.h"

namespace weft::loop {
namespace {

using Kind = Stmt::Kind;

bool is_shared_loop(const Stmt& stmt) { return stmt.kind == Kind::loop && stmt.loop == LoopKind::bind; }
bool is_thread_loop(const Stmt& stmt) { return is_shared_loop(stmt) && is_thread_axis(stmt.thread); }

struct Access {
  std::string buffer;
  bool writes = false, atomic = false;
  std::string owner = {};  // the one thread that accesses the element, in words; "": it may be any
  Names fixed = {};        // variables in those words
  friend bool operator==(const Access&, const Access&) = default;
};
using Accesses = std::vector<Access>;

// What changes nothing: 0 of sums, -inf of largest elements, inf of least ones.
Expr neutral_of(Op op) {
  const double infinity = std::numeric_limits<double>::infinity();
  return real(op == Op::add ? 0 : op == Op::maximum ? -infinity : infinity);
}

// Whether two threads may access one element, and not both to read it or to add to it.
bool meet(const Access& a, const Access& b) {
  return a.buffer == b.buffer && (a.writes || b.writes) && !(a.atomic && b.atomic) &&
         (a.owner.empty() || a.owner != b.owner);
}

bool meet(const Accesses& a, const Accesses& b) {
  return std::any_of(a.begin(), a.end(), [&](const Access& x) {
    return std::any_of(b.begin(), b.end(), [&](const Access& y) { return meet(x, y); });
  });
}

void add_once(Accesses& list, const Accesses& more) {
  for (const Access& a : more)
    if (std::find(list.begin(), list.end(), a) == list.end()) list.push_back(a);
}

class Threads {
 public:
  Threads(const Function& function, const Phase& phase) : function_(function), facts_(function) {
    visit(phase.body, [&](const Stmt& stmt) {
      if (is_thread_loop(stmt)) threads_.insert(stmt.thread);
      if (is_shared_loop(stmt) && !is_thread_loop(stmt)) ctas_.emplace(stmt.thread, stmt.scheduled);
      const bool is_shared = stmt.kind == Kind::allocate && stmt.scope == Scope::shared;
      if (is_shared) shared_.insert(stmt.name);
      if (is_shared || (stmt.kind == Kind::store && function.find(stmt.name) != nullptr)) tracked_.insert(stmt.name);
    });
    threads_.insert("threadIdx.x");
  }

  Body made(const Phase& phase) {
    if (phase.parallel() != nullptr) return checked_parallel(phase.body);
    Body body = alike(phase.body);
    check_registers();
    if (are_ctas_apart(phase.body)) return finished(std::move(body));
    check_exchange_of_ctas();
    return finished(std::move(body));
  }

 private:
  static constexpr const char* kSums = "weft_sums";  // one for each warp

  Body finished(Body body) const {
    if (has_cta_sum_) body.insert(body.begin(), make_allocate(kSums, {32}, real_type(), Scope::shared));
    if (ctas_.contains("blockIdx.x")) return body;
    return {make_condition(is_first({"blockIdx.x"}), std::move(body))};
  }

  template <class... Arguments>
  [[noreturn]] void refuse(const ScheduledAt& at, fmt::format_string<Arguments...> format,
                           Arguments&&... arguments) const {
    fail(ErrorCode::unsupported, "{}{}: {}", at.line == 0 ? "" : fmt::format("line {}: ", at.line), function_.name,
         fmt::format(format, std::forward<Arguments>(arguments)...));
  }

  DType real_type() const {
    const auto is_double = [](const Buffer& b) { return b.dtype == DType::fp64; };
    return std::any_of(function_.buffers.begin(), function_.buffers.end(), is_double) ? DType::fp64 : DType::fp32;
  }

  static Expr is_first(const Names& axes) {
    Expr condition;
    for (const std::string& axis : axes) {
      const Expr is_zero = operation(Op::equal, {variable(axis), 0});
      condition = condition ? operation(Op::logical_and, {condition, is_zero}) : is_zero;
    }
    return condition;
  }

  Body checked_parallel(const Body& body) const {
    visit(body, [&](const Stmt& stmt) {
      if (is_shared_loop(stmt))
        refuse(stmt.scheduled,
               "loop '{}' is bound to {} within a parallel loop, which takes all threads; required: bind in its place",
               stmt.name, stmt.thread);
      if (stmt.kind == Kind::allocate && stmt.scope == Scope::shared)
        refuse(
            stmt.scheduled,
            "'{}' is in shared memory within a parallel loop, whose iterations are threads; required: loops bound to "
            "blockIdx around it and to threadIdx within",
            stmt.name);
    });
    return body;
  }

  // ---- statements outside of all loops over threads, which every thread of the CTA runs

  Body alike(const Body& body) {
    const size_t scope = scope_.size();
    Body result;
    for (const Stmt& stmt : body) {
      const bool is_nest = stmt.kind == Kind::condition || (stmt.kind == Kind::loop && !is_thread_loop(stmt));
      if (is_nest) {
        result.push_back(nest(stmt, result));
        continue;
      }
      Accesses found;
      Body made = one(stmt, found);
      if (is_thread_loop(stmt)) check_apart(stmt, found);
      wait_before(result, found);
      result.insert(result.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    }
    scope_.resize(scope);
    return result;
  }

  Stmt nest(Stmt stmt, Body& before) {
    Accesses head;
    add_loads(stmt.value, false, head);
    if (stmt.kind == Kind::condition) {
      wait_before(before, head);
      const Accesses skipped = pending_;
      facts_.push_condition(stmt.value);
      stmt.body = alike(stmt.body);
      facts_.pop_condition();
      add_once(pending_, skipped);
      return stmt;
    }
    if (!head.empty())
      refuse(stmt.scheduled,
             "the extent {} of loop '{}' changes while threads run; required: extents of what nothing here writes",
             to_text(stmt.value), stmt.name);
    open(stmt);
    // What an iteration leaves behind, the next one meets.
    const Accesses outside = std::exchange(pending_, {});
    Accesses all;
    tried(stmt.body, &all);
    Accesses again = carried(stmt);
    const bool waits = tried(stmt.body, nullptr, again);
    if (!waits && meet(all, outside))
      before.push_back({.kind = Kind::barrier});  // once, and not in every iteration
    else
      add_once(again, outside);
    pending_ = again;
    Body body = alike(stmt.body);
    close(stmt);
    add_once(pending_, again);
    stmt.body = std::move(body);
    return stmt;
  }

  // What of the pending accesses the next iteration of the loop meets. Those of CTAs are apart but for memory of the
  // CTA.
  Accesses carried(const Stmt& loop) {
    Names own{loop.name};
    visit(loop.body, [&](const Stmt& inner) {
      if (inner.kind == Kind::loop || inner.kind == Kind::let) own.insert(inner.name);
    });
    Accesses list;
    for (Access a : std::exchange(pending_, {})) {
      if (is_shared_loop(loop) && !shared_.contains(a.buffer)) continue;
      if (std::any_of(own.begin(), own.end(), [&](const std::string& v) { return a.fixed.contains(v); }))
        a.owner.clear();
      add_once(list, {a});
    }
    return list;
  }

  // Goes through the body without making anything of it; whether threads wait there. All accesses, if asked for.
  bool tried(const Body& body, Accesses* all, const Accesses& pending = {}) {
    const int num_sums = num_sums_;
    Accesses* const outer = std::exchange(all_, all);
    pending_ = pending;
    bool waits = false;
    visit(alike(body), [&](const Stmt& stmt) { waits |= stmt.kind == Kind::barrier; });
    all_ = outer;
    if (outer != nullptr && all != nullptr) add_once(*outer, *all);
    num_sums_ = num_sums;
    return waits;
  }

  void wait_before(Body& result, const Accesses& found) {
    if (all_ != nullptr) add_once(*all_, found);
    if (meet(found, pending_)) {
      result.push_back({.kind = Kind::barrier});
      pending_.clear();
    }
    add_once(pending_, found);
  }

  // No thread may wait for another within a loop over threads, which they run through as they come.
  void check_apart(const Stmt& loop, const Accesses& found) const {
    for (const Access& a : found)
      for (const Access& b : found) {
        if (!shared_.contains(a.buffer) || !meet(a, b)) continue;
        if (a.writes && a.owner.empty())
          refuse(loop.scheduled,
                 "'{}' in shared memory may be written at one place by two threads of loop '{}'; required: places that "
                 "are its variable, or a literal times that and less than the literal",
                 a.buffer, loop.name);
        refuse(loop.scheduled,
               "'{}' is exchanged between threads within loop '{}', through which they go at their own pace: a barrier "
               "there would be divergent; required: another loop over threads for those who read it",
               a.buffer, loop.name);
      }
  }

  // ---- any statement, with what it accesses

  Body one(Stmt stmt, Accesses& found) {
    switch (stmt.kind) {
      case Kind::store: return store(std::move(stmt), found);
      case Kind::let: {
        add_loads(stmt.value, false, found);
        Names used = variables_of(stmt.value);
        for (const std::string& name : variables_of(stmt.value))
          if (const auto other = lets_.find(name); other != lets_.end())
            used.insert(other->second.begin(), other->second.end());
        lets_[stmt.name] = std::move(used);
        scope_.push_back(stmt.name);
        return {std::move(stmt)};
      }
      case Kind::allocate:
        if (stmt.scope == Scope::shared) {
          if (!loops_over_threads().empty())
            refuse(stmt.scheduled,
                   "'{}' is in shared memory within loop '{}', which threads share; required: memory around it",
                   stmt.name, loops_over_threads()[0].loop->name);
        } else {
          registers_.push_back({stmt.name, stmt.scheduled, around_.size(), {}});
          home_[stmt.name] = registers_.size() - 1;
        }
        return {std::move(stmt)};
      case Kind::fail:
        for (const Expr& index : stmt.indices) add_loads(index, false, found);
        return {std::move(stmt)};
      case Kind::condition: {
        add_loads(stmt.value, false, found);
        facts_.push_condition(stmt.value);
        stmt.body = each(stmt.body, found);
        facts_.pop_condition();
        return {std::move(stmt)};
      }
      case Kind::loop: {
        if (is_thread_sum(stmt)) return thread_sum(std::move(stmt), found);
        add_loads(stmt.value, false, found);
        open(stmt);
        Body body = each(stmt.body, found);
        close(stmt);
        stmt.body = std::move(body);
        return {std::move(stmt)};
      }
      default: return {std::move(stmt)};
    }
  }

  Body each(const Body& body, Accesses& found) {
    const size_t scope = scope_.size();
    Body result;
    for (const Stmt& stmt : body) {
      Body made = one(stmt, found);
      result.insert(result.end(), std::make_move_iterator(made.begin()), std::make_move_iterator(made.end()));
    }
    scope_.resize(scope);
    return result;
  }

  Body store(Stmt stmt, Accesses& found) {
    const bool is_seen = tracked_.contains(stmt.name);
    const Names missing = is_seen ? missing_threads() : Names{};
    const bool is_alone = !missing.empty();
    add_loads(stmt.indices[0], is_alone, found);
    add_loads(stmt.atomic ? stmt.value->operands[1] : stmt.value, is_alone, found);
    add(stmt.name, stmt.indices[0], true, stmt.atomic, is_alone, found);
    if (!is_seen) return {std::move(stmt)};
    if (function_.find(stmt.name) != nullptr) check_stored_once(stmt);
    if (!is_alone) return {std::move(stmt)};
    return {make_condition(is_first(missing), {std::move(stmt)})};
  }

  void check_stored_once(const Stmt& stmt) const {
    for (const auto& [axis, scheduled] : ctas_)
      if (std::none_of(around_.begin(), around_.end(),
                       [&, &name = axis](const Around& a) { return a.loop->thread == name; }))
        refuse(
            scheduled,
            "'{}' is stored outside of a loop that is bound to {}; required: every store within all loops of its nest "
            "that CTAs share",
            stmt.name, axis);
    Names used;
    for (const std::string& name : variables_of(stmt.indices[0])) {
      used.insert(name);
      if (const auto let = lets_.find(name); let != lets_.end()) used.insert(let->second.begin(), let->second.end());
    }
    for (const Around& a : around_)
      if (!stmt.atomic && !used.contains(a.loop->name))
        refuse(
            a.loop->scheduled,
            "'{}' is stored at {} in every iteration of loop '{}', which is bound to {}; required: places of their own",
            stmt.name, to_text(stmt.indices[0]), a.loop->name, a.loop->thread);
  }

  // target = target + x over threads, or the largest or least x.
  Body thread_sum(Stmt loop, Accesses& found) {
    if (loop.thread != "threadIdx.x")
      refuse(loop.scheduled,
             "reduction '{}' is bound to {}; supported: threadIdx.x, whose threads are the lanes of a warp", loop.name,
             loop.thread);
    Stmt* store = nullptr;
    int num_stores = 0;
    Names inside{loop.name};
    visit(loop.body, [&](Stmt& stmt) {
      if (stmt.kind == Kind::store) store = &stmt, ++num_stores;
      if (stmt.kind == Kind::loop || stmt.kind == Kind::let) inside.insert(stmt.name);
    });
    bool is_sum = num_stores == 1 && is_combined(*store);
    for (const std::string& name : inside) is_sum = is_sum && !uses(store->indices[0], name);
    if (!is_sum)
      refuse(loop.scheduled,
             "reduction '{}' is bound to {}; supported: one sum, x[i] = x[i] + y, or max or min in its place, at one "
             "place for all its "
             "iterations",
             loop.name, loop.thread);
    // Where other loops are bound to threads, whole warps belong to one iteration of theirs.
    const bool is_cta = threads_.size() == 1;
    has_cta_sum_ |= is_cta;
    const std::string sum = fmt::format("weft_sum_{}", num_sums_++);
    sums_.insert(sum);
    const Expr own = load(sum, {0}, Type::real);
    const Op combine = store->value->op;
    Stmt target = make_store(store->name, store->indices, operation(combine, {store->value->operands[0], own}));
    *store = make_store(sum, {0}, operation(combine, {own, store->value->operands[1]}));
    loop.reduction = false;
    Body result{make_allocate(sum, {1}, real_type(), Scope::registers), make_store(sum, {0}, neutral_of(combine))};
    for (Stmt& stmt : one(std::move(loop), found)) result.push_back(std::move(stmt));
    result.push_back({.kind = Kind::thread_sum, .name = sum, .thread = is_cta ? "cta" : "warp", .combine = combine});
    for (Stmt& stmt : this->store(std::move(target), found)) result.push_back(std::move(stmt));
    return result;
  }

  // ---- accesses

  struct Around {
    const Stmt* loop;
    size_t scope;  // names that are declared outside of it
  };

  void open(const Stmt& loop) {
    if (is_shared_loop(loop)) {
      for (const Around& a : around_)
        if (a.loop->thread == loop.thread)
          refuse(loop.scheduled, "loop '{}' is bound to {} within loop '{}', which is bound to it already", loop.name,
                 loop.thread, a.loop->name);
      around_.push_back({&loop, scope_.size()});
    }
    scope_.push_back(loop.name);
    facts_.push_loop(loop.name, loop.value);
  }

  void close(const Stmt& loop) {
    if (is_shared_loop(loop)) around_.pop_back();
    scope_.pop_back();
    facts_.pop_loop();
  }

  std::vector<Around> loops_over_threads(size_t from = 0) const {
    std::vector<Around> loops;
    for (size_t i = from; i < around_.size(); ++i)
      if (is_thread_axis(around_[i].loop->thread)) loops.push_back(around_[i]);
    return loops;
  }

  Names missing_threads() const {
    Names missing = threads_;
    for (const Around& a : around_) missing.erase(a.loop->thread);
    return missing;
  }

  void add_loads(const Expr& e, bool is_alone, Accesses& found) {
    visit(e, [&](const Expr& node) {
      if (node->op == Op::load) add(node->name, node->operands[0], false, false, is_alone, found);
      // A search reads elements that nobody names.
      if (is_search(node->op) && tracked_.contains(node->name)) found.push_back({node->name});
    });
  }

  void add(const std::string& buffer, const Expr& index, bool writes, bool atomic, bool is_alone, Accesses& found) {
    if (tracked_.contains(buffer)) {
      Access access{buffer, writes, atomic};
      const std::vector<Around> loops = loops_over_threads();
      const bool is_whole = is_alone || missing_threads().empty();
      if (is_alone && loops.empty())
        access.owner = "first";
      else if (is_whole && !loops.empty())
        access.owner = owner_of(index, loops, &access.fixed);
      if (is_alone && !access.owner.empty() && !loops.empty()) access.owner += ", first";
      found.push_back(std::move(access));
      if (!shared_.contains(buffer)) by_ctas_[buffer].push_back({writes && !atomic, cta_of(index)});
    } else if (const auto home = home_.find(buffer); home != home_.end() && !sums_.contains(buffer)) {
      Register& memory = registers_[home->second];
      const std::vector<Around> within(
          around_.begin() + static_cast<std::ptrdiff_t>(std::min(memory.depth, around_.size())), around_.end());
      Names fixed;
      memory.uses.push_back({writes, within.empty() ? "" : within.back().loop->name,
                             within.empty() ? "" : owner_of(index, within, &fixed)});
    }
  }

  // The CTA that accesses an element in all iterations of the loops around; "": it may be any.
  std::string cta_of(const Expr& index) const {
    std::vector<Around> loops;
    for (const Around& a : around_)
      if (!is_thread_axis(a.loop->thread)) loops.push_back(a);
    if (loops.empty()) return {};
    Names fixed;
    const std::string owner = owner_of(index, loops, &fixed);
    for (size_t i = 0; i < loops[0].scope; ++i)
      if (fixed.contains(scope_[i])) return {};
    return owner;
  }

  // Loops over CTAs that nothing stands around or beside: bind() has shown that their iterations access elements of
  // their own.
  static bool are_ctas_apart(const Body& body) {
    if (body.size() != 1) return std::none_of(body.begin(), body.end(), [](const Stmt& s) { return has_ctas({s}); });
    const Stmt& stmt = body[0];
    const bool may_stand_around = stmt.kind == Kind::condition || is_shared_loop(stmt);
    if (is_shared_loop(stmt) && !is_thread_loop(stmt)) return !has_axis_twice(stmt);
    return may_stand_around ? are_ctas_apart(stmt.body) : !has_ctas(body);
  }
  static bool has_ctas(const Body& body) {
    bool found = false;
    visit(body, [&](const Stmt& s) { found |= is_shared_loop(s) && !is_thread_loop(s); });
    return found;
  }
  static bool has_axis_twice(const Stmt& loop) {
    Names axes;
    bool twice = false;
    visit(Body{loop}, [&](const Stmt& s) {
      if (is_shared_loop(s) && !is_thread_loop(s)) twice |= !axes.insert(s.thread).second;
    });
    return twice;
  }

  // Nobody waits for another CTA within a kernel.
  void check_exchange_of_ctas() const {
    for (const auto& [buffer, uses] : by_ctas_) {
      if (std::none_of(uses.begin(), uses.end(), [](const auto& use) { return use.first; })) continue;
      for (const auto& [writes, cta] : uses)
        if (cta.empty() || cta != uses[0].second)
          refuse(
              ctas_.empty() ? ScheduledAt{} : ctas_.begin()->second,
              "'{}' may be exchanged between CTAs, which do not wait for each other within a kernel; required: loops "
              "bound to blockIdx outside of others, or places that are their variable, or a literal times that",
              buffer);
    }
  }

  // "threadIdx.x * 4 + i * 64": iterations of these loops access elements of their own, each so many from there on.
  std::string owner_of(const Expr& index, const std::vector<Around>& loops, Names* fixed) const {
    const Linear sum = linear_of(index);
    if (sum.overflows) return {};
    Linear same, rest;
    rest.constant = sum.constant;
    for (const auto& [term, coefficient] : sum.terms)
      (is_same_in_all(term, loops[0].scope) ? same : rest).add(term, coefficient);
    std::vector<Around> left = loops;
    std::string words;
    for (Expr e = expr_of(rest); !left.empty();) {
      int64_t factor = 0;
      Expr offset;
      const auto next = std::find_if(left.begin(), left.end(), [&](const Around& a) {
        return is_linear_in(e, a.loop->name, &factor, &offset) && factor > 0 && facts_.is_nonnegative(offset) &&
               facts_.holds(less(offset, factor));
      });
      if (next == left.end()) return {};
      words += fmt::format("{} * {} + ", next->loop->thread, factor);
      left.erase(next);
      e = offset;
    }
    *fixed = variables_of(expr_of(same));
    return words + to_text(expr_of(same));
  }

  // Whether all threads see one value, which is known outside of the loops.
  bool is_same_in_all(const Expr& e, size_t scope) const {
    bool is_same = true;
    visit(e, [&](const Expr& node) {
      if (node->op == Op::variable)
        is_same = is_same && std::find(scope_.begin() + static_cast<std::ptrdiff_t>(scope), scope_.end(), node->name) ==
                                 scope_.end();
      if (node->op == Op::load || is_search(node->op))
        is_same = is_same && function_.find(node->name) != nullptr && !tracked_.contains(node->name);
    });
    return is_same;
  }

  // Memory of a thread that lies around a shared loop: each thread writes what it alone reads, or all do alike.
  struct Register {
    std::string name;
    ScheduledAt scheduled;
    size_t depth;  // shared loops around it
    struct Use {
      bool writes;
      std::string loop, owner;
    };
    std::vector<Use> uses;
  };
  void check_registers() const {
    for (const Register& memory : registers_) {
      const auto first = std::find_if(memory.uses.begin(), memory.uses.end(),
                                      [](const Register::Use& use) { return use.writes && !use.loop.empty(); });
      if (first == memory.uses.end()) continue;
      for (const Register::Use& use : memory.uses)
        if (use.owner.empty() || use.owner != first->owner)
          refuse(
              memory.scheduled,
              "'{}' lies in registers around loop '{}', whose threads write it, and is accessed by others; required: "
              "memory within the loop, or shared",
              memory.name, first->loop);
    }
  }

  const Function& function_;
  Facts facts_;
  Names threads_;                            // axes that loops are bound to
  std::map<std::string, ScheduledAt> ctas_;  // and where the first of them was
  Names shared_, tracked_;                   // memory of the CTA; that and what is stored in buffers
  Names sums_;                               // registers of sums over threads
  std::vector<Around> around_;
  std::vector<std::string> scope_;     // variables, outermost first
  std::map<std::string, Names> lets_;  // and what their values are made of
  std::vector<Register> registers_;
  std::map<std::string, size_t> home_;                                        // the register that a name is now
  std::map<std::string, std::vector<std::pair<bool, std::string>>> by_ctas_;  // of a buffer: who writes or reads it
  Accesses pending_;                                                          // since the last barrier
  Accesses* all_ = nullptr;                                                   // of what is tried
  int num_sums_ = 0;
  bool has_cta_sum_ = false;
};

}  // namespace

bool is_thread_axis(const std::string& axis) { return axis.starts_with("threadIdx."); }

bool is_combined(const Stmt& store) {
  const Op op = store.value->op;
  return (op == Op::add || op == Op::maximum || op == Op::minimum) &&
         store.value->operands[0] == load(store.name, store.indices, Type::real) &&
         !loads_from(store.value->operands[1], store.name);
}

bool is_thread_sum(const Stmt& stmt) {
  bool atomic = false;
  visit(stmt.body, [&](const Stmt& inner) { atomic |= inner.atomic; });
  return is_thread_loop(stmt) && stmt.reduction && !atomic;
}

Body thread_body(const Function& function, const Phase& phase) { return Threads(function, phase).made(phase); }

Launches split_threads(const Launches& launches) {
  Launches result{launches.function, {}};
  for (const Phase& phase : launches.phases) result.phases.push_back({thread_body(launches.function, phase)});
  return result;
}

int64_t shared_bytes(const Body& body) {
  int64_t bytes = 0;
  visit(body, [&](const Stmt& stmt) {
    int64_t count = 0;
    if (stmt.kind == Kind::allocate && stmt.scope == Scope::shared && is_integer(stmt.indices[0], &count))
      bytes += (count * bits_of(stmt.dtype) / 8 + 15) / 16 * 16;
  });
  return bytes;
}

}  // namespace weft::loop
