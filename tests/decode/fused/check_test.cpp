// What the checker says of each way in which a schedule can be wrong.
#include "decode/fused/check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "decode/fused/check_memory.h"
#include "tests/decode/fused/some_step.h"

namespace weft::testing {
namespace {

class FusedCheck : public ::testing::Test {
 protected:
  static Partition with_tags(Partition partition) {
    partition.machine.edge = EdgeForm::tagged;
    return partition;
  }
  std::string problem_of(const std::function<void(Schedule&)>& change) const { return problem_in(partition_, change); }
  std::string problem_in(const Partition& partition, const std::function<void(Schedule&)>& change) const {
    Schedule schedule = schedule_of(partition, some_.step);
    change(schedule);
    const std::vector<Problem> problems = check(partition, schedule, 1);
    return problems.empty() ? "none" : problems[0].text;
  }
  static WorkerStep& find(Schedule& schedule, int worker, StepKind kind, int phase) {
    std::vector<WorkerStep>& steps = schedule.workers[static_cast<size_t>(worker)].steps;
    const auto found =
        std::ranges::find_if(steps, [&](const WorkerStep& step) { return step.kind == kind && step.phase == phase; });
    ensure(found != steps.end(), "worker {} has no {} in phase {}", worker, to_string(kind), phase);
    return *found;
  }
  static void drop(Schedule& schedule, int worker, StepKind kind, int phase) {
    std::vector<WorkerStep>& steps = schedule.workers[static_cast<size_t>(worker)].steps;
    const auto found =
        std::ranges::find_if(steps, [&](const WorkerStep& step) { return step.kind == kind && step.phase == phase; });
    if (found != steps.end()) steps.erase(found);
  }

