#include "decode/fused/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/check.h"
#include "decode/fused/check_needs.h"

namespace weft::decode::fused {
namespace {

// What the checker knows of a worker itself.
struct CheckedWorker {
  size_t next_load = 0, next_step = 0;
  int released = 0;
  std::vector<char> awaited;  // of loads
  Inbox inbox;
  std::vector<Shared> read;  // of the inbox, in this phase
  int phase = kNothing;
  bool has_prologue = false;
  Range columns;  // of the prologue
  int64_t band = kNothing;
  Range sums;  // tiles of the band
  int item = kNothing;
  int64_t tokens = 0;  // of the item, up to which it has attended
};

// How often each tile of a phase's matrix was loaded and multiplied; of attention: each row's KV head appended.
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

int num_rows_of(const Schedule& schedule) {
  const StepRequest& last = schedule.shape.items[0].requests.back();
  return last.first_row + last.num_rows;
}

class Checker {
 public:
  Checker(const Partition& partition, const Schedule& schedule, size_t most)
      : partition_(partition),
        program_(partition.program),
        schedule_(schedule),
        found_(partition, schedule, most),
        memory_(partition, schedule),
        needs_(partition, schedule, memory_),
        workers_(schedule.workers.size()) {}

  std::vector<Problem> run() {
    if (schedule_.workers.size() != static_cast<size_t>(partition_.machine.workers)) {
      found_.expect(false, "{} workers have lists; the partition has {}", schedule_.workers.size(),
                    partition_.machine.workers);
      return found_.take();
    }
    prepare();
    check_counters(schedule_, found_);
    for (bool moved = true; moved && found_.empty();) {
      moved = false;
      for (found_.worker = 0; found_.worker < static_cast<int>(workers_.size()); ++found_.worker)
        while (found_.empty() && advance()) moved = true;
    }
    if (found_.empty()) find_stuck();
    if (found_.empty()) check_uses();
    return found_.take();
  }

 private:
  const WorkerSchedule& list() const { return schedule_.workers[static_cast<size_t>(found_.worker)]; }
  CheckedWorker& own() { return workers_[static_cast<size_t>(found_.worker)]; }
  const Phase& phase_at(int phase) const { return partition_.phases.all[static_cast<size_t>(phase)]; }
  const AttentionItem* item_at(int item) const {
    if (!phase_at(found_.phase).attends()) return nullptr;
    const AttentionItems& items = schedule_.items_of(phase_at(found_.phase), program_);
    return item >= 0 && item < static_cast<int>(items.items.size()) ? &items.items[static_cast<size_t>(item)] : nullptr;
  }
  int cached_of(const AttentionItem& item) const {
    return schedule_.items_of(phase_at(found_.phase), program_).requests[static_cast<size_t>(item.request)].cached();
  }

  void prepare() {
    uses_.resize(static_cast<size_t>(schedule_.num_phases));
    for (int p = 0; p < schedule_.num_phases; ++p) {
      Uses& uses = uses_[static_cast<size_t>(p)];
      const Phase& phase = phase_at(p);
      uses.used.assign(static_cast<size_t>(phase.attends()  ? program_.num_kv_heads * num_rows_
                                           : phase.merges() ? 0
                                                            : partition_.matrix_of(phase).tiles.num_tiles()),
                       0);
      uses.loaded = uses.used;
    }
    for (size_t w = 0; w < workers_.size(); ++w) {
      workers_[w].awaited.assign(schedule_.workers[w].loads.size(), 0);
      for (size_t i = 0; i < kNumShared; ++i)
        workers_[w].inbox[i].assign(static_cast<size_t>(memory_.num_cells(static_cast<Shared>(i))), kNothing);
    }
  }

  // The worker's next load or step, if it can be done.
  bool advance() {
    found_.step = found_.load = kNothing;
    CheckedWorker& worker = own();
    if (worker.next_load < list().loads.size() && worker.released >= list().loads[worker.next_load].after) {
      found_.load = static_cast<int>(worker.next_load++);
      issue(list().loads[static_cast<size_t>(found_.load)]);
      return true;
    }
    if (worker.next_step == list().steps.size()) return false;
    const WorkerStep& step = list().steps[worker.next_step];
    found_.step = static_cast<int>(worker.next_step), found_.phase = step.phase;
    if (step.kind == StepKind::wait && !memory_.has_arrived(step.id, step.count)) return false;
    if (step.kind == StepKind::await && step.id >= static_cast<int>(worker.next_load)) return false;
    ++worker.next_step;
    if ((step.phase >= 0 && step.phase == worker.phase) || begin_phase(step.phase)) take(step);
    return true;
  }

