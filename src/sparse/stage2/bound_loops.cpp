#include "sparse/stage2/bound_loops.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/check.h"
#include "loop/threads.h"
#include "loop/threads/fragments.h"
#include "sparse/stage2/dependence.h"
#include "sparse/stage2/lower_init.h"

namespace weft::sparse {
namespace {

bool is_bound(const Stmt& stmt, bool to_threads) {
  return stmt.kind == Stmt::Kind::loop && stmt.loop == loop::LoopKind::bind &&
         loop::is_thread_axis(stmt.thread) == to_threads;
}

// The axes that loops of the statement are bound to.
Names axes_of(const Stmt& stmt, bool of_threads) {
  Names axes;
  visit(Body{stmt}, [&](const Stmt& inner) {
    if (is_bound(inner, of_threads)) axes.insert(inner.thread);
  });
  return axes;
}

// What a nest stores whose statements stand alone in each other, and the loops on the way; null where it is more.
const Stmt* only_store(const Stmt& nest, std::vector<const Stmt*>& loops) {
  const Stmt* at = &nest;
  for (; at->kind != Stmt::Kind::store; at = &at->body[0]) {
    if (at->body.size() != 1) return nullptr;
    if (at->kind == Stmt::Kind::loop) loops.push_back(at);
  }
  return at;
}

// One nest of the stage, which is a kernel.
class BoundNest {
 public:
  BoundNest(const Stage2& stage, const Stmt& nest) : stage_(stage), threads_(axes_of(nest, true)) {
    threads_.insert("threadIdx.x");  // a launch has several of them in any case
    visit(Body{nest}, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::allocate) (stmt.scope == loop::Scope::shared ? shared_ : own_).insert(stmt.name);
      if (loop::is_fragment_memory(stmt)) fragments_.insert(stmt.name);
    });
  }

  // Every outermost loop that is bound to threads, and every one that is bound to CTAs.
  void check(const Stmt& stmt, Around around = {}, bool within_threads = false, bool within_ctas = false) const {
    const bool of_threads = is_bound(stmt, true), of_ctas = is_bound(stmt, false);
    if (of_threads && !within_threads) check_loop(stmt, around, true);
    if (of_ctas && !within_ctas) check_loop(stmt, around, false);
    if (stmt.kind == Stmt::Kind::loop) check_fragment(stmt, around);
    if (stmt.kind == Stmt::Kind::loop || stmt.kind == Stmt::Kind::condition) around.push_back(&stmt);
    for (const Stmt& inner : stmt.body) {
      check(inner, around, within_threads || of_threads, within_ctas || of_ctas);
      if (inner.kind == Stmt::Kind::let || inner.kind == Stmt::Kind::allocate) around.push_back(&inner);
    }
  }

 private:
  // Who makes an access, along one axis: an iteration of a loop, else the first alone, or each. CTAs store nothing that
  // they do not share (loop/threads/stores.h).
  struct Who {
    const Stmt* loop = nullptr;
    bool first = false;
  };

  void check_loop(const Stmt& loop, const Around& around, bool of_threads) const {
    const Names axes = of_threads ? threads_ : axes_of(loop, false);
    const Names for_first = of_threads ? axes_for_first(loop) : Names{};
    const Dependences all(stage_, around, {&loop});
    const std::vector<MemoryAccess>& accesses = all.accesses();
    for (size_t x = 0; x < accesses.size(); ++x)
      for (size_t y = x; y < accesses.size(); ++y) {
        const MemoryAccess &a = accesses[x], &b = accesses[y];
        if (a.buffer != b.buffer || !is_of_program(a.buffer)) continue;
        if (!(a.writes || b.writes) || (a.atomic && b.atomic)) continue;
        for (const std::string& axis : axes) {
          const Who who_a = who_of(a, axis, for_first), who_b = who_of(b, axis, for_first);
          if (!are_one(a, who_a, b, who_b, axis == loop.thread ? nullptr : &loop, all))
            refuse(a, b, axis, who_a.loop != nullptr ? *who_a.loop : who_b.loop != nullptr ? *who_b.loop : loop);
        }
      }
  }

