#include "decode/fused/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "decode/fused/check_steps.h"

namespace weft::decode::fused {
namespace {

// With all that follows from the program.
std::string text_of(const Phase& phase) {
  return fmt::format("{} (operations {}, {}, {} into {}{}{})", name_of(phase), phase.begin, phase.main, phase.end,
                     to_string(phase.writes), phase.is_normed ? ", normed" : "",
                     phase.norms_sums ? ", of sums that are kept" : "");
}

// Whoever waits waits for all that arrive, neither for fewer nor for more.
void check_counters(const Schedule& schedule, Findings& found) {
  std::vector<int> arrivals(static_cast<size_t>(schedule.num_counters));
  const auto each = [&](StepKind kind, const auto& visit) {
    for (size_t w = 0; w < schedule.workers.size(); ++w)
      for (size_t s = 0; s < schedule.workers[w].steps.size(); ++s) {
        const WorkerStep& step = schedule.workers[w].steps[s];
        if (step.kind != kind) continue;
        found.worker = static_cast<int>(w), found.step = static_cast<int>(s), found.phase = step.phase;
        if (found.expect(step.id >= 0 && step.id < schedule.num_counters, "counter {} is not there", step.id))
          visit(step, arrivals[static_cast<size_t>(step.id)]);
      }
  };
  each(StepKind::arrive, [](const WorkerStep&, int& count) { ++count; });
  each(StepKind::wait, [&](const WorkerStep& step, int& count) {
    found.expect(step.count == count, "waits for {} arrivals at counter {}, and {} are made", step.count, step.id,
                 count);
  });
}

// What a phase reads, and what becomes of it, follows from its fields: they are the program's, and nobody's choice.
std::vector<Problem> check_phases(const Partition& partition) {
  const Phases right = make_phases(partition.program);
  if (partition.phases == right) return {};
  const std::vector<Phase>& has = partition.phases.all;
  const auto first = static_cast<size_t>(std::ranges::mismatch(has, right.all).in1 - has.begin());
  if (first == has.size() || first == right.all.size()) {
    const auto sizes = [](const Phases& of) {
      return fmt::format("{} phases, {} of each of {} layers, which repeat after {}", of.size(), of.of_layer,
                         of.num_layers, of.layer_period);
    };
    return {{.text = fmt::format("the partition has {}; the program has {}", sizes(partition.phases), sizes(right))}};
  }
  return {{.phase = static_cast<int>(first),
           .text = fmt::format("phase {} of the partition is {}; the program's is {}", first, text_of(has[first]),
                               text_of(right.all[first]))}};
}

// So do the sizes of matrices, of which tiles, bands and slots are counted.
std::vector<Problem> check_matrices(const Partition& partition) {
  for (int index = 0; index < partition.phases.size(); ++index) {
    const Phase& phase = partition.phases.all[static_cast<size_t>(index)];
    if (!phase.multiplies()) continue;
    const TiledMatrix& tiles = partition.matrix_of(phase).tiles;
    const Weight& weight = main_of(phase, partition.program).weights[0];
    if (tiles.rows != weight.rows || tiles.cols != weight.cols)
      return {{.phase = index,
               .text = fmt::format("{}: the partition has a matrix of {} x {}; the program's is {} x {}",
                                   name_of(phase), tiles.rows, tiles.cols, weight.rows, weight.cols)}};
  }
  return {};
}

class Checker {
 public:
  Checker(const Partition& partition, const Schedule& schedule, size_t most)
      : state_(partition, schedule, most), loads_(state_), steps_(state_) {}

  std::vector<Problem> run() {
    if (schedule_.workers.size() != static_cast<size_t>(partition_.machine.workers)) {
      found_.expect(false, "{} workers have lists; the partition has {}", schedule_.workers.size(),
                    partition_.machine.workers);
      return found_.take();
    }
    check_counters(schedule_, found_);
    for (bool moved = true; moved && found_.empty();) {
      moved = false;
      for (found_.worker = 0; found_.worker < static_cast<int>(state_.workers.size()); ++found_.worker)
        while (found_.empty() && advance()) moved = true;
    }
    if (found_.empty()) find_stuck();
    if (found_.empty()) check_uses();
    return found_.take();
  }

