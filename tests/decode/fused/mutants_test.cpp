// The checker against schedules that are wrong. A mutant is wrong if a walk in random order, over poisoned memory,
// gives other bits than the right schedule, is stopped by a fault, or hangs: the checker must reject all of these.
//
// WEFT_RANDOM_CASES=10000 draws so many, WEFT_RANDOM_SEED=7 others, WEFT_RANDOM_FIRST=12 leaves out the first 12.
#include "tests/decode/fused/mutants.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "tests/decode/fused/fused_model.h"
#include "tests/decode/random_forward.h"

namespace weft::testing {
namespace {

uint64_t number_of(const char* name, uint64_t usual) {
  const char* value = std::getenv(name);
  return value == nullptr ? usual : std::strtoull(value, nullptr, 10);
}

// A step of a small model over sequences that hold some tokens, and what is right.
class Arena {
 public:
  Arena(const std::string& path, const Machine& machine) : model_(path, machine) {
    // Slots that nobody has written are poison, too.
    for (const KvCache& cache : model_.caches()) poison(cache);
    const Sequences::Id a = model_.sequences().add(), b = model_.sequences().add();
    WorkerTeam team(1);
    for (const auto& [sequence, count] : {std::pair{a, 21}, std::pair{b, 3}})
      for (int i = 0; i < count; ++i) model_.run(model_.step_of({{sequence, {(7 * i + 3) % 200}}}), team);
    before_ = cache_bytes();
    step_ = model_.step_of({{a, {5, 9}}, {b, {17}}});
    schedule_ = model_.schedule_of(step_);
    input_ = model_.input_of(step_);
    EXPECT_TRUE(check(model_.partition, schedule_).empty());
    EXPECT_TRUE(walk(schedule_, 1, &right_));
  }

  const Schedule& schedule() const { return schedule_; }
  bool is_wrong(const Schedule& schedule, uint64_t seed) {
    std::string bits;
    return !walk(schedule, seed, &bits) || bits != right_;
  }

  // The same of another partition. Sums may be added in another order there, so logits are wrong where they are others
  // by more than that rounds.
  const Partition& partition() const { return model_.partition; }
  Schedule schedule_of(const Partition& partition) const { return make_schedule(partition, schedule_.shape); }
  bool is_wrong(const Partition& partition, const Schedule& schedule, uint64_t seed) {
    restore_cache();
    Walk walk(partition, *model_.weights, schedule, input_);
    try {
      if (!walk.run_in_random_order(seed)) return true;
    } catch (const WalkFault&) {
      return true;
    }
    const auto* right = reinterpret_cast<const float*>(right_.data());
    for (int row = 0; row < step_.rows(); ++row)
      for (const float logit : walk.logits(row))
        if (!(std::abs(logit - *right++) < 1e-3f)) return true;
    const std::string caches = cache_bytes();
    const auto number = [&](const std::string& bytes, size_t i) {
      float value;
      std::memcpy(&value, bytes.data() + i, sizeof value);
      return value;
    };
    const size_t begin = right_.size() - caches.size();
    for (size_t i = 0; i < caches.size(); i += sizeof(float)) {
      const float is = number(caches, i), was = number(right_, begin + i);
      if (std::isnan(is) != std::isnan(was) || std::abs(is - was) > 1e-3f) return true;
    }
    return false;
  }

 private:
  std::string cache_bytes() const {
    std::string all;
    for (const KvCache& cache : model_.caches())
      for (const TensorView* side : {&cache.k, &cache.v})
        all.append(static_cast<const char*>(side->data()), static_cast<size_t>(side->size()) * sizeof(float));
    return all;
  }
  void restore_cache() {
    const char* from = before_.data();
    for (const KvCache& cache : model_.caches())
      for (const TensorView* side : {&cache.k, &cache.v}) {
        const size_t bytes = static_cast<size_t>(side->size()) * sizeof(float);
        std::memcpy(const_cast<void*>(side->data()), from, bytes);
        from += bytes;
      }
  }
  // False: it hangs, or a fault ends it. Bits: of logits and of the cache.
  bool walk(const Schedule& schedule, uint64_t seed, std::string* bits) {
    restore_cache();
    Walk walk(model_.partition, *model_.weights, schedule, input_);
    try {
      if (!walk.run_in_random_order(seed)) return false;
    } catch (const WalkFault&) {
      return false;
    }
    for (int row = 0; row < step_.rows(); ++row) {
      const std::vector<float> logits = walk.logits(row);
      bits->append(reinterpret_cast<const char*>(logits.data()), logits.size() * sizeof(float));
    }
    *bits += cache_bytes();
    return true;
  }

