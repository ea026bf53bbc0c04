// A partition written out for one step: what every worker loads, and what it does, in order. The checker proves it
// (check.h), the CPU walks it (walk.h), and it prints.
//
//   const Schedule schedule = make_schedule(partition, {.items = {attention_items(partition, step, 0)}});
//   const std::vector<Problem> problems = check(partition, schedule);
//
// A worker is two: a producer, which issues the loads into the worker's ring as early as their entries are free, over
// phases and layers, and a consumer, which does the steps.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "decode/fused/attention_items.h"
#include "decode/fused/partition.h"

namespace weft::decode::fused {

// What a worker's producer copies into its ring.
struct Load {
  int phase = 0;
  int item = -1;               // of attention: keys and values of tokens [begin, end) of its request, for its KV head
  int64_t begin = 0, end = 0;  // else tiles of the phase's matrix
  int64_t at = 0, bytes = 0;   // of the ring
  int after = 0;               // the worker has released so many entries before
  friend bool operator==(const Load&, const Load&) = default;
};

enum class StepKind : uint8_t {
  wait,          // until `count` workers have arrived at counter `id`; with counters alone, like `arrive`
  read,          // cells [begin, end) of a shared buffer, written by phase `id`; with tags: waits until they are
  prologue,      // makes columns [begin, end) of what the product multiplies, of what was read
  keep,          // cells [begin, end) of the residual that the prologue has made: the worker owns them
  reduce,        // sums that were read, or kept, become cells [begin, end) of a buffer
  append,        // keys and values of rows [begin, end) go into the cache, for the KV head of item `id`
  await,         // until load `id` is there
  multiply,      // tiles [begin, end) of one band, which lie in load `id`, by the columns: added to the sums
  write_sums,    // the sums into slot `begin`; they are zero again
  start,         // item `id` of attention: its queries, an empty state for each row and head
  attend,        // tokens [begin, end) of item `count`, which lie in load `id`
  attend_own,    // tokens [begin, end) of item `id` that this step appends, of what was read
  write_states,  // the item's states into cells [begin, end)
  merge,         // states of all rows, which were read, into cells [begin, end) of `attended`
  release,       // load `id` is read
  arrive,        // at counter `id`: what was written is there for whoever waits
};
inline constexpr int kNumStepKinds = static_cast<int>(StepKind::arrive) + 1;
std::string_view to_string(StepKind kind);

struct WorkerStep {
  StepKind kind = StepKind::wait;
  Shared buffer = Shared::qkv;
  int phase = 0;
  int id = 0, count = 0;
  int64_t begin = 0, end = 0;
  friend bool operator==(const WorkerStep&, const WorkerStep&) = default;
};

struct WorkerSchedule {
  std::vector<Load> loads = {};
  std::vector<WorkerStep> steps = {};
  friend bool operator==(const WorkerSchedule&, const WorkerSchedule&) = default;
};

// Of one step of the model.
struct StepShape {
  std::vector<AttentionItems> items = {};  // of layers that see everything; where some slide, theirs besides
  int64_t kv_bytes = 8;                    // of a token of one KV head in the cache: a key and a value
  bool wants_logits = true;                // false: ends with the last layer's attention
};

struct Schedule {
  StepShape shape = {};
  int num_phases = 0;    // that run
  int num_counters = 0;  // one for each join: counter i stands behind phase i; with tags: none
  std::vector<WorkerSchedule> workers = {};

  int num_rows() const;
  const AttentionItems& items_of(const Phase& phase, const Program& program) const;
  int64_t num_cells(const Partition& partition, const Phase& phase) const;  // of what the phase writes
};

// Throws Error(invalid_argument) where a ring does not hold the keys and values of two items.
Schedule make_schedule(const Partition& partition, StepShape shape);

// Slots of the bands that hold rows [begin, end) of a matrix, which are columns of what it makes: a range a panel,
// those that follow each other as one.
std::vector<Range> slots_of(const MatrixPartition& matrix, int64_t begin, int64_t end);

// Steps and loads of a worker, of phases [first, last): a line each.
std::string to_string(const Load& load, const Partition& partition);
std::string to_string(const WorkerStep& step, const Partition& partition);
std::string to_string(const Schedule& schedule, const Partition& partition, int worker, int first_phase,
                      int last_phase);
// Who streams what of a period of layers and of the head; hatched where a band is cut.
std::string to_svg(const Partition& partition);

}  // namespace weft::decode::fused