  void find_stuck() {
    for (found_.worker = 0; found_.worker < static_cast<int>(workers_.size()); ++found_.worker) {
      const CheckedWorker& worker = own();
      found_.step = found_.load = kNothing;
      if (worker.next_step < list().steps.size()) {
        found_.step = static_cast<int>(worker.next_step);
        const WorkerStep& step = list().steps[worker.next_step];
        found_.phase = step.phase;
        if (step.kind == StepKind::wait)
          found_.expect(false, "waits for ever: {} of {} arrive at counter {}, the others wait themselves",
                        memory_.arrived(step.id), step.count, step.id);
        else
          found_.expect(false, "waits for ever: load {} is issued behind something that comes after this step",
                        step.id);
      } else if (worker.next_load < list().loads.size()) {
        found_.load = static_cast<int>(worker.next_load);
        found_.phase = list().loads[worker.next_load].phase;
        found_.expect(false, "is never issued: it is behind {} releases, and {} are made",
                      list().loads[worker.next_load].after, worker.released);
      }
    }
  }

  bool begin_phase(int phase) {
    CheckedWorker& worker = own();
    if (!found_.expect(phase >= 0 && phase < schedule_.num_phases && phase > worker.phase,
                       "phase {} comes behind phase {}", phase, worker.phase) ||
        !found_.expect(worker.sums.empty(), "the sums of band {} were not written", worker.band))
      return false;
    for (const Shared shared : worker.read) std::ranges::fill(worker.inbox[static_cast<size_t>(shared)], kNothing);
    worker.read.clear();
    worker.phase = phase;
    worker.has_prologue = false;
    worker.item = kNothing;
    return true;
  }

  // ---- the ring

  void issue(const Load& load) {
    found_.phase = load.phase;
    if (!found_.expect(load.phase >= 0 && load.phase < schedule_.num_phases, "phase {} is not there", load.phase))
      return;
    if (!found_.expect(load.at >= 0 && load.at % kAlignment == 0 && load.bytes > 0 &&
                           load.at + load.bytes <= partition_.machine.ring_bytes,
                       "bytes {} to {} are not of a ring of {}, or not at a multiple of {}", load.at,
                       load.at + load.bytes, partition_.machine.ring_bytes, kAlignment))
      return;
    // Entries are released in their order, so those from `after` on may be in use.
    if (!found_.expect(
            load.after >= 0 && load.after <= found_.load && found_.load - load.after < partition_.machine.max_entries,
            "is issued behind {} releases; with {} entries in use at most it is behind {} to {}", load.after,
            partition_.machine.max_entries, std::max(0, found_.load + 1 - partition_.machine.max_entries), found_.load))
      return;
    for (int i = load.after; i < found_.load; ++i) {
      const Load& other = list().loads[static_cast<size_t>(i)];
      if (!found_.expect(other.at >= load.at + load.bytes || load.at >= other.at + other.bytes,
                         "takes the place of load {}, which may be in use", i))
        return;
    }
    if (phase_at(load.phase).attends()) {
      issue_keys(load);
      return;
    }
    if (!found_.expect(phase_at(load.phase).multiplies(), "{} loads nothing", name_of(phase_at(load.phase)))) return;
    const TiledMatrix& tiles = partition_.matrix_of(phase_at(load.phase)).tiles;
    if (!found_.expect(load.item == kNothing && load.begin >= 0 && load.begin < load.end &&
                           load.end <= tiles.num_tiles() && load.bytes == tiles.bytes_of(load.begin, load.end),
                       "tiles {}..{} in {} bytes are not of {} tiles", load.begin, load.end, load.bytes,
                       tiles.num_tiles()))
      return;
    for (int64_t tile = load.begin; tile < load.end; ++tile)
      if (!found_.expect(uses_[static_cast<size_t>(load.phase)].loaded[static_cast<size_t>(tile)]++ == 0,
                         "tile {} was loaded before", tile))
        return;
  }

