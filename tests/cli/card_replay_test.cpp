// What calls of a card leave behind, and how they run again. The card is the host machine (tests/ops/cuda/host_card.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/arguments.h"
#include "cli/cli.h"
#include "tests/ops/cuda/host_card.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_folder.h"
#include "weft/model.h"

namespace weft::cli {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// Both are read once: before anything runs.
const testing::TempFolder kOwn;
const fs::path kFolder = [] {
  setenv("WEFT_RECORD", kOwn.path("calls").c_str(), 1);
  setenv("WEFT_TRACE", kOwn.path("trace.json").c_str(), 1);
  return kOwn.path();
}();

std::vector<fs::path> calls() {
  std::vector<fs::path> all;
  for (const auto& entry : fs::directory_iterator(kFolder / "calls")) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

class RecordedOnACard : public testing::HostCard {
 protected:
  RecordedOnACard() { fs::remove_all(kFolder / "calls"); }
  ~RecordedOnACard() override { fs::remove_all(kFolder / "calls"); }

  // Two layers, a prompt and three tokens more: the steps of one row would be a graph from the second on.
  static void run_model(Device device) {
    const testing::TempFolder folder;
    const std::string path = folder.path("model.gguf");
    testing::random_model(
        {.hidden_size = 64, .intermediate_size = 96, .num_qo_heads = 4, .num_kv_heads = 2, .head_dim = 16})
        .write(path);
    ForwardPass forward(ModelFile(path), {.precision = Precision::exact, .device = device, .max_tokens = 64});
    const auto sequence = forward.add_sequence();
    for (const std::vector<int32_t>& tokens : {std::vector<int32_t>{5, 9, 2, 7, 1}, {3}, {4}, {8}})
      forward.run({{.sequence = sequence, .tokens = tokens}});
  }

  // The last line of `weft replay CALL --json`.
  json replay(const fs::path& call, const std::vector<std::string>& more = {}) {
    Program program("A test", "weft 0", "");
    Context context;
    add_replay(program, context);
    std::vector<std::string> arguments{"replay", call, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    ::testing::internal::CaptureStdout();
    try {
      program.run(arguments, context.json);
    } catch (const Error& error) {
      ::testing::internal::GetCapturedStdout();
      return {{"refused", error.what()}};
    }
    exit_code_ = context.exit_code;
    return json::parse(::testing::internal::GetCapturedStdout());
  }
  int exit_code_ = -1;
};

TEST_F(RecordedOnACard, CallsRunAgainOnItWithTheSameBits) {
  run_model(Device::cuda(0));
  const std::vector<fs::path> all = calls();
  ASSERT_EQ(all.size(), 8u);
  for (const fs::path& call : {all.front(), all.back()}) {
    const json again = replay(call);
    ASSERT_FALSE(again.contains("refused")) << again;
    EXPECT_EQ(exit_code_, kDone);
    EXPECT_EQ(again.at("recorded"), "same bits") << again;
    EXPECT_TRUE(again.at("right").get<bool>());
    EXPECT_GT(again.at("worst").get<double>(), 0);
    EXPECT_LE(again.at("worst").get<double>(), 1);
  }
  std::fstream(all.back() / "o.bin", std::ios::in | std::ios::out | std::ios::binary).put('\x55');
  EXPECT_EQ(replay(all.back()).at("recorded"), "other bits");
  EXPECT_EQ(exit_code_, kInternal);
}

TEST_F(RecordedOnACard, CallsRunOnTheCpuWithAPlanOfItsOwn) {
  run_model(Device::cuda(0));
  const std::vector<fs::path> all = calls();
  for (const fs::path& call : {all.front(), all.back()}) {
    const json on_cpu = replay(call, {"--backend", "cpu", "--bisect"});
    EXPECT_TRUE(on_cpu.at("right").get<bool>()) << on_cpu;
    EXPECT_EQ(on_cpu.at("recorded"), "sm_90a recorded it, " + std::string(to_string(current_isa())) + " ran it");
  }
  const std::string refused = replay(all.back(), {"--bisect"}).at("refused");
  EXPECT_NE(refused.find("add --backend cpu"), std::string::npos) << refused;
  EXPECT_NE(replay(all.back(), {"--backend", "tpu"}).at("refused").get<std::string>().find("--backend = tpu"),
            std::string::npos);
}

TEST_F(RecordedOnACard, CallsOfTheCpuRunOnIt) {
  run_model(Device::cpu());
  for (const fs::path& call : {calls().front(), calls().back()}) {
    const json on_card = replay(call, {"--backend", "cuda:0"});
    ASSERT_FALSE(on_card.contains("refused")) << on_card;
    EXPECT_TRUE(on_card.at("right").get<bool>()) << on_card;
    EXPECT_NE(on_card.at("recorded").get<std::string>().find("sm_90a ran it"), std::string::npos);
  }
}

TEST_F(RecordedOnACard, LaunchesAreTracedAsLongAsTheyTook) {
  run_model(Device::cuda(0));
  const json events = json::parse(std::ifstream(kFolder / "trace.json"));
  ASSERT_GE(events.size(), calls().size());
  for (const json& event : events) {
    if (event.at("cat") != "launch") continue;
    EXPECT_EQ(event.at("name"), "attention plain fp32 hd16 plain sm_90a");
    EXPECT_GT(event.at("dur").get<double>(), 0);
    EXPECT_GE(event.at("args").at("items").get<int>(), 1);
  }
}

}  // namespace
}  // namespace weft::cli
