// Schedules of steps: what they refuse, and that the checker proves them.
#include "decode/fused/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "decode/fused/check.h"
#include "decode/fused/cuda/model_kernel.h"
#include "tests/decode/fused/some_step.h"

namespace weft::testing {
namespace {

TEST(Schedules, RefuseStepsOfManyRows) {
  const Partition partition = partition_of(smollm_135m(), WeightType::q4_1, {.workers = 4});
  const SomeStep some({{9, 20}});
  const std::string refusal = error_of([&] { schedule_of(partition, some.step); });
  EXPECT_TRUE(has(refusal, "unsupported: the fused step: required 9 rows; supported are 1 to 8")) << refusal;
}

TEST(Schedules, RefuseChunksThatARingDoesNotHoldTwice) {
  const Partition partition = partition_of(smollm_135m(), WeightType::q4_1, {.workers = 4, .kv_chunk = 512});
  const SomeStep some({{1, 20}});
  const std::string refusal = error_of([&] { schedule_of(partition, some.step); });
  EXPECT_TRUE(has(refusal,
                  "invalid_argument: kv_chunk = 512; keys and values of so many tokens of a KV head have 131072 bytes"))
      << refusal;
}

// Under a sanitizer proofs take a hundred times longer, and one thread has all of them: small machines stand for large.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool kIsSanitized = true;
#else
constexpr bool kIsSanitized = false;
#endif

// One worker, more workers than tiles, panels, rows of one request and of many, short and long contexts, no logits.
TEST(Schedules, AreProven) {
  ModelConfig few_layers = smollm_135m();
  few_layers.num_layers = 2;
  for (const ModelConfig& config : {few_layers, gemma_small()})
    for (const int workers : kIsSanitized ? std::vector{1, 3, 7} : std::vector{1, 3, 132, 400})
      for (const auto& requests : {std::vector<std::pair<int, int>>{{1, 1}}, {{1, 700}}, {{8, 8}}, {{2, 90}, {3, 3}}}) {
        for (const bool has_panels : {false, true})
          for (const EdgeForm edge : {EdgeForm::counter, EdgeForm::tagged}) {
            Machine machine{.workers = workers, .edge = edge};
            if (has_panels) machine.x_bytes = 16 * ((config.hidden_size + 63) / 64 * 64);
            const Partition partition = partition_of(config, WeightType::q8_0, machine);
            if (workers >= 5) {
              EXPECT_EQ(partition.matrices[3].tiles.num_panels > 1, has_panels);
            }
            SomeStep some(requests);
            for (const bool wants_logits : {true, false}) {
              if (!wants_logits) some.step.wanted.clear();
              const std::vector<Problem> problems = check(partition, schedule_of(partition, some.step));
              EXPECT_TRUE(problems.empty()) << problems[0].text << " of " << workers << ", " << to_string(edge);
            }
          }
      }
}

// No order but from who writes a cell to who reads it, with fewer workers than tiles of a matrix, as many, and more.
TEST(Schedules, WithTagsAreProvenForEveryNumberOfWorkers) {
  for (int workers = 1; workers < (kIsSanitized ? 4 : 90); workers += workers < 30 ? 1 : 7)
    for (const int64_t x_bytes : {16 * 128, 128 << 10}) {
      const Partition partition =
          partition_of(gemma_small(), WeightType::f32,
                       {.workers = workers, .x_bytes = x_bytes, .kv_chunk = 16, .edge = EdgeForm::tagged});
      for (const auto& requests : {std::vector<std::pair<int, int>>{{1, 1}}, {{8, 150}}, {{1, 70}, {2, 5}, {5, 90}}}) {
        const SomeStep some(requests);
        const std::vector<Problem> problems = check(partition, schedule_of(partition, some.step));
        EXPECT_TRUE(problems.empty()) << problems[0].text << " of " << workers << " with " << x_bytes;
      }
    }
}

// As a card has them: rows of every kernel, contexts of several rounds, and more workers than tiles.
TEST(Schedules, OfCardsAreProven) {
  if (kIsSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  ModelConfig small = smollm_135m(), large = llama_8b();
  small.num_layers = large.num_layers = 2;
  for (const ModelConfig& config : {small, large, gemma_small()}) {
    const Program program = make_program(config);
    const Partition partition = make_partition(program, form_of(program, WeightType::bf16), card_machine(132, program));
    for (const int rows : {1, 2, 8}) {
      SomeStep some({{rows, 1500}});
      for (const bool wants_logits : {true, false}) {
        if (!wants_logits) some.step.wanted.clear();
        const std::vector<Problem> problems = check(partition, schedule_of(partition, some.step));
        EXPECT_TRUE(problems.empty()) << problems[0].text << " of " << rows << " rows";
      }
    }
  }
}

TEST(Schedules, OfALargeModelAreProven) {
  if (kIsSanitized) GTEST_SKIP() << "takes minutes under a sanitizer";
  ModelConfig config = llama_8b();
  config.num_layers = 3;
  const SomeStep some({{1, 6145}});
  const Partition tagged = partition_of(config, WeightType::bf16, {.workers = 132, .edge = EdgeForm::tagged});
  EXPECT_EQ(check(tagged, schedule_of(tagged, some.step)).size(), 0u);
  const Partition partition = partition_of(config, WeightType::bf16, {.workers = 132});
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

// An item is a warp's: one KV head, 16 rows x query heads at most, its keys and values one load; a row's key and value
// are appended once, by the item that has row and token.
TEST(Schedules, HaveItemsOfOneKvHeadAndOneLoad) {
  for (const int group : {1, 3, 5, 16}) {
    ModelConfig config = smollm_135m();
    config.num_layers = 1;
    config.num_kv_heads = 2, config.num_qo_heads = 2 * group;
    const Partition partition = partition_of(config, WeightType::q8_0, {.workers = 5, .kv_chunk = 32});
    const SomeStep some({{5, 70}, {3, 3}});
    const AttentionItems items = attention_items(partition, some.step, 0);
    std::vector<int> appended(16);
    for (const AttentionItem& item : items.items) {
      EXPECT_LE(item.num_states(group), 16) << group;
      EXPECT_LE(item.kv_end - item.kv_begin, 32) << group;
      const auto [begin, end] = items.appended_rows(item);
      for (int row = begin; row < end; ++row) ++appended[static_cast<size_t>(2 * row + item.kv_head)];
    }
    EXPECT_EQ(appended, std::vector<int>(16, 1)) << group;
    const Schedule schedule = schedule_of(partition, some.step);
    std::vector<int> loads(items.items.size());
    for (const WorkerSchedule& worker : schedule.workers)
      for (const Load& load : worker.loads)
        if (load.item >= 0) ++loads[static_cast<size_t>(load.item)];
    for (size_t i = 0; i < loads.size(); ++i)
      EXPECT_EQ(loads[i],
                items.items[i].kv_begin < items.requests[static_cast<size_t>(items.items[i].request)].cached());
    EXPECT_TRUE(check(partition, schedule).empty()) << group;
  }
}

TEST(Schedules, PrintAsATable) {
  const Partition partition = partition_of(gemma_small(), WeightType::f32, {.workers = 3});
  const SomeStep some({{1, 5}});
  const std::string text = to_string(schedule_of(partition, some.step, 4), partition, 1, 0, 2);
  EXPECT_TRUE(has(text, "worker 1 of 3\n  load    0  layer 0: qkv                  tiles 7..14")) << text;
  EXPECT_TRUE(has(text, "layer 0: attention            append          item 1: rows 0..1")) << text;
}

TEST(Partitions, AreDrawn) {
  const std::string svg = to_svg(partition_of(smollm_135m(), WeightType::q4_1, {.workers = 132}));
  EXPECT_TRUE(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
  EXPECT_TRUE(has(svg, "<title>worker 131, down: tiles"));
  EXPECT_FALSE(has(svg, "<line "));
  EXPECT_TRUE(
      has(to_svg(partition_of(smollm_135m(), WeightType::q4_1, {.workers = 12, .x_bytes = 16 * 576})), "<line "));
}

}  // namespace
}  // namespace weft::testing