  void issue_keys(const Load& load) {
    const AttentionItem* item = item_at(load.item);
    if (!found_.expect(item != nullptr, "item {} is not there", load.item)) return;
    found_.expect(load.begin >= item->kv_begin && load.begin < load.end && load.end <= item->kv_end &&
                      load.end <= cached_of(*item) && load.bytes == (load.end - load.begin) * schedule_.shape.kv_bytes,
                  "keys {}..{} in {} bytes are not keys of item {} that lie in the cache before this step", load.begin,
                  load.end, load.bytes, load.item);
  }

  // A load of this phase that is there and not released.
  const Load* use(int index) {
    if (!found_.expect(index >= 0 && index < static_cast<int>(list().loads.size()), "load {} is not there", index))
      return nullptr;
    const Load& load = list().loads[static_cast<size_t>(index)];
    if (!found_.expect(own().awaited[static_cast<size_t>(index)] != 0, "load {} was not waited for", index) ||
        !found_.expect(index >= own().released, "load {} was released before", index) ||
        !found_.expect(load.phase == found_.phase, "load {} is of {}", index, name_of(phase_at(load.phase))))
      return nullptr;
    return &load;
  }

  // ---- steps

  void take(const WorkerStep& step) {
    CheckedWorker& worker = own();
    switch (step.kind) {
      case StepKind::wait: return memory_.wait(found_.worker, step.id);
      case StepKind::arrive: return memory_.arrive(found_.worker, step.id);
      case StepKind::read:
        worker.read.push_back(step.buffer);
        found_.expect_none(memory_.read(found_.worker, step.buffer, {step.begin, step.end},
                                        worker.inbox[static_cast<size_t>(step.buffer)]));
        return;
      case StepKind::await:
        if (found_.expect(step.id >= worker.released, "load {} was released before", step.id))
          worker.awaited[static_cast<size_t>(step.id)] = 1;
        return;
      case StepKind::release:
        if (use(step.id) != nullptr &&
            found_.expect(step.id == worker.released, "load {} is released before load {}", step.id, worker.released))
          ++worker.released;
        return;
      case StepKind::append:
      case StepKind::start:
      case StepKind::attend:
      case StepKind::attend_own:
      case StepKind::write_states: return take_of_attention(step);
      case StepKind::merge: return merge(step);
      default: return take_of_product(step);
    }
  }

  void take_of_product(const WorkerStep& step) {
    CheckedWorker& worker = own();
    const Phase& phase = phase_at(found_.phase);
    if (!found_.expect(phase.multiplies(), "is a step of products")) return;
    if (step.kind == StepKind::prologue) {
      const int64_t cols = partition_.matrix_of(phase).tiles.cols;
      if (!found_.expect(step.begin >= 0 && step.begin <= step.end && step.end <= cols, "columns {}..{} are not of {}",
                         step.begin, step.end, cols) ||
          !found_.expect_none(needs_.of_prologue(found_.phase, {step.begin, step.end}, worker.inbox)))
        return;
      worker.has_prologue = true;
      worker.columns = {step.begin, step.end};
      return;
    }
    if (!found_.expect(worker.has_prologue, "comes before the prologue")) return;
    if (step.kind == StepKind::multiply) return multiply(step);
    if (step.kind == StepKind::write_residual) {
      if (!found_.expect(phase.writes_residual && step.buffer == phase.residual_to, "{} is not written by this phase",
                         to_string(step.buffer)))
        return;
      for (int64_t cell = step.begin; cell < step.end; ++cell)
        if (!found_.expect_none(memory_.write(found_.worker, step.buffer, cell, {found_.phase, cell, 0, 0}))) return;
      return;
    }
    if (!found_.expect(step.buffer == phase.writes, "{} is not written by this phase", to_string(step.buffer)) ||
        !found_.expect(!worker.sums.empty(), "there are no sums"))
      return;
    found_.expect_none(memory_.write(found_.worker, step.buffer, step.begin,
                                     {found_.phase, worker.band, worker.sums.begin, worker.sums.end}));
    worker.sums = {};
  }

