#include "tests/decode/fused/mutants.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <type_traits>
#include <utility>
#include <vector>

namespace weft::testing {
namespace {

using namespace weft::decode::fused;

class Mutator {
 public:
  Mutator(Schedule& schedule, std::mt19937_64& random) : schedule_(schedule), random_(random) {}

  // Empty where what it drew is not there.
  std::string mutate() {
    worker_ = below(schedule_.workers.size());
    WorkerSchedule& own = schedule_.workers[worker_];
    if (own.steps.empty()) return {};
    step_ = below(own.steps.size());
    if (!own.loads.empty()) load_ = below(own.loads.size());
    using Change = std::string (Mutator::*)();
    static constexpr Change kChanges[] = {&Mutator::drop_step,     &Mutator::repeat_step,   &Mutator::swap_steps,
                                          &Mutator::move_step,     &Mutator::change_range,  &Mutator::change_range,
                                          &Mutator::change_number, &Mutator::change_number, &Mutator::change_kind,
                                          &Mutator::give_step,     &Mutator::drop_entry,    &Mutator::repeat_load,
                                          &Mutator::swap_loads,    &Mutator::change_load,   &Mutator::change_load,
                                          &Mutator::change_load,   &Mutator::cut_step,      &Mutator::drop_phase};
    return (this->*kChanges[below(std::size(kChanges))])();
  }

 private:
  size_t below(size_t n) { return n == 0 ? 0 : static_cast<size_t>(random_() % n); }
  int64_t nudge() {
    return (random_() % 2 == 0 ? 1 : -1) * static_cast<int64_t>(random_() % 8 < 6 ? 1 : 2 + random_() % 6);
  }
  std::vector<WorkerStep>& steps() { return schedule_.workers[worker_].steps; }
  std::vector<Load>& loads() { return schedule_.workers[worker_].loads; }
  WorkerStep& step() { return steps()[step_]; }
  std::ptrdiff_t at() const { return static_cast<std::ptrdiff_t>(step_); }
  std::string name() {
    return fmt::format("worker {}, step {} ({}, phase {})", worker_, step_, to_string(step().kind), step().phase);
  }
  template <class Number>
  std::string change(std::string_view what, Number& number, int64_t by) {
    const auto old = number;
    number = static_cast<Number>(number + static_cast<Number>(by));
    return fmt::format("{} {} -> {}", what, old, number);
  }