 private:
  // The worker's next load or step, if it can be done.
  bool advance() {
    found_.step = found_.load = kNothing;
    CheckedWorker& worker = state_.own();
    if (worker.next_load < state_.list().loads.size() &&
        worker.released >= state_.list().loads[worker.next_load].after) {
      found_.load = static_cast<int>(worker.next_load++);
      loads_.issue(state_.list().loads[static_cast<size_t>(found_.load)]);
      return true;
    }
    if (worker.next_step == state_.list().steps.size()) return false;
    const WorkerStep& step = state_.list().steps[worker.next_step];
    found_.step = static_cast<int>(worker.next_step), found_.phase = step.phase;
    if (step.kind == StepKind::wait && !state_.memory.has_arrived(step.id, step.count)) return false;
    if (step.kind == StepKind::await && step.id >= static_cast<int>(worker.next_load)) return false;
    if (waits_for_cells(step) && !state_.memory.holds(step.buffer, {step.begin, step.end}, step.id)) return false;
    ++worker.next_step;
    steps_.take(step);
    return true;
  }

  bool waits_for_cells(const WorkerStep& step) const {
    return partition_.machine.edge == EdgeForm::tagged && step.kind == StepKind::read;
  }

  // Whoever is in the earliest phase first: others wait for him.
  void find_stuck() {
    std::vector<int> order(state_.workers.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::stable_sort(order, {}, [&](int w) { return state_.workers[static_cast<size_t>(w)].phase; });
    for (const int worker_index : order) {
      found_.worker = worker_index;
      const CheckedWorker& worker = state_.own();
      found_.step = found_.load = kNothing;
      if (worker.next_step < state_.list().steps.size()) {
        found_.step = static_cast<int>(worker.next_step);
        const WorkerStep& step = state_.list().steps[worker.next_step];
        found_.phase = step.phase;
        if (step.kind == StepKind::wait)
          found_.expect(false, "waits for ever: {} of {} arrive at counter {}, the others wait themselves",
                        state_.memory.arrived(step.id), step.count, step.id);
        else if (waits_for_cells(step))
          found_.expect(false, "waits for ever: for {}",
                        state_.memory.missing(step.buffer, {step.begin, step.end}, step.id));
        else
          found_.expect(false, "waits for ever: load {} is issued behind something that comes after this step",
                        step.id);
      } else if (worker.next_load < state_.list().loads.size()) {
        found_.load = static_cast<int>(worker.next_load);
        found_.phase = state_.list().loads[worker.next_load].phase;
        found_.expect(false, "is never issued: it is behind {} releases, and {} are made",
                      state_.list().loads[worker.next_load].after, worker.released);
      }
    }
  }

  void check_uses() {
    found_.worker = found_.step = found_.load = kNothing;
    for (found_.phase = 0; found_.phase < schedule_.num_phases; ++found_.phase) {
      const Phase& phase = state_.phase_at(found_.phase);
      const std::vector<char>& used = state_.uses[static_cast<size_t>(found_.phase)].used;
      const auto unused = std::ranges::find(used, 0) - used.begin();
      if (unused == static_cast<std::ptrdiff_t>(used.size())) continue;
      if (phase.attends())
        found_.expect(false, "{}: row {} of KV head {} is appended by nobody", name_of(phase), unused % state_.num_rows,
                      unused / state_.num_rows);
      else if (phase.reduces())
        found_.expect(false, "{}: cell {} is made by nobody", name_of(phase), unused);
      else
        found_.expect(false, "{}: tile {} is multiplied by nobody", name_of(phase), unused);
    }
    --found_.phase;
    if (state_.phase_at(found_.phase).multiplies()) found_.expect_none(state_.needs.of_result(found_.phase));
    for (const CheckedWorker& worker : state_.workers)
      found_.expect(worker.sums.empty(), "the sums of band {} were not written", worker.band);
  }

  CheckState state_;
  const Partition& partition_ = state_.partition;
  const Schedule& schedule_ = state_.schedule;
  Findings& found_ = state_.found;
  CheckedLoads loads_;
  CheckedSteps steps_;
};

}  // namespace

std::vector<Problem> check(const Partition& partition, const Schedule& schedule, size_t most) {
  for (const auto& of : {check_phases, check_matrices})
    if (std::vector<Problem> problems = of(partition); !problems.empty()) return problems;
  return Checker(partition, schedule, most).run();
}

void require_sound(const Partition& partition, const Schedule& schedule) {
  const std::vector<Problem> problems = check(partition, schedule, 1);
  ensure(problems.empty(), "a fused step's schedule is wrong: {}", problems.empty() ? "" : problems[0].text);
}

}  // namespace weft::decode::fused