  void multiply(const WorkerStep& step) {
    CheckedWorker& worker = own();
    const Load* load = use(step.id);
    if (load == nullptr) return;
    const TiledMatrix& tiles = partition_.matrix_of(phase_at(found_.phase)).tiles;
    if (!found_.expect(step.begin >= load->begin && step.begin < step.end && step.end <= load->end,
                       "tiles {}..{} are not in load {}, which has {}..{}", step.begin, step.end, step.id, load->begin,
                       load->end))
      return;
    const int64_t band = tiles.band_of(step.begin), first = tiles.in_band(step.begin);
    const int64_t end = first + step.end - step.begin;
    if (!found_.expect(step.begin / tiles.strip_tiles() == (step.end - 1) / tiles.strip_tiles(),
                       "tiles {}..{} are of several bands or panels", step.begin, step.end) ||
        !found_.expect(worker.columns.begin <= first * tiles.tile_cols &&
                           std::min(end * tiles.tile_cols, tiles.cols) <= worker.columns.end,
                       "tiles {}..{} multiply columns that the prologue has not made", step.begin, step.end) ||
        !found_.expect(worker.sums.empty() || (worker.band == band && worker.sums.end == first),
                       "tiles {}..{} do not follow what is in the sums: tiles {}..{} of band {}", step.begin, step.end,
                       worker.sums.begin, worker.sums.end, worker.band))
      return;
    worker.band = band;
    worker.sums = {worker.sums.empty() ? first : worker.sums.begin, end};
    for (int64_t tile = step.begin; tile < step.end; ++tile)
      if (!found_.expect(uses_[static_cast<size_t>(found_.phase)].used[static_cast<size_t>(tile)]++ == 0,
                         "tile {} was multiplied before", tile))
        return;
  }

  void take_of_attention(const WorkerStep& step) {
    CheckedWorker& worker = own();
    if (!found_.expect(phase_at(found_.phase).attends(), "is a step of attention")) return;
    const auto read_heads = [&](Buffer buffer, int64_t begin, int64_t end) {
      return found_.expect_none(needs_.of_heads(found_.phase, buffer, begin, end, worker.inbox));
    };
    if (step.kind == StepKind::append) {
      const AttentionItem* item = item_at(step.id);
      if (!found_.expect(item != nullptr, "item {} is not there", step.id) ||
          !found_.expect(step.begin >= item->row_begin && step.begin < step.end && step.end <= item->row_end,
                         "rows {}..{} are not of item {}, which has {}..{}", step.begin, step.end, step.id,
                         item->row_begin, item->row_end) ||
          !read_heads(Buffer::key, item->kv_head, item->kv_head + 1) ||
          !read_heads(Buffer::value, item->kv_head, item->kv_head + 1))
        return;
      for (int64_t row = step.begin; row < step.end; ++row)
        found_.expect(
            uses_[static_cast<size_t>(found_.phase)].used[static_cast<size_t>(item->kv_head * num_rows_ + row)]++ == 0,
            "row {} of KV head {} was appended before", row, item->kv_head);
      return;
    }
    if (step.kind == StepKind::start) {
      const AttentionItem* item = item_at(step.id);
      if (!found_.expect(item != nullptr, "item {} is not there", step.id) ||
          !read_heads(Buffer::query, item->kv_head * group_, (item->kv_head + 1) * group_))
        return;
      worker.item = step.id;
      worker.tokens = item->kv_begin;
      return;
    }
    if (!found_.expect(worker.item != kNothing, "no item was started")) return;
    const AttentionItem& item = *item_at(worker.item);
    if (step.kind == StepKind::write_states) return write_states(step, item);
    const bool is_own = step.kind == StepKind::attend_own;
    if (!found_.expect((is_own ? step.id : step.count) == worker.item, "is of another item than {}, which was started",
                       worker.item) ||
        !found_.expect(step.begin == worker.tokens && step.begin < step.end && step.end <= item.kv_end,
                       "tokens {}..{} do not follow {}, of item {} with {}..{}", step.begin, step.end, worker.tokens,
                       worker.item, item.kv_begin, item.kv_end))
      return;
    if (is_own) {
      if (!found_.expect(step.begin >= cached_of(item), "token {} is not of this step", step.begin) ||
          !read_heads(Buffer::key, item.kv_head, item.kv_head + 1) ||
          !read_heads(Buffer::value, item.kv_head, item.kv_head + 1))
        return;
    } else {
      const Load* load = use(step.id);
      if (load == nullptr ||
          !found_.expect(load->item == worker.item && step.begin >= load->begin && step.end <= load->end,
                         "tokens {}..{} are not in load {}, which has {}..{} of item {}", step.begin, step.end, step.id,
                         load->begin, load->end, load->item))
        return;
    }
    worker.tokens = step.end;
  }