  const Partition partition_ = partition_of(
      gemma_small(), WeightType::f32, {.workers = 3, .ring_bytes = 24 << 10, .entry_bytes = 8 << 10, .kv_chunk = 32});
  const Partition tagged_ = with_tags(partition_);
  const SomeStep some_{{{2, 40}}};
};

TEST_F(FusedCheck, ProvesWhatIsRight) {
  EXPECT_EQ(problem_of([](Schedule&) {}), "none");
}

TEST_F(FusedCheck, NamesReadsThatAreNotBehindTheirWriters) {
  const std::string first = problem_of([](Schedule& s) { drop(s, 0, StepKind::wait, 6); });
  EXPECT_TRUE(has(first, "worker 0, layer 0: gate_up, step ") &&
              has(first, "(read): cell 2 of normed is not behind a wait on its writer, worker 1"))
      << first;
  // In one order all may have been written: that is not enough.
  bool is_named = false;
  for (int phase = 1; phase < 20; ++phase)
    is_named = is_named || has(problem_of([&](Schedule& s) { drop(s, 2, StepKind::wait, phase); }),
                               "is not behind a wait on its writer, worker ");
  EXPECT_TRUE(is_named);
}

TEST_F(FusedCheck, NamesCountersThatAreNotExact) {
  EXPECT_TRUE(has(problem_of([](Schedule& s) { find(s, 2, StepKind::wait, 3).count = 2; }),
                  "waits for 2 arrivals at counter 2, and 3 are made"));
  EXPECT_TRUE(has(problem_of([](Schedule& s) { drop(s, 0, StepKind::arrive, 1); }),
                  "waits for 3 arrivals at counter 1, and 2 are made"));
}

TEST_F(FusedCheck, NamesWaitsInACircle) {
  const std::string text = problem_of([](Schedule& s) {
    for (WorkerSchedule& worker : s.workers) {
      auto arrive = std::ranges::find(worker.steps, StepKind::arrive, &WorkerStep::kind);
      auto wait = std::ranges::find(worker.steps, StepKind::wait, &WorkerStep::kind);
      std::swap(*arrive, *wait);
      std::swap(arrive->phase, wait->phase);
    }
  });
  EXPECT_TRUE(has(text, "waits for ever: 0 of 3 arrive at counter 0")) << text;
}

TEST_F(FusedCheck, NamesEntriesThatAreInUse) {
  const auto late = [](Schedule& s) -> Load& {
    return *std::ranges::find_if(s.workers[1].loads, [](const Load& load) { return load.after > 2; });
  };
  EXPECT_TRUE(has(problem_of([&](Schedule& s) { late(s).after = 0; }), ", which may be in use"));
  EXPECT_TRUE(has(problem_of([&](Schedule& s) { late(s).at += 4096; }), "are not of a ring") ||
              has(problem_of([&](Schedule& s) { late(s).at += 4096; }), "which may be in use"));
  EXPECT_TRUE(has(problem_of([](Schedule& s) { drop(s, 0, StepKind::await, 3); }), "was not waited for"));
  EXPECT_TRUE(has(problem_of([](Schedule& s) { s.workers[0].loads[3].after = 4; }),
                  "waits for ever: load 3 is issued behind something that comes after this step"));
}

// There would be room for its bytes.
TEST_F(FusedCheck, NamesEntriesThatAreMoreThanTheRingHas) {
  Partition two = partition_;
  two.machine.max_entries = 2, two.machine.ring_bytes = 1 << 20;
  const auto issued_behind = [&](int fewer) {
    return problem_in(two, [&](Schedule& s) { s.workers[1].loads[4].after -= fewer; });
  };
  EXPECT_EQ(issued_behind(0), "none");
  EXPECT_TRUE(has(issued_behind(1), "is issued behind 2 releases; with 2 entries in use at most it is behind 3 to 4"))
      << issued_behind(1);
}

// Slots then say that each band has all its tiles, once.
TEST_F(FusedCheck, NamesSumsThatGoOnInAnotherBand) {
  const Partition one = partition_of(gemma_small(), WeightType::f32,
                                     {.workers = 1, .ring_bytes = 64 << 10, .entry_bytes = 32 << 10, .kv_chunk = 32});
  const std::string text = problem_in(one, [](Schedule& s) {
    std::vector<WorkerStep>& steps = s.workers[0].steps;
    const auto first = std::ranges::find(steps, StepKind::multiply, &WorkerStep::kind);
    const std::vector<WorkerStep> of(first, first + 4);
    ASSERT_TRUE(of[0].end - of[0].begin == 2 && of[2].begin == of[0].end && of[2].end == of[2].begin + 2 &&
                of[2].id == of[0].id && of[1].kind == StepKind::write_sums && of[3].kind == StepKind::write_sums);
    const auto tile = [&](int64_t at) {
      WorkerStep step = of[0];
      step.begin = at, step.end = at + 1;
      return step;
    };
    const int64_t a = of[0].begin, b = of[2].begin;
    const WorkerStep crossed[] = {tile(a), tile(b + 1), of[3], tile(b), tile(a + 1), of[1]};
    steps.insert(steps.erase(first, first + 4), std::begin(crossed), std::end(crossed));
  });
  EXPECT_TRUE(has(text, "do not follow what is in the sums: tiles 0..1 of band 0")) << text;
}

TEST_F(FusedCheck, NamesTilesThatAreReadTwiceOrNever) {
  EXPECT_TRUE(has(problem_of([](Schedule& s) { s.workers[2].loads.push_back(s.workers[1].loads[0]); }), "load"));
  EXPECT_TRUE(has(problem_of([](Schedule& s) {
                    Load& load = s.workers[1].loads[0];
                    load.begin -= 1, load.end -= 1;
                  }),
                  "tile"));
}

// All tiles of the band are there, and the last piece ends with the last of them: only the order of sums is another.
TEST_F(FusedCheck, NamesPiecesOfABandThatChangePlaces) {
  const Partition many =
      partition_of(gemma_small(), WeightType::f32,
                   {.workers = 40, .tile_cols = 32, .ring_bytes = 24 << 10, .entry_bytes = 8 << 10, .kv_chunk = 32});
  constexpr int kOutput = 3;
  const std::vector<int32_t>& first_slot = many.matrix_of(many.phases.all[static_cast<size_t>(kOutput)]).first_slot;
  const auto band = std::ranges::adjacent_find(first_slot, [](int32_t a, int32_t b) { return b - a >= 3; });
  ASSERT_NE(band, first_slot.end());
  const std::string text = problem_in(many, [&](Schedule& s) {
    for (WorkerSchedule& worker : s.workers)
      for (WorkerStep& step : worker.steps)
        if (step.kind == StepKind::write_sums && step.phase == kOutput && step.begin - *band < 2 && step.begin >= *band)
          step.begin = 2 * *band + 1 - step.begin, step.end = step.begin + 1;
  });
  EXPECT_TRUE(has(text, "needed are tiles 0 on of band")) << text;
}

TEST_F(FusedCheck, NamesSlotsThatHoldSomethingElse) {
  const std::string text = problem_of([](Schedule& s) {
    WorkerStep& one = find(s, 0, StepKind::write_sums, 3);
    WorkerStep& other = find(s, 2, StepKind::write_sums, 3);
    std::swap(one.begin, other.begin), std::swap(one.end, other.end);
  });
  EXPECT_TRUE(has(text, "of output holds tiles")) << text;
}

TEST_F(FusedCheck, NamesWhatWasNotRead) {
  EXPECT_TRUE(has(problem_of([](Schedule& s) { find(s, 1, StepKind::read, 6).end -= 1; }), "was not read"));
  EXPECT_TRUE(has(problem_of([](Schedule& s) { drop(s, 1, StepKind::read, 2); }), "of states was not read"));
  EXPECT_TRUE(
      has(problem_of([](Schedule& s) { drop(s, 1, StepKind::merge, 2); }), "nobody has written cell 2 of attended"));
  const std::string sums = problem_of([](Schedule& s) { drop(s, 1, StepKind::read, 4); });
  EXPECT_TRUE(has(sums, "(reduce): slot ") && has(sums, "of output was not read")) << sums;
  const std::string text = problem_of([](Schedule& s) {
    for (int worker = 0; worker < 3; ++worker) drop(s, worker, StepKind::append, 1);
  });
  EXPECT_TRUE(has(text, "layer 0: attention: row 0 of KV head 0 is appended by nobody")) << text;
}

TEST_F(FusedCheck, ProvesTaggedSchedulesWithoutAnyCounter) {
  EXPECT_EQ(problem_in(tagged_,
                       [](Schedule& s) {
                         EXPECT_EQ(s.num_counters, 0);
                         for (const WorkerSchedule& worker : s.workers)
                           for (const WorkerStep& step : worker.steps)
                             EXPECT_TRUE(step.kind != StepKind::wait && step.kind != StepKind::arrive);
                       }),
            "none");
  EXPECT_TRUE(has(problem_in(tagged_, [](Schedule& s) { find(s, 1, StepKind::release, 0).kind = StepKind::arrive; }),
                  "counter 0 is not there"));
}

TEST_F(FusedCheck, NamesTagsThatNeverCome) {
  const std::string nobody = problem_in(tagged_, [](Schedule& s) { drop(s, 1, StepKind::merge, 2); });
  EXPECT_TRUE(has(nobody, "layer 0: output, step ") &&
              has(nobody, "(read): waits for ever: for cell 2 of attended, which nobody writes"))
      << nobody;
  const std::string early = problem_in(tagged_, [](Schedule& s) { find(s, 1, StepKind::read, 14).id = 2; });
  EXPECT_TRUE(has(early, "layer 1: output, step ") &&
              has(early, "of attended as phase 2 writes it; it holds what phase 13 has written"))
      << early;
  const std::string late = problem_in(tagged_, [](Schedule& s) { find(s, 1, StepKind::read, 3).id = 13; });
  EXPECT_TRUE(has(late, "waits for ever: for cell ") && has(late, "of attended as phase 13 writes it")) << late;
}

TEST_F(FusedCheck, NamesCellsThatAreOverwrittenWhileOthersMayReadThem) {
  for (const Partition* partition : {&tagged_, &partition_}) {
    CheckedMemory memory(*partition, schedule_of(*partition, some_.step));
    std::vector<int> inbox(100);
    memory.begin_phase(0, false);
    EXPECT_EQ(memory.write(0, Shared::normed, 0, {.phase = 0}), "");
    if (partition == &partition_) memory.arrive(0, 0), memory.wait(1, 0);
    EXPECT_EQ(memory.read(1, Shared::normed, {0, 1}, inbox), "");
    const std::string text = memory.write(0, Shared::normed, 0, {.phase = 2});
    EXPECT_TRUE(has(text, "of normed is written before worker 1 is known to have read what lay there")) << text;
  }
}

// Items and merges of a worker run side by side: who has read what one of them wrote is behind it, and not behind its
// neighbours.
TEST_F(FusedCheck, FollowsItemsOneByOne) {
  const auto write_again = [&](bool reads_first_item) {
    CheckedMemory memory(tagged_, schedule_of(tagged_, some_.step));
    std::vector<int> inbox(100);
    const auto expect_none = [](const std::string& problem) { EXPECT_EQ(problem, ""); };
    memory.begin_phase(0, false);
    expect_none(memory.write(0, Shared::qkv, 0, {.phase = 0}));
    memory.begin_phase(1, true);
    for (const int item : {0, 1}) {  // the first one reads the cell
      if (item == 0) expect_none(memory.read(1, Shared::qkv, {0, 1}, inbox));
      expect_none(memory.write(1, Shared::states, item, {.phase = 1, .what = item}));
      memory.end_section(1);
    }
    memory.begin_phase(0, true);
    expect_none(memory.read(0, Shared::states, reads_first_item ? Range{0, 2} : Range{1, 2}, inbox));
    expect_none(memory.write(0, Shared::attended, 0, {.phase = 2}));
    memory.end_section(0);
    memory.begin_phase(0, false);
    return memory.write(0, Shared::qkv, 0, {.phase = 6});
  };
  EXPECT_EQ(write_again(true), "");
  EXPECT_EQ(write_again(false),
            "cell 0 of qkv is written before an item or a merge is known to have read what lay there");
}

TEST_F(FusedCheck, NamesWhatAWorkerHasNotKept) {
  const auto drop_all = [](StepKind kind) {
    return [kind](Schedule& s) {
      std::erase_if(s.workers[0].steps, [&](const WorkerStep& step) { return step.kind == kind; });
    };
  };
  const std::string text = problem_in(partition_, drop_all(StepKind::keep));
  EXPECT_TRUE(has(text, "of the residual of phase -1; needed is that of phase 0")) << text;

  // Another worker makes the squares, and this one has the sums of the layer before.
  constexpr int kSquares = 4 + 11;  // of the second layer
  ASSERT_EQ(partition_.phases.all[kSquares].writes, Shared::squares);
  const std::string kept = problem_of([](Schedule& s) {
    const auto of_phase = [&](size_t worker) {
      std::vector<WorkerStep>& steps = s.workers[worker].steps;
      return std::ranges::find_if(
          steps, [](const WorkerStep& step) { return step.phase == kSquares && step.kind != StepKind::wait; });
    };
    const auto read = of_phase(0), to = of_phase(1);
    ASSERT_TRUE(read->kind == StepKind::read && read[1].kind == StepKind::reduce);
    s.workers[1].steps.insert(to, read, read + 2);
    s.workers[0].steps.erase(read, read + 2);
  });
  EXPECT_TRUE(has(kept, "layer 1: normed of output, step ") && has(kept, "the worker has not kept the sums of cell 0"))
      << kept;
}

// What a phase reads follows from its flags, so a schedule that is made with them is no proof of them.
TEST_F(FusedCheck, NamesPhasesThatAreNotThePrograms) {
  const auto problem_with = [&](const std::function<void(Phases&)>& change) {
    Partition partition = partition_;
    change(partition.phases);
    return problem_in(partition, [](Schedule&) {});
  };
  EXPECT_EQ(problem_with([](Phases& phases) { phases.all[6].is_normed = false; }),
            "phase 6 of the partition is layer 0: gate_up (operations 10, 10, 11 into gate_up); the program's is layer "
            "0: gate_up (operations 10, 10, 11 into gate_up, normed)");
  const std::string kept = problem_with([](Phases& phases) { phases.all[4].norms_sums = true; });
  EXPECT_TRUE(has(kept, "layer 0: squares of output") && has(kept, "into squares, of sums that are kept")) << kept;
  Partition shorter = partition_;
  const Schedule schedule = schedule_of(partition_, some_.step);
  shorter.phases.all.pop_back();
  const std::vector<Problem> problems = check(shorter, schedule, 1);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_EQ(problems[0].text,
            "the partition has 44 phases, 11 of each of 4 layers, which repeat after 2; the program has 45 phases, 11 "
            "of each of 4 layers, which repeat after 2");
}

TEST_F(FusedCheck, NamesMatricesThatAreNotThePrograms) {
  Partition fewer = partition_;
  const auto down = std::ranges::find(fewer.matrices, WeightRole::down, &MatrixPartition::role);
  down->tiles.rows -= 1;  // the last band's padding
  EXPECT_EQ(problem_in(fewer, [](Schedule&) {}),
            "layer 0: down: the partition has a matrix of 95 x 160; the program's is 96 x 160");
  down->tiles.rows += 1, down->tiles.cols -= 1;  // the last tile's
  EXPECT_EQ(problem_in(fewer, [](Schedule&) {}),
            "layer 0: down: the partition has a matrix of 96 x 159; the program's is 96 x 160");
}

// A worker that reads what nobody asks of it may come too late: what it waits for is overwritten.
TEST_F(FusedCheck, NamesReadsThatNobodyWaitsFor) {
  const Partition partition =
      partition_of(gemma_small(), WeightType::f32, {.workers = 90, .kv_chunk = 32, .edge = EdgeForm::tagged});
  int idle = 0;  // has nothing to do
  const auto has_tiles = [&](const MatrixPartition& matrix) { return !matrix.tiles_of(idle).empty(); };
  while (std::ranges::any_of(partition.matrices, has_tiles) || !partition.owned_cells(Shared::attended, idle).empty())
    ++idle;
  const std::string text = problem_in(partition, [&](Schedule& s) {
    std::vector<WorkerStep>& steps = s.workers[static_cast<size_t>(idle)].steps;
    const auto later = std::ranges::find_if(steps, [](const WorkerStep& step) { return step.phase > 3; });
    steps.insert(later,
                 {.kind = StepKind::read, .buffer = Shared::attended, .phase = 3, .id = 2, .begin = 0, .end = 6});
  });
  EXPECT_TRUE(has(text, "of attended is written before worker " + std::to_string(idle) + " is known to have read"))
      << text;
}

}  // namespace
}  // namespace weft::testing
