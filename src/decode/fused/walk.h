// The CPU walks a schedule: a team's threads take the workers' parts, in one job for the whole step, and wait at
// counters as a card's CTAs do. It is the test of partitions where there is no card; speed is not its aim.
//
//   Walk walk(partition, weights, schedule, {.step = &step, .caches = caches, .ropes = ropes});
//   walk.run(team);
//   walk.logits(row);                 // [vocab]
//
// In random order, on one thread, with poison in all memory that nobody has written or that was released, copies that
// land at any time until they are awaited: what a wrong schedule does shows as other bits, as a fault or as a hang.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "decode/fused/schedule.h"
#include "decode/fused/walk_weights.h"
#include "ops/rope.h"
#include "weft/attention.h"
#include "weft/device.h"

namespace weft::decode::fused {

// What a step reads beside weights. All of it outlives the walk.
struct WalkInput {
  const Step* step = nullptr;
  std::span<const KvCache> caches = {};        // of layers: [pages, page_size, KV heads, dim] in fp32, fp16 or bf16
  std::span<const ops::RopeTable> ropes = {};  // of Program::ropes, for the step's rows
};

// A step of a schedule that nothing could do: a range beyond its buffer, an unknown load, tiles that are not there.
class WalkFault : public InternalError {
 public:
  using InternalError::InternalError;
};

class WalkWorker;

class Walk {
 public:
  // Partition, weights, schedule and input outlive it.
  Walk(const Partition& partition, const WalkWeights& weights, const Schedule& schedule, const WalkInput& input);
  ~Walk();

  // Throws WalkFault. A schedule that the checker does not accept may never end.
  void run(WorkerTeam& team);
  // False: all that is left waits for what nobody will do.
  bool run_in_random_order(uint64_t seed);

  // Of a row of the step that ran to its end.
  std::vector<float> logits(int row) const;

  struct Memory;

 private:
  void reset(bool poisons);

  std::unique_ptr<Memory> memory_;
  std::vector<std::unique_ptr<WalkWorker>> workers_;
};

}  // namespace weft::decode::fused