  std::string drop_step() {
    std::string text = name() + ": dropped";
    steps().erase(steps().begin() + at());
    return text;
  }
  std::string repeat_step() {
    std::string text = name() + ": twice";
    const WorkerStep again = step();
    // Now and then not at once.
    const size_t to = std::min(steps().size(), step_ + (random_() % 2 == 0 ? 1 : 1 + below(12)));
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(to), again);
    return text;
  }
  std::string swap_steps() {
    const size_t other = std::min(steps().size() - 1, step_ + 1 + (random_() % 2 == 0 ? 0 : below(6)));
    if (other == step_) return {};
    std::string text = fmt::format("{}: swapped with step {}", name(), other);
    std::swap(steps()[step_], steps()[other]);
    return text;
  }
  std::string move_step() {
    const size_t to = below(steps().size());
    std::string text = fmt::format("{}: moved to {}", name(), to);
    const WorkerStep moved = step();
    steps().erase(steps().begin() + at());
    steps().insert(steps().begin() + static_cast<std::ptrdiff_t>(std::min(to, steps().size())), moved);
    return text;
  }
  std::string change_range() {
    const std::string text = name() + ": ";
    const int64_t by = nudge();
    switch (below(3)) {
      case 0: return text + change("begin", step().begin, by);
      case 1: return text + change("end", step().end, by);
      default: return text + change("begin", step().begin, by) + ", " + change("end", step().end, by);
    }
  }
  std::string change_number() {
    const std::string text = name() + ": ";
    switch (below(3)) {
      case 0: return text + change("id", step().id, nudge());
      case 1: return text + change("count", step().count, nudge());
      default: return text + change("phase", step().phase, nudge());
    }
  }
  std::string change_kind() {
    if (random_() % 2 == 0) {
      const auto kind = static_cast<StepKind>(below(kNumStepKinds));
      std::string text = fmt::format("{}: becomes {}", name(), to_string(kind));
      step().kind = kind;
      return text;
    }
    const auto buffer = static_cast<Shared>(below(kNumShared));
    std::string text = fmt::format("{}: {} -> {}", name(), to_string(step().buffer), to_string(buffer));
    step().buffer = buffer;
    return text;
  }
  // To another worker, behind one of its steps of that phase.
  std::string give_step() {
    const size_t other = below(schedule_.workers.size());
    std::vector<WorkerStep>& theirs = schedule_.workers[other].steps;
    std::string text = fmt::format("{}: given to worker {}", name(), other);
    const WorkerStep given = step();
    steps().erase(steps().begin() + at());
    const auto behind = std::ranges::find_if(theirs, [&](const WorkerStep& s) { return s.phase > given.phase; });
    const auto first = std::ranges::find(theirs, given.phase, &WorkerStep::phase);
    const auto room = std::max<std::ptrdiff_t>(behind - first, 0);
    theirs.insert(behind - static_cast<std::ptrdiff_t>(below(static_cast<size_t>(room) + 1)), given);
    return text;
  }
  // A load with all that belongs to it; what is counted behind it is counted anew.
  std::string drop_entry() {
    if (loads().empty()) return {};
    const int dropped = static_cast<int>(load_);
    const auto of_load = [](const WorkerStep& s) {
      return s.kind == StepKind::await || s.kind == StepKind::release || s.kind == StepKind::multiply ||
             s.kind == StepKind::attend;
    };
    std::erase_if(steps(), [&](const WorkerStep& s) { return of_load(s) && s.id == dropped; });
    for (WorkerStep& s : steps())
      if (of_load(s) && s.id > dropped) --s.id;
    for (Load& load : loads())
      if (load.after > dropped) --load.after;
    loads().erase(loads().begin() + dropped);
    return fmt::format("worker {}, load {}: dropped with its steps", worker_, dropped);
  }
  std::string repeat_load() {
    if (loads().empty()) return {};
    const Load again = loads()[load_];
    if (random_() % 2 == 0) {
      loads().push_back(again);
      return fmt::format("worker {}, load {}: once more in the end", worker_, load_);
    }
    loads().insert(loads().begin() + static_cast<std::ptrdiff_t>(load_), again);
    return fmt::format("worker {}, load {}: twice", worker_, load_);
  }
  std::string swap_loads() {
    if (loads().size() < 2) return {};
    const size_t other = below(loads().size());
    if (other == load_) return {};
    std::swap(loads()[load_], loads()[other]);
    return fmt::format("worker {}, load {}: swapped with load {}", worker_, load_, other);
  }
  std::string change_load() {
    if (loads().empty()) return {};
    Load& load = loads()[load_];
    const std::string text = fmt::format("worker {}, load {}: ", worker_, load_);
    const int64_t by = nudge();
    switch (below(8)) {
      case 0: return text + change("begin", load.begin, by);
      case 1: return text + change("end", load.end, by);
      case 2: return text + change("begin", load.begin, by) + ", " + change("end", load.end, by);
      case 3: return text + change("at", load.at, by * (random_() % 2 == 0 ? 16 : 1024));
      case 4: return text + change("bytes", load.bytes, by * (random_() % 2 == 0 ? 16 : 256));
      case 5: return text + change("phase", load.phase, by);
      case 6: return text + change("item", load.item, by);
      default: return text + change("after", load.after, by);
    }
  }
  // A range in two, of which one comes later or not at all.
  std::string cut_step() {
    if (step().end - step().begin < 2) return {};
    const int64_t middle =
        step().begin + 1 + static_cast<int64_t>(below(static_cast<size_t>(step().end - step().begin - 1)));
    std::string text = fmt::format("{}: cut at {}", name(), middle);
    WorkerStep rest = step();
    (random_() % 2 == 0 ? rest.begin : rest.end) = middle;
    if (rest.begin == middle)
      step().end = middle;
    else
      step().begin = middle;
    if (random_() % 3 == 0) return text + ", one half dropped";
    steps().insert(steps().begin() + at() + 1, rest);
    return text;
  }
  // All that a worker does between two joins, but for the joins.
  std::string drop_phase() {
    const int phase = step().phase;
    std::erase_if(steps(), [&](const WorkerStep& s) {
      return s.phase == phase && s.kind != StepKind::wait && s.kind != StepKind::arrive && s.kind != StepKind::await &&
             s.kind != StepKind::release;
    });
    return fmt::format("worker {}: nothing but joins and entries in phase {}", worker_, phase);
  }

  Schedule& schedule_;
  std::mt19937_64& random_;
  size_t worker_ = 0, step_ = 0, load_ = 0;
};

}  // namespace

std::string mutate(Schedule& schedule, std::mt19937_64& random) {
  std::string all;
  for (int left = random() % 8 == 0 ? 2 : 1; left > 0;) {
    const std::string text = Mutator(schedule, random).mutate();
    if (text.empty()) continue;
    all += (all.empty() ? "" : "; ") + text;
    --left;
  }
  return all;
}

std::string mutate(Partition& partition, std::mt19937_64& random) {
  const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const auto change = [&](std::string_view what, auto& numbers, size_t i, int64_t most) {
    const auto old = numbers[i];
    const int64_t to =
        static_cast<int64_t>(old) + (random() % 2 == 0 ? 1 : -1) * static_cast<int64_t>(1 + random() % 3);
    numbers[i] = static_cast<std::remove_reference_t<decltype(numbers[i])>>(std::clamp<int64_t>(to, 0, most));
    return fmt::format("{}[{}] {} -> {}", what, i, old, numbers[i]);
  };
  if (random() % 4 == 0) {
    Phase& phase = partition.phases.all[below(partition.phases.all.size())];
    const bool of_product = phase.multiplies();
    // Of sums that were kept no schedule makes others.
    if (of_product || (phase.reduces() && !phase.norms_sums && phase.writes != Shared::gated)) {
      bool& flag = of_product ? phase.is_normed : phase.norms_sums;
      flag = !flag;
      return fmt::format("{}: {} becomes {}", name_of(phase), of_product ? "is_normed" : "norms_sums", flag);
    }
  }
  MatrixPartition& matrix = partition.matrices[below(partition.matrices.size())];
  const std::string name = fmt::format("{} of layer {}: ", to_string(matrix.role), matrix.layer);
  switch (below(3)) {
    case 0: return name + change("border", matrix.borders, below(matrix.borders.size()), matrix.tiles.num_tiles());
    case 1:
      return name + change("worker_slot", matrix.worker_slot, below(matrix.worker_slot.size()), matrix.num_slots());
    default:
      return name + change("first_slot", matrix.first_slot, below(matrix.first_slot.size() - 1), matrix.num_slots());
  }
}

}  // namespace weft::testing
