#include "decode/fused/walk.h"

#include <algorithm>
#include <random>
#include <thread>

#include "decode/fused/walk_worker.h"

namespace weft::decode::fused {

Walk::Walk(const Partition& partition, const WalkWeights& weights, const Schedule& schedule, const WalkInput& input)
    : memory_(std::make_unique<Memory>(partition, weights, schedule, input)) {
  for (const WorkerSchedule& worker : schedule.workers)
    workers_.push_back(std::make_unique<WalkWorker>(*memory_, worker));
  // As large as the largest that any phase puts there.
  for (const Phase& phase : partition.phases.all) {
    const auto make_room = [&](Shared buffer, int64_t cells) {
      std::vector<float>& values = memory_->shared[static_cast<size_t>(buffer)];
      values.resize(std::max(values.size(), static_cast<size_t>(cells * memory_->floats_of_cell(buffer))));
    };
    make_room(phase.writes, schedule.num_cells(partition, phase));
  }
  for (size_t i = 0; i < kNumShared; ++i)
    memory_->tags[i] = std::vector<std::atomic<int>>(static_cast<size_t>(memory_->num_cells(static_cast<Shared>(i))));
}

Walk::~Walk() = default;

void Walk::reset(bool poisons) {
  memory_->poisons = poisons;
  for (std::vector<float>& values : memory_->shared) std::ranges::fill(values, kPoison);
  for (std::atomic<int>& counter : memory_->counters) counter.store(0, std::memory_order_relaxed);
  for (std::vector<std::atomic<int>>& of : memory_->tags)
    for (std::atomic<int>& tag : of) tag.store(kNoPhase, std::memory_order_relaxed);
  for (const std::unique_ptr<WalkWorker>& worker : workers_) worker->reset();
}

void Walk::run(WorkerTeam& team) {
  reset(false);
  const auto threads = static_cast<size_t>(team.num_workers());
  std::atomic<bool> failed = false;  // then nobody waits any more
  team.run([&](int thread) {
    // A thread takes its workers by turns: as far as each goes.
    try {
      for (bool all_done = false; !all_done && !failed.load(std::memory_order_relaxed);) {
        all_done = true;
        bool moved = false;
        for (size_t w = static_cast<size_t>(thread); w < workers_.size(); w += threads) {
          WalkWorker& worker = *workers_[w];
          for (;;) {
            if (worker.ring().can_issue())
              worker.ring().issue(), worker.ring().land(0);
            else if (worker.can_step())
              worker.step();
            else
              break;
            moved = true;
          }
          all_done = all_done && worker.is_done();
        }
        if (!moved && !all_done) std::this_thread::yield();
      }
    } catch (...) {
      failed.store(true, std::memory_order_relaxed);
      throw;
    }
  });
}

bool Walk::run_in_random_order(uint64_t seed) {
  reset(true);
  std::mt19937_64 random(seed);
  std::vector<WalkWorker*> left;
  for (const std::unique_ptr<WalkWorker>& worker : workers_) left.push_back(worker.get());
  // Now and then a worker is left alone for a while, so that the others run as far ahead as they may.
  const WalkWorker* sleeper = nullptr;
  while (!left.empty()) {
    if (random() % 32 == 0) sleeper = random() % 2 == 0 ? nullptr : left[random() % left.size()];
    bool moved = false;
    const size_t first = random() % left.size();
    for (size_t i = 0; i < left.size() && !moved; ++i) {
      WalkWorker& worker = *left[(first + i) % left.size()];
      if (&worker == sleeper) continue;
      switch (random() % 3) {
        case 0:
          if (worker.ring().can_issue()) worker.ring().issue(), moved = true;
          break;
        case 1:
          if (worker.ring().num_in_flight() > 0)
            worker.ring().land(random() % worker.ring().num_in_flight()), moved = true;
          break;
        default:
          for (uint64_t steps = random() % 8 + 1; steps > 0 && worker.can_step(); --steps) worker.step(), moved = true;
      }
    }
    std::erase_if(left, [](const WalkWorker* worker) { return worker->is_done(); });
    if (moved || left.empty()) continue;
    sleeper = nullptr;
    if (std::ranges::none_of(left, [](const WalkWorker* worker) { return worker->can_move(); })) return false;
  }
  return true;
}

std::vector<float> Walk::logits(int row) const {
  const MatrixPartition& head = memory_->partition.matrices.back();
  std::vector<float> logits(static_cast<size_t>(head.tiles.rows));
  for (int64_t i = 0; i < head.tiles.rows; ++i) {
    const int64_t band = head.tiles.band_of_row(i);
    logits[static_cast<size_t>(i)] =
        memory_->cell(Shared::logits,
                      head.first_slot[static_cast<size_t>(band)])[row * kBandRows + i - head.tiles.first_row_of(band)];
  }
  return logits;
}

}  // namespace weft::decode::fused
