#include "decode/fused/check_steps.h"

#include <algorithm>

namespace weft::decode::fused {

bool CheckedSteps::begin_phase(int phase) {
  CheckedWorker& worker = state_.own();
  if (!found_.expect(phase >= 0 && phase < schedule_.num_phases && phase > worker.phase,
                     "phase {} comes behind phase {}", phase, worker.phase) ||
      !found_.expect(worker.sums.empty(), "the sums of band {} were not written", worker.band))
    return false;
  forget_what_was_read();
  state_.memory.begin_phase(found_.worker, !state_.phase_at(phase).multiplies());
  worker.phase = phase;
  worker.has_prologue = false;
  worker.item = kNothing;
  return true;
}

void CheckedSteps::take(const WorkerStep& step) {
  CheckedWorker& worker = state_.own();
  if ((step.phase < 0 || step.phase != worker.phase) && !begin_phase(step.phase)) return;
  switch (step.kind) {
    case StepKind::wait: return state_.memory.wait(found_.worker, step.id);
    case StepKind::arrive: return state_.memory.arrive(found_.worker, step.id);
    case StepKind::read:
      if (found_.expect_none(state_.memory.read(found_.worker, step.buffer, {step.begin, step.end},
                                                worker.inbox[static_cast<size_t>(step.buffer)])))
        worker.read.emplace_back(step.buffer, Range{step.begin, step.end});
      return;
    case StepKind::await:
      if (found_.expect(step.id >= worker.released, "load {} was released before", step.id))
        worker.awaited[static_cast<size_t>(step.id)] = 1;
      return;
    case StepKind::release:
      if (loads_.use(step.id) != nullptr &&
          found_.expect(step.id == worker.released, "load {} is released before load {}", step.id, worker.released))
        ++worker.released;
      return;
    case StepKind::append:
    case StepKind::start:
    case StepKind::attend:
    case StepKind::attend_own:
    case StepKind::write_states: return take_of_attention(step);
    case StepKind::merge: return merge(step);
    case StepKind::reduce: return reduce(step);
    default: return take_of_product(step);
  }
}

// An item of attention, or a merge, is behind what it has read itself, and behind nothing of its neighbours: on a card
// they run side by side.
void CheckedSteps::end_section() {
  forget_what_was_read();
  state_.memory.end_section(found_.worker);
}

void CheckedSteps::forget_what_was_read() {
  CheckedWorker& worker = state_.own();
  for (const auto& [shared, cells] : worker.read)
    std::fill(worker.inbox[static_cast<size_t>(shared)].begin() + cells.begin,
              worker.inbox[static_cast<size_t>(shared)].begin() + cells.end, kNothing);
  worker.read.clear();
}

void CheckedSteps::take_of_product(const WorkerStep& step) {
  CheckedWorker& worker = state_.own();
  const Phase& phase = state_.phase_at(found_.phase);
  if (!found_.expect(phase.multiplies(), "is a step of products")) return;
  if (step.kind == StepKind::prologue) {
    const int64_t cols = partition_.matrix_of(phase).tiles.cols;
    if (!found_.expect(step.begin >= 0 && step.begin <= step.end && step.end <= cols, "columns {}..{} are not of {}",
                       step.begin, step.end, cols) ||
        !found_.expect_none(state_.needs.of_prologue(found_.phase, {step.begin, step.end}, worker.inbox)))
      return;
    worker.has_prologue = true;
    worker.columns = {step.begin, step.end};
    return;
  }
  if (!found_.expect(worker.has_prologue, "comes before the prologue")) return;
  if (step.kind == StepKind::multiply) return multiply(step);
  if (step.kind == StepKind::keep) {
    if (!found_.expect(phase.embeds(), "the prologue makes no residual") ||
        !found_.expect(
            step.begin >= 0 && step.begin <= step.end && step.end <= static_cast<int64_t>(worker.residual.size()),
            "cells {}..{} are not of {}", step.begin, step.end, worker.residual.size()))
      return;
    std::fill(worker.residual.begin() + step.begin, worker.residual.begin() + step.end, found_.phase);
    return;
  }
  if (!found_.expect(step.buffer == phase.writes, "{} is not written by this phase", to_string(step.buffer)) ||
      !found_.expect(!worker.sums.empty(), "there are no sums"))
    return;
  found_.expect_none(state_.memory.write(found_.worker, step.buffer, step.begin,
                                         {found_.phase, worker.band, worker.sums.begin, worker.sums.end}));
  worker.sums = {};
}

void CheckedSteps::multiply(const WorkerStep& step) {
  CheckedWorker& worker = state_.own();
  const Load* load = loads_.use(step.id);
  if (load == nullptr) return;
  const TiledMatrix& tiles = partition_.matrix_of(state_.phase_at(found_.phase)).tiles;
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
    if (!found_.expect(state_.uses[static_cast<size_t>(found_.phase)].used[static_cast<size_t>(tile)]++ == 0,
                       "tile {} was multiplied before", tile))
      return;
}

// The phase that has left the residual as this one finds it.
int CheckedSteps::residual_writer() const {
  int writer = found_.phase - 1;
  while (writer >= 0 && !state_.phase_at(writer).adds() && !state_.phase_at(writer).embeds()) --writer;
  return writer;
}

void CheckedSteps::reduce(const WorkerStep& step) {
  CheckedWorker& worker = state_.own();
  const Phase& phase = state_.phase_at(found_.phase);
  if (!found_.expect(phase.reduces() && step.buffer == phase.writes, "is a step of reductions into {}",
                     to_string(phase.writes)) ||
      !found_.expect(step.begin >= 0 && step.begin + 1 == step.end && step.end <= state_.memory.num_cells(step.buffer),
                     "cells {}..{} are not one of {}", step.begin, step.end, state_.memory.num_cells(step.buffer)) ||
      !found_.expect_none(state_.needs.of_reduction(found_.phase, step.begin, worker.inbox)))
    return;
  const auto cell = static_cast<size_t>(step.begin);
  if (phase.norms_sums && !found_.expect(worker.kept_sums[cell] == found_.phase - 1,
                                         "the worker has not kept the sums of cell {}", step.begin))
    return;
  if (phase.adds() && !found_.expect(worker.residual[cell] == residual_writer(),
                                     "the worker has cell {} of the residual of phase {}; needed is that of phase {}",
                                     step.begin, worker.residual[cell], residual_writer()))
    return;
  if (phase.adds()) worker.residual[cell] = found_.phase;
  if (phase.writes == Shared::squares) worker.kept_sums[cell] = found_.phase;
  if (!found_.expect(state_.uses[static_cast<size_t>(found_.phase)].used[cell]++ == 0, "cell {} was made before",
                     step.begin) ||
      !found_.expect_none(
          state_.memory.write(found_.worker, step.buffer, step.begin, {found_.phase, step.begin, 0, 0})))
    return;
  end_section();
}

void CheckedSteps::take_of_attention(const WorkerStep& step) {
  CheckedWorker& worker = state_.own();
  if (!found_.expect(state_.phase_at(found_.phase).attends(), "is a step of attention")) return;
  const auto read_heads = [&](Buffer buffer, int64_t begin, int64_t end) {
    return found_.expect_none(state_.needs.of_heads(found_.phase, buffer, begin, end, worker.inbox));
  };
  if (step.kind == StepKind::append) {
    const AttentionItem* item = state_.item_at(step.id);
    if (!found_.expect(item != nullptr, "item {} is not there", step.id) ||
        !found_.expect(step.begin >= item->row_begin && step.begin < step.end && step.end <= item->row_end,
                       "rows {}..{} are not of item {}, which has {}..{}", step.begin, step.end, step.id,
                       item->row_begin, item->row_end) ||
        !read_heads(Buffer::key, item->kv_head, item->kv_head + 1) ||
        !read_heads(Buffer::value, item->kv_head, item->kv_head + 1))
      return;
    for (int64_t row = step.begin; row < step.end; ++row)
      found_.expect(state_.uses[static_cast<size_t>(found_.phase)]
                            .used[static_cast<size_t>(item->kv_head * state_.num_rows + row)]++ == 0,
                    "row {} of KV head {} was appended before", row, item->kv_head);
    return;
  }
  if (step.kind == StepKind::start) {
    const AttentionItem* item = state_.item_at(step.id);
    if (!found_.expect(item != nullptr, "item {} is not there", step.id) ||
        !read_heads(Buffer::query, item->kv_head * state_.group, (item->kv_head + 1) * state_.group))
      return;
    worker.item = step.id;
    worker.tokens = item->kv_begin;
    return;
  }
  if (!found_.expect(worker.item != kNothing, "no item was started")) return;
  const AttentionItem& item = *state_.item_at(worker.item);
  if (step.kind == StepKind::write_states) return write_states(step, item);
  const bool is_own = step.kind == StepKind::attend_own;
  if (!found_.expect((is_own ? step.id : step.count) == worker.item, "is of another item than {}, which was started",
                     worker.item) ||
      !found_.expect(step.begin == worker.tokens && step.begin < step.end && step.end <= item.kv_end,
                     "tokens {}..{} do not follow {}, of item {} with {}..{}", step.begin, step.end, worker.tokens,
                     worker.item, item.kv_begin, item.kv_end))
    return;
  if (is_own) {
    if (!found_.expect(step.begin >= state_.cached_of(item), "token {} is not of this step", step.begin) ||
        !read_heads(Buffer::key, item.kv_head, item.kv_head + 1) ||
        !read_heads(Buffer::value, item.kv_head, item.kv_head + 1))
      return;
  } else {
    const Load* load = loads_.use(step.id);
    if (load == nullptr ||
        !found_.expect(load->item == worker.item && step.begin >= load->begin && step.end <= load->end,
                       "tokens {}..{} are not in load {}, which has {}..{} of item {}", step.begin, step.end, step.id,
                       load->begin, load->end, load->item))
      return;
  }
  worker.tokens = step.end;
}

void CheckedSteps::write_states(const WorkerStep& step, const AttentionItem& item) {
  const int64_t states = item.num_states(state_.group);
  if (!found_.expect(state_.own().tokens == item.kv_end, "item {} has attended tokens up to {} of {}",
                     state_.own().item, state_.own().tokens, item.kv_end) ||
      !found_.expect(
          step.buffer == Shared::states && step.begin == item.first_state && step.end == item.first_state + states,
          "{} cells {}..{} are not those of item {}, states {}..{}", to_string(step.buffer), step.begin, step.end,
          state_.own().item, item.first_state, item.first_state + states))
    return;
  for (int64_t cell = step.begin; cell < step.end; ++cell)
    if (!found_.expect_none(state_.memory.write(found_.worker, Shared::states, cell, {found_.phase, cell, 0, 0})))
      return;
  end_section();
}

void CheckedSteps::merge(const WorkerStep& step) {
  const Phase& phase = state_.phase_at(found_.phase);
  if (!found_.expect(phase.merges() && step.buffer == phase.writes, "is a step of merges into {}",
                     to_string(Shared::attended)) ||
      !found_.expect(step.begin >= 0 && step.begin < step.end && step.end <= state_.memory.num_cells(phase.writes),
                     "cells {}..{} are not of {}", step.begin, step.end, state_.memory.num_cells(phase.writes)) ||
      !found_.expect_none(state_.needs.of_merge(found_.phase, {step.begin, step.end}, state_.own().inbox)))
    return;
  for (int64_t cell = step.begin; cell < step.end; ++cell)
    if (!found_.expect_none(state_.memory.write(found_.worker, phase.writes, cell, {found_.phase, cell, 0, 0}))) return;
  end_section();
}

}  // namespace weft::decode::fused