  FusedModel model_;
  Step step_;
  Schedule schedule_;
  WalkInput input_;
  std::string before_, right_;
};

class FusedMutants : public RandomModelTest {
 protected:
  // A ring of few entries, bands that are cut, panels of a tile, more chunks of keys than one.
  std::unique_ptr<Arena> make(const char* architecture, int workers, EdgeForm edge) {
    RandomModelOptions model = small_model(architecture);
    model.sliding_window = 9;
    return std::make_unique<Arena>(write(model), Machine{.workers = workers,
                                                         .ring_bytes = 20 << 10,
                                                         .entry_bytes = 8 << 10,
                                                         .x_bytes = 16 * 64,
                                                         .max_entries = 4,
                                                         .kv_chunk = 8,
                                                         .edge = edge});
  }
};

TEST_F(FusedMutants, RightSchedulesAreRightInEveryOrder) {
  for (const char* architecture : {"llama", "gemma2"})
    for (const EdgeForm edge : {EdgeForm::counter, EdgeForm::tagged})
      for (const int workers : {1, 3, 7}) {
        const std::unique_ptr<Arena> arena = make(architecture, workers, edge);
        for (uint64_t seed = 1; seed <= 20; ++seed)
          EXPECT_FALSE(arena->is_wrong(arena->schedule(), seed))
              << architecture << ", " << to_string(edge) << ", seed " << seed;
      }
}

enum class Mutates { schedules, partitions };

class FusedMutantsAreRejected : public FusedMutants,
                                public ::testing::WithParamInterface<std::tuple<Mutates, EdgeForm>> {};

TEST_P(FusedMutantsAreRejected, WhereTheyAreWrong) {
  const auto [what_mutates, edge] = GetParam();
  const bool of_partitions = what_mutates == Mutates::partitions;
  const uint64_t usual = of_partitions ? 300 : 600, seed = number_of("WEFT_RANDOM_SEED", 1),
                 first = number_of("WEFT_RANDOM_FIRST", 0), cases = number_of("WEFT_RANDOM_CASES", usual);
  std::vector<std::unique_ptr<Arena>> arenas;
  arenas.push_back(make("llama", 3, edge));
  arenas.push_back(make("gemma2", 5, edge));
  uint64_t wrong = 0, rejected = 0, harmless = 0, missed = 0;
  for (uint64_t i = first; i < first + cases && missed < 3; ++i) {
    std::mt19937_64 random(seed * 1000003 + i);
    Arena& arena = *arenas[i % arenas.size()];
    Partition partition = arena.partition();
    Schedule mutant = arena.schedule();
    std::string what;
    if (of_partitions) {
      what = mutate(partition, random);
      mutant = arena.schedule_of(partition);
    } else {
      what = mutate(mutant, random);
    }
    const bool accepted = check(partition, mutant, 1).empty();
    // Of one that is accepted, several orders are tried.
    bool is_wrong = false;
    for (int order = accepted ? 6 : 2; order > 0 && !is_wrong; --order)
      is_wrong = of_partitions ? arena.is_wrong(partition, mutant, random()) : arena.is_wrong(mutant, random());
    wrong += is_wrong ? 1 : 0;
    rejected += accepted ? 0 : 1;
    harmless += !accepted && !is_wrong ? 1 : 0;
    if (!accepted || !is_wrong) continue;
    ++missed;
    ADD_FAILURE() << "accepted, and wrong: " << what << "\nagain: WEFT_RANDOM_SEED=" << seed
                  << " WEFT_RANDOM_FIRST=" << i << " WEFT_RANDOM_CASES=1";
  }
  fmt::print("{} {}, {} edges: {} wrong, {} rejected, of these {} gave the right result\n", cases,
             of_partitions ? "partitions" : "schedules", to_string(edge), wrong, rejected, harmless);
  if (cases >= usual) {
    EXPECT_GE(wrong, of_partitions ? cases / 4 : cases / 2);
  }
}
INSTANTIATE_TEST_SUITE_P(All, FusedMutantsAreRejected,
                         ::testing::Combine(::testing::Values(Mutates::schedules, Mutates::partitions),
                                            ::testing::Values(EdgeForm::counter, EdgeForm::tagged)),
                         [](const auto& drawn) {
                           return std::string(std::get<0>(drawn.param) == Mutates::schedules ? "schedules"
                                                                                             : "partitions") +
                                  "_" + std::string(to_string(std::get<1>(drawn.param)));
                         });

}  // namespace
}  // namespace weft::testing