  void write_states(const WorkerStep& step, const AttentionItem& item) {
    const int64_t states = item.num_states(group_);
    if (!found_.expect(own().tokens == item.kv_end, "item {} has attended tokens up to {} of {}", own().item,
                       own().tokens, item.kv_end) ||
        !found_.expect(
            step.buffer == Shared::states && step.begin == item.first_state && step.end == item.first_state + states,
            "{} cells {}..{} are not those of item {}, states {}..{}", to_string(step.buffer), step.begin, step.end,
            own().item, item.first_state, item.first_state + states))
      return;
    for (int64_t cell = step.begin; cell < step.end; ++cell)
      if (!found_.expect_none(memory_.write(found_.worker, Shared::states, cell, {found_.phase, cell, 0, 0}))) return;
  }

  void merge(const WorkerStep& step) {
    const Phase& phase = phase_at(found_.phase);
    if (!found_.expect(phase.merges() && step.buffer == phase.writes, "is a step of merges into {}",
                       to_string(Shared::attended)) ||
        !found_.expect(step.begin >= 0 && step.begin < step.end && step.end <= program_.num_qo_heads,
                       "query heads {}..{} are not of {}", step.begin, step.end, program_.num_qo_heads) ||
        !found_.expect_none(needs_.of_merge(found_.phase, {step.begin, step.end}, own().inbox)))
      return;
    for (int64_t cell = step.begin * partition_.head_cells(); cell < step.end * partition_.head_cells(); ++cell)
      if (!found_.expect_none(memory_.write(found_.worker, phase.writes, cell, {found_.phase, cell, 0, 0}))) return;
  }

  // ---- what all have done together

  void check_uses() {
    found_.worker = found_.step = found_.load = kNothing;
    for (found_.phase = 0; found_.phase < schedule_.num_phases; ++found_.phase) {
      const Phase& phase = phase_at(found_.phase);
      const std::vector<char>& used = uses_[static_cast<size_t>(found_.phase)].used;
      const auto unused = std::ranges::find(used, 0) - used.begin();
      if (unused == static_cast<std::ptrdiff_t>(used.size())) continue;
      if (phase.attends())
        found_.expect(false, "{}: row {} of KV head {} is appended by nobody", name_of(phase), unused % num_rows_,
                      unused / num_rows_);
      else
        found_.expect(false, "{}: tile {} is multiplied by nobody", name_of(phase), unused);
    }
    --found_.phase;
    if (phase_at(found_.phase).multiplies()) found_.expect_none(needs_.of_result(found_.phase));
    for (const CheckedWorker& worker : workers_)
      found_.expect(worker.sums.empty(), "the sums of band {} were not written", worker.band);
  }

  const Partition& partition_;
  const Program& program_;
  const Schedule& schedule_;
  const int group_ = program_.num_qo_heads / program_.num_kv_heads;
  const int num_rows_ = num_rows_of(schedule_);
  Findings found_;
  CheckedMemory memory_;
  CheckedNeeds needs_;
  std::vector<CheckedWorker> workers_;
  std::vector<Uses> uses_;
};

}  // namespace

std::vector<Problem> check(const Partition& partition, const Schedule& schedule, size_t most) {
  return Checker(partition, schedule, most).run();
}

void require_sound(const Partition& partition, const Schedule& schedule) {
  const std::vector<Problem> problems = check(partition, schedule, 1);
  ensure(problems.empty(), "a fused step's schedule is wrong: {}", problems.empty() ? "" : problems[0].text);
}

}  // namespace weft::decode::fused
