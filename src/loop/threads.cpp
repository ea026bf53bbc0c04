#include "loop/threads.h"

#include <algorithm>
#include <utility>

#include "loop/product.h"
#include "loop/threads/accesses.h"
#include "loop/threads/barriers.h"
#include "loop/threads/cta_exchange.h"
#include "loop/threads/fragment_nests.h"
#include "loop/threads/own_memory.h"
#include "loop/threads/shared_copies.h"
#include "loop/threads/stores.h"
#include "loop/threads/sums.h"
#include "loop/threads/surroundings.h"

namespace weft::loop {
namespace {

// Goes through the phase once, statement by statement, and makes of each what a thread runs.
class Threads {
 public:
  Threads(const Function& function, const Phase& phase) : kernel_(function, phase.body) {}

  Body made(const Body& body) {
    const std::vector<Step> steps = steps_of(body);
    own_.check();
    ctas_.check();
    Body result = Barriers(kernel_.shared).placed(steps);
    if (has_cta_sum_) result.insert(result.begin(), memory_of_cta_sums(kernel_));
    if (kernel_.ctas.contains("blockIdx.x")) return result;
    return {for_first({"blockIdx.x"}, std::move(result))};
  }

 private:
  // ---- statements outside of all loops over threads, which every thread of the CTA runs

  std::vector<Step> steps_of(const Body& body) {
    const size_t num_names = around_.num_names();
    std::vector<Step> steps;
    for (const Stmt& stmt : body) {
      if (add_of_warps(stmt, steps)) continue;
      const bool is_loop = stmt.kind == Stmt::Kind::loop && !is_thread_loop(stmt) && !is_product(stmt);
      if (stmt.kind == Stmt::Kind::condition || is_loop) {
        steps.push_back(nest(stmt));
        continue;
      }
      Step step;
      step.body = is_thread_loop(stmt) ? thread_loop(stmt, step.accesses) : one(stmt, step.accesses);
      steps.push_back(std::move(step));
    }
    around_.forget_names(num_names);
    return steps;
  }

  // What warps do together, of which there are as many as fragments want: fragments, and copies to shared memory.
  bool add_of_warps(const Stmt& stmt, std::vector<Step>& steps) {
    const bool has_stages = stmt.kind == Stmt::Kind::loop && num_stages(stmt) > 0;
    if (kernel_.fragments.empty()) {
      if (has_stages)
        kernel_.refuse(stmt.scheduled, "loop '{}' has stages; required: a kernel whose sums lie in a fragment",
                       stmt.name);
      return false;
    }
    if (has_stages) {
      const auto is_memory = [](const Stmt& inner) { return inner.kind == Stmt::Kind::allocate; };
      if (!std::all_of(stmt.body.begin(), stmt.body.end(), is_memory)) add_staged(stmt, steps);
      return true;
    }
    Step step;
    if (is_fragment_memory(stmt)) {
      own_.allocate(stmt);
      step.body = {registers_of(stmt, kernel_.fragments.at(stmt.name).fragment)};
    } else if (accesses_fragments(kernel_, stmt)) {
      step.body = through_pairs(kernel_, stmt, num_made_++);
      add_accesses(stmt, step.accesses);
    } else if (const std::optional<SharedCopy> copy = shared_copy(kernel_, stmt)) {
      step.body = copied_together(kernel_, *copy, num_made_++);
      bool is_async = false;
      visit(step.body, [&](const Stmt& inner) { is_async |= inner.kind == Stmt::Kind::copy_async; });
      if (is_async) step.body.push_back({.kind = Stmt::Kind::commit_copies});
      if (is_async) step.body.push_back({.kind = Stmt::Kind::wait_copies, .value = 0});
      add_accesses(stmt, step.accesses);
    } else {
      return false;
    }
    steps.push_back(std::move(step));
    return true;
  }

