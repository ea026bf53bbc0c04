// Schedules of steps: what they refuse, and that the checker proves them.
#include "decode/fused/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "decode/fused/check.h"
#include "tests/decode/fused/some_step.h"

namespace weft::testing {
namespace {

TEST(Schedules, RefuseStepsOfManyRows) {
  const Partition partition = partition_of(smollm_135m(), WeightType::q4_1, {.workers = 4});
  const SomeStep some({{9, 20}});
  const std::string refusal = error_of([&] { schedule_of(partition, some.step); });
  EXPECT_TRUE(has(refusal, "unsupported: the fused step: required 9 rows; supported are 1 to 8")) << refusal;
}

TEST(Schedules, RefuseEntriesSmallerThanAToken) {
  const Partition partition = partition_of(smollm_135m(), WeightType::q4_1, {.workers = 4, .kv_entry_bytes = 128});
  const SomeStep some({{1, 20}});
  const std::string refusal = error_of([&] { schedule_of(partition, some.step); });
  EXPECT_TRUE(has(refusal, "kv_entry_bytes = 128; keys and values of a token of 1 heads have 256 bytes")) << refusal;
}

// One worker, more workers than tiles, rows of one request and of many, short and long contexts, no logits.
TEST(Schedules, AreProven) {
  ModelConfig few_layers = smollm_135m();
  few_layers.num_layers = 2;
  for (const ModelConfig& config : {few_layers, gemma_small()})
    for (const int workers : {1, 3, 132, 400})
      for (const auto& requests : {std::vector<std::pair<int, int>>{{1, 1}}, {{1, 700}}, {{8, 8}}, {{2, 90}, {3, 3}}}) {
        const Partition partition = partition_of(config, WeightType::q8_0, {.workers = workers});
        SomeStep some(requests);
        for (const bool wants_logits : {true, false}) {
          if (!wants_logits) some.step.wanted.clear();
          const std::vector<Problem> problems = check(partition, schedule_of(partition, some.step));
          EXPECT_TRUE(problems.empty()) << problems[0].text << " of " << workers;
        }
      }
}

TEST(Schedules, OfALargeModelAreProven) {
  ModelConfig config = llama_8b();
  config.num_layers = 3;
  const Partition partition = partition_of(config, WeightType::bf16, {.workers = 132});
  const SomeStep some({{1, 6145}});
  const Schedule schedule = schedule_of(partition, some.step);
  const std::vector<Problem> problems = check(partition, schedule);
  EXPECT_TRUE(problems.empty()) << problems[0].text;
  // The producer runs ahead over joins: some load is issued before the phase that uses it can begin.
  const WorkerSchedule& own = schedule.workers[17];
  const auto load = std::ranges::find_if(own.loads, [](const Load& l) { return l.phase == 3; });
  const auto release = std::ranges::find_if(
      own.steps, [&](const WorkerStep& step) { return step.kind == StepKind::release && step.id == load->after - 1; });
  EXPECT_LT(release->phase, 3);
}

TEST(Schedules, PrintAsATable) {
  const Partition partition = partition_of(gemma_small(), WeightType::f32, {.workers = 3});
  const SomeStep some({{1, 5}});
  const std::string text = to_string(schedule_of(partition, some.step, 4), partition, 1, 0, 2);
  EXPECT_TRUE(has(text, "worker 1 of 3\n  load    0  layer 0: qkv            tiles 10..20")) << text;
  EXPECT_TRUE(has(text, "layer 0: attention      append          KV heads 0..1")) << text;
}

TEST(Partitions, AreDrawn) {
  const std::string svg = to_svg(partition_of(smollm_135m(), WeightType::q4_1, {.workers = 132}));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_TRUE(has(svg, "<title>worker 131, down: tiles"));
}

}  // namespace
}  // namespace weft::testing
