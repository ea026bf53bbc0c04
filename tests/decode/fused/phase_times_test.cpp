// Where a step's time goes, of made-up stamps.
#include "decode/fused/cuda/phase_times.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "decode/fused/cuda/kernels/model_args.h"
#include "tests/decode/fused/shapes.h"
#include "tests/support/gguf_writer.h"

namespace weft::testing {
namespace {

constexpr uint64_t kStart = 1'000'000;  // of the step

// Stamps of a model of two layers and three workers. Each phase of a layer takes 100 us; the second layer begins when
// the first has ended, and all times within a phase are in microseconds from its begin on.
class MadeUp {
 public:
  explicit MadeUp(int layers) {
    ModelConfig config = llama_8b();
    config.num_layers = layers;
    phases = make_phases(make_program(config));
    stamps.resize(static_cast<size_t>(phases.size() * kWorkers * kNumStamps));
  }
  void set(size_t phase, size_t worker, uint64_t begun, uint64_t ready, uint64_t multiplied, uint64_t left) {
    const uint64_t from = kStart + phase * 100'000;
    uint64_t* const to = stamps.data() + (phase * kWorkers + worker) * kNumStamps;
    const auto at = [&](uint64_t us) { return us == kNone ? 0 : from + us * 1000; };
    to[kBegun] = at(begun), to[kReady] = at(ready), to[kMultiplied] = at(multiplied), to[kLeft] = at(left);
  }
  static constexpr int kWorkers = 3;
  static constexpr uint64_t kNone = ~uint64_t{0};
  Phases phases;
  std::vector<uint64_t> stamps;
};

TEST(PhaseTimes, AreTheirMeansWithSkewAndTrip) {
  MadeUp of(2);
  const auto kNone = MadeUp::kNone;
  for (size_t phase = 0; phase < 19; ++phase)
    for (size_t w = 0; w < 3; ++w) of.set(phase, w, 0, 10, 20, 25);
  // The second layer's, which is the only one but the first. qkv ends at 40, 50 and 90.
  of.set(9, 0, 0, 20, 40, 45);
  of.set(9, 1, 1, 31, 50, 52);
  of.set(9, 2, 2, 30, 90, 92);
  // Attention has no stamp of multiplication, and one worker has no items. The others have their input at 5 and 7.
  of.set(10, 0, 0, 5, kNone, 30);
  of.set(10, 1, 0, kNone, kNone, 2);
  of.set(10, 2, 0, 7, kNone, 36);
  const std::vector<PhaseTime> times = phase_times(of.phases, 3, of.stamps);
  ASSERT_EQ(times.size(), 10u);
  EXPECT_EQ(times[0].name, "qkv");
  EXPECT_DOUBLE_EQ(times[0].input, (20 + 30 + 28) / 3.);
  EXPECT_DOUBLE_EQ(times[0].multiply, (20 + 19 + 60) / 3.);
  EXPECT_DOUBLE_EQ(times[0].leave, (5 + 2 + 2) / 3.);
  EXPECT_DOUBLE_EQ(times[0].all, (45 + 51 + 90) / 3.);
  EXPECT_DOUBLE_EQ(times[0].skew, 90 - 50);
  EXPECT_DOUBLE_EQ(times[0].trip.value(), 100 + 20 - 20);  // the phase before ended at 20 of its own 100
  EXPECT_EQ(times[1].name, "attention");
  EXPECT_DOUBLE_EQ(times[1].skew, 36 - 30);
  EXPECT_DOUBLE_EQ(times[1].trip.value(), 100 + 5 - 90);
  EXPECT_DOUBLE_EQ(times[2].trip.value(), 100 + 10 - 36);
  EXPECT_EQ(times[9].name, "head");
  EXPECT_DOUBLE_EQ(times[9].trip.value(), 100 + 10 - 20);
  EXPECT_EQ(clock_step(of.stamps), 1000u);
  const std::string text = to_string(times, clock_step(of.stamps));
  EXPECT_TRUE(has(text,
                  "phase                   input  multiply    leave      all     skew     trip\n"
                  "qkv                     26.00     33.00     3.00    62.00    40.00   100.00\n"))
      << text;
  EXPECT_TRUE(has(text, "the clock moves in steps of 1000 ns")) << text;
}

TEST(PhaseTimes, OfOneLayerAreThatOnes) {
  MadeUp of(1);
  for (size_t phase = 0; phase < 10; ++phase)
    for (size_t w = 0; w < 3; ++w) of.set(phase, w, 0, 10, 20 + w, 25);
  const std::vector<PhaseTime> times = phase_times(of.phases, 3, of.stamps);
  EXPECT_FALSE(times[0].trip.has_value());
  EXPECT_DOUBLE_EQ(times[0].skew, 1);
  EXPECT_DOUBLE_EQ(times[1].trip.value(), 100 + 10 - 22);
  EXPECT_TRUE(
      has(to_string(times, 32), "qkv                     10.00     11.00     4.00    25.00     1.00        -\n"))
      << to_string(times, 32);
}

// A step without logits ends behind the last layer's attention: nobody says anything of what would follow.
TEST(PhaseTimes, LeaveOutPhasesThatDidNotRun) {
  MadeUp of(2);
  for (size_t phase = 0; phase < 11; ++phase)
    for (size_t w = 0; w < 3; ++w) of.set(phase, w, 0, 10, 20, 25);
  const std::vector<PhaseTime> times = phase_times(of.phases, 3, of.stamps);
  EXPECT_DOUBLE_EQ(times[1].all, 25);
  EXPECT_DOUBLE_EQ(times[2].all, 0);
  EXPECT_FALSE(times[2].trip.has_value());
  EXPECT_DOUBLE_EQ(times[9].all, 0);
  EXPECT_EQ(phase_spans(of.phases, 3, of.stamps, 3, 0).size(), 11u * 3 * 3);
}

TEST(PhaseTimes, BecomeSpansOfATraceThatEndWithTheLastStamp) {
  MadeUp of(1);
  for (size_t phase = 0; phase < 10; ++phase)
    for (size_t w = 0; w < 3; ++w) of.set(phase, w, 0, 10, 20, 25);
  of.set(1, 2, 0, MadeUp::kNone, MadeUp::kNone, 6);
  const auto spans = phase_spans(of.phases, 3, of.stamps, 4, 5000);
  ASSERT_EQ(spans.size(), 10u * 3 * 3 - 2);
  EXPECT_EQ(spans[0].name, "layer 0: qkv, input");
  EXPECT_EQ(spans[0].category, "input");
  EXPECT_EQ(spans[0].process, 4);
  EXPECT_EQ(spans[0].lane, 0);
  EXPECT_DOUBLE_EQ(spans[0].begin_us, 5000 - 925);
  EXPECT_DOUBLE_EQ(spans[0].us, 10);
  EXPECT_EQ(spans[1].name, "layer 0: qkv, multiply");
  EXPECT_DOUBLE_EQ(spans[1].begin_us, 5000 - 915);
  EXPECT_EQ(spans[15].lane, 2);
  EXPECT_EQ(spans[15].name, "layer 0: attention, leave");
  EXPECT_DOUBLE_EQ(spans[15].us, 6);
  EXPECT_EQ(spans.back().name, "head, leave");
  EXPECT_DOUBLE_EQ(spans.back().begin_us + spans.back().us, 5000);
}

TEST(PhaseTimes, AreLinesOfATrace) {
  MadeUp of(1);
  for (size_t phase = 0; phase < 10; ++phase)
    for (size_t w = 0; w < 3; ++w) of.set(phase, w, 0, 10, 20, 25);
  const TempFolder folder;
  const std::string path = folder.path("trace.json");
  attention::Trace trace(path);
  trace.add({});
  const auto spans = phase_spans(of.phases, 3, of.stamps, attention::Trace::kFirstProcess, 1000);
  trace.add(std::span(spans).first(2));
  trace.add(std::span(spans).subspan(2, 1));
  std::ostringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_EQ(written.str(),
            R"([
{"ph":"X","pid":3,"tid":0,"ts":75.000,"dur":10.000,"name":"layer 0: qkv, input","cat":"input"},
{"ph":"X","pid":3,"tid":0,"ts":85.000,"dur":10.000,"name":"layer 0: qkv, multiply","cat":"multiply"},
{"ph":"X","pid":3,"tid":0,"ts":95.000,"dur":5.000,"name":"layer 0: qkv, leave","cat":"leave"}
]
)");
}

}  // namespace
}  // namespace weft::testing