  // Each iteration waits for its copies, and begins those of the iteration that is `stages - 1` behind it, into the
  // memory that all threads have read when they have come here.
  void add_staged(const Stmt& loop, std::vector<Step>& steps) {
    const StagedLoop parts = staged_loop(kernel_, loop);
    // Memory of no more iterations than there are.
    const int64_t stages = num_stages(loop);
    int64_t kept = stages, iterations = 0;
    if (is_integer(loop.value, &iterations) && iterations > 0) kept = std::min(stages, iterations);
    const int number = num_made_++;
    const auto name = [&](const char* what) { return fmt::format("weft_{}_{}", what, number); };
    const Expr extent = variable(name("extent")), stage = variable(name("stage")), ahead = variable(name("ahead"));
    // Where the next copy reads from, loaded an iteration before it begins: nobody waits for it then.
    around_.open(loop);
    const auto is_inside = [&](const Expr& load) { return around_.is_inside(load->name, load->operands[0]); };
    const std::vector<StagedPlace> places = staged_places(kernel_, loop, parts.copies, number, is_inside);
    around_.close(loop);
    std::vector<StagedPlace> fixed = places;
    std::erase_if(fixed, [](const StagedPlace& place) { return !place.is_fixed; });
    const auto add_places = [&](const Expr& iteration, Body& to) {
      Body body;
      for (size_t p = fixed.size(); p < places.size(); ++p)
        body.push_back(make_store(places[p].name, {0}, loaded(places[p])));
      if (body.empty()) return;
      read_at_places(body, fixed);
      substitute(body, {{loop.name, iteration}});
      to.push_back(make_condition(less(iteration, extent), std::move(body)));
    };
    const auto copies = [&](const Expr& iteration, const Expr& to) {
      Body body;
      for (const Stmt* nest : parts.copies)
        append(body, copied_together(kernel_, *shared_copy(kernel_, *nest), num_made_++));
      read_at_places(body, places);
      substitute(body, {{loop.name, iteration}});
      Body all{make_condition(less(iteration, extent), at_stage(std::move(body), parts.memory, to)),
               {.kind = Stmt::Kind::commit_copies}};
      add_places(iteration + 1, all);
      return all;
    };
    Step before;
    Accesses of_extent;
    add_loads(loop.value, false, of_extent);
    if (!of_extent.empty())
      kernel_.refuse(loop.scheduled, "loop '{}' has stages, and its extent {} changes while threads run", loop.name,
                     to_words(loop.value));
    for (const Stmt* memory : parts.memory) {
      Stmt all = *memory;
      all.indices[0] = all.indices[0] * kept;
      own_.allocate(all);
      before.body.push_back(std::move(all));
    }
    before.body.push_back(make_let(extent->name, loop.value));
    for (const StagedPlace& place : places)
      before.body.push_back(make_allocate(place.name, {1}, place.dtype, Scope::registers));
    Body first_places;
    for (const StagedPlace& place : fixed) first_places.push_back(make_store(place.name, {0}, loaded(place)));
    if (!fixed.empty()) before.body.push_back(make_condition(less(0, extent), std::move(first_places)));
    add_places(0, before.body);
    Step begin;
    begin.body = {make_loop(ahead->name, stages - 1, copies(ahead, ahead))};
    begin.body[0].annotations = {"rolled"};
    for (const Stmt* nest : parts.copies) add_accesses(*nest, begin.accesses);
    // As early as it may be: what stands before the loop runs while the copies are on their way.
    const auto place = steps.begin() + static_cast<std::ptrdiff_t>(first_free_of(before.body, begin.body, steps));
    steps.insert(steps.insert(place, std::move(before)) + 1, std::move(begin));

    Step step{.nest = loop, .runs = runs_surely(loop)};
    step.nest->value = extent;
    step.nest->body.clear();
    step.nest->annotations.clear();
    around_.open(loop);
    // Nothing else in the loop waits for its copies.
    Step turn{.waits = true};
    turn.body = {make_let(stage->name, modulo(variable(loop.name), kept)),
                 {.kind = Stmt::Kind::wait_copies, .value = stages - 2},
                 {.kind = Stmt::Kind::barrier}};
    around_.declare(turn.body[0]);
    const Expr next = variable(loop.name) + (stages - 1);
    append(turn.body, copies(next, modulo(next, kept)));
    step.steps.push_back(std::move(turn));
    for (Step& own : steps_of(at_stage(parts.rest, parts.memory, stage))) step.steps.push_back(std::move(own));
    around_.close(loop);
    steps.push_back(std::move(step));
  }

  static bool runs_surely(const Stmt& loop) {
    int64_t count = 0;
    return loop.kind == Stmt::Kind::loop && loop.loop == LoopKind::serial && is_integer(loop.value, &count) &&
           count > 0;
  }