  // Threads that hold a fragment together store its elements at once (loop/threads/fragment_nests.h).
  void check_fragment(const Stmt& nest, const Around& around) const {
    std::vector<const Stmt*> loops;
    const Stmt* const store = only_store(nest, loops);
    const auto reads = [&](const std::string& name) { return loop::loads_from(Body{nest}, name); };
    if (store == nullptr || fragments_.contains(store->name) ||
        std::none_of(fragments_.begin(), fragments_.end(), reads))
      return;
    const Dependences all(stage_, around, {&nest});
    for (const Stmt* loop : loops)
      if (const std::string problem = all.problem_of_sharing(loop->name); !problem.empty())
        fail(ErrorCode::unsupported,
             "{}{}: {} of loop '{}', which threads share as they hold a fragment; required: an element of its own for "
             "each of the fragment's",
             loop->scheduled.line == 0 ? "" : fmt::format("line {}: ", loop->scheduled.line), stage_.name, problem,
             loop->name);
  }

  // Whether one thread, or CTA, makes both accesses where they are of one element; in an iteration of `outer`, or any.
  static bool are_one(const MemoryAccess& a, const Who& who_a, const MemoryAccess& b, const Who& who_b,
                      const Stmt* outer, const Dependences& all) {
    Directions same;
    if (outer != nullptr) same[outer->name] = Direction::same;
    if (who_a.loop != nullptr && who_b.loop != nullptr)
      return !all.may_meet_in_others(a, *who_a.loop, b, *who_b.loop, same);
    if (who_a.first && who_b.first) return true;
    return !all.may_meet(a, b, same);
  }

  Who who_of(const MemoryAccess& access, const std::string& axis, const Names& for_first) const {
    for (const Stmt* stmt : access.around) {
      if (stmt->kind != Stmt::Kind::loop || stmt->loop != loop::LoopKind::bind || stmt->thread != axis) continue;
      // What threads have added up together comes to its place behind the loop.
      const bool is_sum = loop::is_thread_sum(*stmt) && access.writes;
      if (!is_sum) return {stmt, false};
    }
    const bool is_stored_by_first = access.stmt->kind == Stmt::Kind::store &&
                                    (is_of_program(access.stmt->name) || shared_.contains(access.stmt->name));
    return {nullptr, !loop::is_thread_axis(axis) || is_stored_by_first || for_first.contains(axis)};
  }

  // As loop/threads/stores.h has it.
  Names axes_for_first(const Stmt& loop) const {
    Names axes = threads_, own;
    for (const std::string& axis : axes_of(loop, true)) axes.erase(axis);
    visit(Body{loop}, [&](const Stmt& stmt) {
      if (stmt.kind == Stmt::Kind::allocate) own.insert(stmt.name);
    });
    visit(loop.body, [&](const Stmt& stmt) {
      const bool is_around = own_.contains(stmt.name) && !own.contains(stmt.name);
      if (stmt.kind == Stmt::Kind::store && is_around) axes.clear();
    });
    return axes;
  }

  bool is_of_program(const std::string& name) const {
    return stage_.find_buffer(name) != nullptr && !own_.contains(name) && !shared_.contains(name);
  }

  [[noreturn]] void refuse(const MemoryAccess& a, const MemoryAccess& b, const std::string& axis,
                           const Stmt& loop) const {
    const std::string text = a.text(), other = b.text();
    const std::string elements =
        text == other ? fmt::format("{} may be", text) : fmt::format("{} and {} may be", text, other);
    const std::string where =
        loop::is_thread_axis(axis)
            ? "within loops over threads, through which they go at their own pace: a barrier there would be divergent"
            : "within a kernel, where CTAs do not wait for each other";
    fail(ErrorCode::unsupported,
         "{}{}: {} one element that different {} along {} access {}; required: a loop bound to {} around both, whose "
         "iterations have elements of their own",
         loop.scheduled.line == 0 ? "" : fmt::format("line {}: ", loop.scheduled.line), stage_.name, elements,
         loop::is_thread_axis(axis) ? "threads" : "CTAs", axis, where, axis);
  }

  const Stage2& stage_;
  Names threads_;       // axes of threads
  Names shared_, own_;  // memory of the CTA, and of a thread
  Names fragments_;     // of all warps
};

}  // namespace

void check_bound_loops(Stage2 stage) {
  lower_init(stage);
  for (const Stmt& nest : stage.body)
    if (!axes_of(nest, true).empty() || !axes_of(nest, false).empty()) BoundNest(stage, nest).check(nest);
}

}  // namespace weft::sparse
