// What the checker's parts look at and fill in as it goes through a schedule.
#pragma once

#include <fmt/format.h>

#include <utility>
#include <vector>

#include "decode/fused/check.h"
#include "decode/fused/check_needs.h"

namespace weft::decode::fused {

// What the checker knows of a worker itself.
struct CheckedWorker {
  size_t next_load = 0, next_step = 0;
  int released = 0;
  std::vector<char> awaited;  // of loads
  Inbox inbox;
  std::vector<std::pair<Shared, Range>> read;  // of the inbox, in this phase, or by this item or merge
  int phase = kNothing;
  bool has_prologue = false;
  Range columns;  // of the prologue
  int64_t band = kNothing;
  Range sums;  // tiles of the band
  // By cells: the phase that has left the residual that the worker keeps; and the sums.
  std::vector<int> residual, kept_sums;
  int item = kNothing;
  int64_t tokens = 0;  // of the item, up to which it has attended
};

// How often each tile of a phase's matrix was loaded and multiplied; of attention: each row's KV head appended; of a
// reduction: each cell made.
struct Uses {
  std::vector<char> loaded, used;
};

// What is looked at, and the problems that were found so far.
class Findings {
 public:
  Findings(const Partition& partition, const Schedule& schedule, size_t most)
      : partition_(partition), schedule_(schedule), most_(most) {}

  int worker = kNothing, phase = kNothing, step = kNothing, load = kNothing;

  bool empty() const { return problems_.empty(); }
  std::vector<Problem> take() { return std::move(problems_); }

  // Another one where it is not so.
  template <class... Args>
  bool expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
    if (ok || problems_.size() >= most_) return ok;
    Problem& found = problems_.emplace_back(Problem{worker, phase, step, load, {}});
    if (worker >= 0) {
      found.text = fmt::format("worker {}", worker);
      if (phase >= 0 && phase < partition_.phases.size())
        found.text += fmt::format(", {}", name_of(partition_.phases.all[static_cast<size_t>(phase)]));
      if (step >= 0)
        found.text += fmt::format(
            ", step {} ({})", step,
            to_string(schedule_.workers[static_cast<size_t>(worker)].steps[static_cast<size_t>(step)].kind));
      if (load >= 0) found.text += fmt::format(", load {}", load);
      found.text += ": ";
    }
    found.text += fmt::format(format, std::forward<Args>(args)...);
    return false;
  }
  bool expect_none(const std::string& problem) { return expect(problem.empty(), "{}", problem); }

 private:
  const Partition& partition_;
  const Schedule& schedule_;
  const size_t most_;
  std::vector<Problem> problems_;
};

struct CheckState {
  CheckState(const Partition& p, const Schedule& s, size_t most);

  const Partition& partition;
  const Program& program;
  const Schedule& schedule;
  const int group, num_rows;  // query heads per KV head; of the step
  Findings found;
  CheckedMemory memory;
  CheckedNeeds needs;
  std::vector<CheckedWorker> workers;
  std::vector<Uses> uses;  // of phases

  // Of the worker that is looked at.
  const WorkerSchedule& list() const { return schedule.workers[static_cast<size_t>(found.worker)]; }
  CheckedWorker& own() { return workers[static_cast<size_t>(found.worker)]; }
  const Phase& phase_at(int phase) const { return partition.phases.all[static_cast<size_t>(phase)]; }
  // Of the phase that is looked at; null: it is not there.
  const AttentionItem* item_at(int item) const;
  int cached_of(const AttentionItem& item) const;
};

}  // namespace weft::decode::fused