  // The first of the steps from which on none declares what the statements use.
  static size_t first_free_of(const Body& before, const Body& begin, const std::vector<Step>& steps) {
    Names used;
    for (const Body* body : {&before, &begin}) {
      visit(*body, [&](const Stmt& stmt) { used.insert(stmt.name); });
      visit_exprs(*body, [&](const Expr& e) {
        visit(e, [&](const Expr& node) {
          if (node->op == Op::load || node->op == Op::variable) used.insert(node->name);
        });
      });
    }
    size_t first = steps.size();
    const auto is_used = [&](const Stmt& stmt) {
      return (stmt.kind == Stmt::Kind::let || stmt.kind == Stmt::Kind::allocate) && used.contains(stmt.name);
    };
    while (first > 0 && std::none_of(steps[first - 1].body.begin(), steps[first - 1].body.end(), is_used)) --first;
    return first;
  }

  // Of loops that all threads share in a way of their own.
  void add_accesses(const Stmt& stmt, Accesses& found) {
    if (stmt.kind == Stmt::Kind::store) return add_store(stmt, false, found);
    add_loads(stmt.value, false, found);
    const bool is_loop = stmt.kind == Stmt::Kind::loop;
    is_loop ? around_.open(stmt) : around_.push_condition(stmt.value);
    for (const Stmt& inner : stmt.body) add_accesses(inner, found);
    is_loop ? around_.close(stmt) : around_.pop_condition();
  }

  Step nest(const Stmt& stmt) {
    Step step{.nest = stmt, .runs = runs_surely(stmt)};
    step.nest->body.clear();
    if (is_tensorised(stmt)) step.nest->annotations.clear();  // too small for a routine
    add_loads(stmt.value, false, step.accesses);
    const bool is_loop = stmt.kind == Stmt::Kind::loop;
    if (is_loop && !step.accesses.empty())
      kernel_.refuse(stmt.scheduled,
                     "the extent {} of loop '{}' changes while threads run; required: extents of what nothing here "
                     "writes",
                     to_words(stmt.value), stmt.name);
    is_loop ? around_.open(stmt) : around_.push_condition(stmt.value);
    step.steps = steps_of(stmt.body);
    is_loop ? around_.close(stmt) : around_.pop_condition();
    return step;
  }

  // What threads along axes that nothing in the loop is bound to would do alike, the first of them does alone: what it
  // stores, the others may not read before, and nobody waits in here.
  Body thread_loop(const Stmt& loop, Accesses& found) {
    const Names axes = axes_of_first(kernel_, loop);
    around_.open_for_first(axes);
    Body body = one(loop, found);
    around_.close_for_first();
    check_apart(loop, found);
    if (axes.empty()) return body;
    return {for_first(axes, std::move(body))};
  }

  // No thread may wait for another within a loop over threads, which they run through as they come.
  void check_apart(const Stmt& loop, const Accesses& found) const {
    for (const Access& a : found)
      for (const Access& b : found) {
        if (!kernel_.shared.contains(a.buffer) || !meet(a, b)) continue;
        if (a.writes && a.owner.empty())
          kernel_.refuse(
              loop.scheduled,
              "'{}' in shared memory may be written at one place by two threads of loop '{}'; required: places that "
              "are its variable, or a literal times that and less than the literal",
              a.buffer, loop.name);
        kernel_.refuse(
            loop.scheduled,
            "'{}' is exchanged between threads within loop '{}', through which they go at their own pace: a barrier "
            "there would be divergent; required: another loop over threads for those who read it",
            a.buffer, loop.name);
      }
  }

  // ---- any statement, with what it accesses

  Body one(Stmt stmt, Accesses& found) {
    switch (stmt.kind) {
      case Stmt::Kind::store: return store(std::move(stmt), found);
      case Stmt::Kind::let:
        add_loads(stmt.value, false, found);
        around_.declare(stmt);
        return {std::move(stmt)};
      case Stmt::Kind::allocate:
        own_.allocate(stmt);
        if (const auto loops = around_.thread_loops(); stmt.scope == Scope::shared && !loops.empty())
          kernel_.refuse(stmt.scheduled,
                         "'{}' is in shared memory within loop '{}', which threads share; required: memory around it",
                         stmt.name, loops[0].loop->name);
        if (is_fragment_memory(stmt))
          kernel_.refuse(stmt.scheduled,
                         "'{}' is a fragment within a loop that threads share; required: outside of such, as all warps "
                         "hold it together",
                         stmt.name);
        return {std::move(stmt)};
      case Stmt::Kind::fail:
        for (const Expr& index : stmt.indices) add_loads(index, false, found);
        return {std::move(stmt)};
      case Stmt::Kind::condition: {
        add_loads(stmt.value, false, found);
        around_.push_condition(stmt.value);
        stmt.body = each(stmt.body, found);
        around_.pop_condition();
        return {std::move(stmt)};
      }
      case Stmt::Kind::loop: {
        if (is_thread_sum(stmt)) return thread_sum(std::move(stmt), found);
        if (is_product(stmt)) return product(std::move(stmt), found);
        if (is_tensorised(stmt)) stmt.annotations.clear();  // too small for a routine
        add_loads(stmt.value, false, found);
        around_.open(stmt);
        Body body = each(stmt.body, found);
        around_.close(stmt);
        stmt.body = std::move(body);
        return {std::move(stmt)};
      }
      default: return {std::move(stmt)};
    }
  }

  Body each(const Body& body, Accesses& found) {
    const size_t num_names = around_.num_names();
    Body result;
    for (const Stmt& stmt : body) append(result, one(stmt, found));
    around_.forget_names(num_names);
    return result;
  }

  Body store(Stmt stmt, Accesses& found) {
    const bool is_seen = kernel_.tracked.contains(stmt.name);
    const Names missing = is_seen ? around_.missing_threads() : Names{};
    add_store(stmt, !missing.empty(), found);
    if (missing.empty()) return {std::move(stmt)};
    return {for_first(missing, {std::move(stmt)})};
  }

  bool is_product(const Stmt& stmt) const {
    return is_tensorised(stmt) && product_nest(kernel_.function, stmt).is_whole();
  }

  // One routine. Threads that come to it together share the elements of what the CTA sees.
  Body product(Stmt loop, Accesses& found) {
    const ProductNest nest = product_nest(kernel_.function, loop);
    if (is_mma(loop)) {
      if (!around_.thread_loops().empty())
        kernel_.refuse(loop.scheduled, "loop '{}' is a product by mma within a loop that threads share", loop.name);
      check_mma(kernel_, loop, nest);
    }
    for (const Stmt* inner : nest.loops) around_.open(*inner);
    const bool is_seen = kernel_.tracked.contains(nest.store->name);
    const Names missing = is_seen ? around_.missing_threads() : Names{};
    const bool is_together = !missing.empty() && around_.thread_loops().empty();
    const bool is_alone = !missing.empty() && !is_together;
    add_store(*nest.store, is_alone, found);
    for (auto inner = nest.loops.rbegin(); inner != nest.loops.rend(); ++inner) around_.close(**inner);
    if (is_together) loop.annotations.emplace_back(kTogether);
    if (!is_alone) return {std::move(loop)};
    return {for_first(missing, {std::move(loop)})};
  }

  // target = target + x over threads, or the largest or least x.
  Body thread_sum(Stmt loop, Accesses& found) {
    ThreadSum sum = thread_sum_of(kernel_, around_, std::move(loop), num_sums_++);
    has_cta_sum_ |= sum.is_over_cta;
    Body result = std::move(sum.begin);
    append(result, one(std::move(sum.loop), found));
    append(result, std::move(sum.together));
    append(result, one(std::move(sum.end), found));
    return result;
  }

  // ---- accesses

  void add_store(const Stmt& stmt, bool is_alone, Accesses& found) {
    add_loads(stmt.indices[0], is_alone, found);
    add_loads(stmt.atomic ? stmt.value->operands[1] : stmt.value, is_alone, found);
    add({stmt.name, true, stmt.atomic}, stmt.indices[0], is_alone, found);
    around_.declare(stmt);
    if (kernel_.function.find(stmt.name) != nullptr) check_stored_once(kernel_, around_, stmt);
  }

  void add_loads(const Expr& e, bool is_alone, Accesses& found) {
    visit(e, [&](const Expr& node) {
      if (node->op == Op::load) add({node->name}, node->operands[0], is_alone, found);
      // A search reads elements that nobody names.
      if (is_search(node->op) && kernel_.tracked.contains(node->name)) found.push_back({node->name});
    });
  }

  // is_alone: by the first thread, for those along the axes that no loop around is bound to.
  void add(Access access, const Expr& index, bool is_alone, Accesses& found) {
    own_.access(access.buffer, index, access.writes);
    if (!kernel_.tracked.contains(access.buffer)) return;
    const std::vector<BoundLoop> loops = around_.thread_loops();
    if (loops.empty()) {
      if (is_alone) access.owner = "first";
    } else if (is_alone || around_.missing_threads().empty()) {
      Owner owner = around_.owner_of(index, loops);
      access.owner = std::move(owner.words);
      access.fixed = std::move(owner.fixed);
      if ((is_alone || around_.is_for_first()) && !access.owner.empty()) access.owner += ", first";
    }
    if (!kernel_.shared.contains(access.buffer)) ctas_.access(access.buffer, index, access.writes, access.atomic);
    found.push_back(std::move(access));
  }

  static void append(Body& body, Body more) {
    body.insert(body.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  const Kernel kernel_;
  Surroundings around_{kernel_};
  OwnMemory own_{kernel_, around_};
  CtaExchange ctas_{kernel_, around_};
  int num_sums_ = 0, num_made_ = 0;
  bool has_cta_sum_ = false;
};

// A parallel loop takes all threads: nothing is to be done but to run it.
Body checked_parallel(const Kernel& kernel, const Body& body) {
  visit(body, [&](const Stmt& stmt) {
    if (is_bound_loop(stmt))
      kernel.refuse(
          stmt.scheduled,
          "loop '{}' is bound to {} within a parallel loop, which takes all threads; required: bind in its place",
          stmt.name, stmt.thread);
    if (stmt.kind == Stmt::Kind::allocate && (stmt.scope == Scope::shared || stmt.scope == Scope::fragment))
      kernel.refuse(
          stmt.scheduled,
          "'{}' is in {} memory within a parallel loop, whose iterations are threads; required: loops bound to "
          "blockIdx around it and to threadIdx within",
          stmt.name, to_string(stmt.scope));
  });
  return body;
}

// Nests of CTAs side by side: each has the next ones along blockIdx.x.
Body side_by_side(const Function& function, const Phase& phase) {
  Body memory;  // of the CTA, in which warps exchange their sums; of one nest as of all
  Body nests;
  Names taken;
  Expr first = 0;
  for (const Stmt& nest : phase.body) {
    Body made = Threads(function, {{nest}}).made({nest});
    if (made.size() > 1 && memory.empty()) memory.assign(made.begin(), made.end() - 1);
    visit(made, [&](const Stmt& stmt) { taken.insert(stmt.name); });
    nests.push_back(std::move(made.back()));
  }
  const std::string cta = fresh_name("weft_beside", taken);
  Stmt all = make_loop(cta, 0, {});
  all.loop = LoopKind::bind;
  all.thread = "blockIdx.x";
  for (Stmt& nest : nests) {
    const Expr end = first + nest.value;
    Expr is_here = less(variable(cta), end);
    if (!is_literal(first, 0))
      is_here = operation(Op::logical_and, {operation(Op::less_equal, {first, variable(cta)}), is_here});
    nest.body.insert(nest.body.begin(), make_let(nest.name, variable(cta) - first));
    all.body.push_back(make_condition(is_here, std::move(nest.body)));
    first = end;
  }
  all.value = first;
  memory.push_back(std::move(all));
  return memory;
}

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

Body thread_body(const Function& function, const Phase& of_loops) {
  Phase phase = of_loops;
  phase.body = with_stages_apart(function, std::move(phase.body));
  if (phase.parallel() != nullptr) return checked_parallel(Kernel(function, phase.body), phase.body);
  if (phase.is_side_by_side()) return side_by_side(function, phase);
  return Threads(function, phase).made(phase.body);
}

Launches split_threads(const Launches& launches) {
  Launches result{launches.function, {}};
  for (const Phase& phase : launches.phases) result.phases.push_back({thread_body(launches.function, phase)});
  return result;
}

int64_t shared_bytes(const Body& body) {
  int64_t bytes = 0;
  visit(body, [&](const Stmt& stmt) {
    int64_t count = 0;
    if (stmt.kind == Stmt::Kind::allocate && stmt.scope == Scope::shared && is_integer(stmt.indices[0], &count))
      bytes += (count * bits_of(stmt.dtype) / 8 + 15) / 16 * 16;
  });
  return bytes;
}

}  // namespace weft::loop
