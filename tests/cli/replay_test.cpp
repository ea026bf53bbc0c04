// WEFT_RECORD, `weft replay` and WEFT_TRACE on a small model.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <set>

#include "attention/abi.h"
#include "attention/fields.h"
#include "tests/cli/program.h"
#include "tests/support/temp_folder.h"
#include "weft/attention.h"

namespace weft::testing {
namespace {

namespace fs = std::filesystem;
const std::string kStoriesModel = WEFT_TEST_DATA "/stories260K.gguf";

// Of this process, for what is in none of its tests' own.
const TempFolder& own_folder() {
  static const TempFolder folder;
  return folder;
}

// Records a few steps of a model; the calls in the order of their run.
std::vector<fs::path> record(const std::string& name, const std::string& threads = "2",
                             const std::vector<std::string>& more = {}) {
  const fs::path folder = own_folder().path(name);
  std::vector<std::string> call{"run", kStoriesModel, "--raw",     "-p",   "Once upon a time there was",
                                "-n",  "2",           "--threads", threads};
  call.insert(call.end(), more.begin(), more.end());
  const Result result = run_weft(call, {.environment = {"WEFT_RECORD=" + folder.string()}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  std::vector<fs::path> calls;
  for (const auto& entry : fs::directory_iterator(folder)) calls.push_back(entry.path());
  std::sort(calls.begin(), calls.end());
  return calls;
}

std::string read(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
void write(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(Replay, FindsARecordedCallRight) {
  const std::vector<fs::path> calls = record("right");
  ASSERT_GE(calls.size(), 10u);  // five layers, a step for the prompt and one for a token
  const std::vector<fs::path> narrow = record("narrow", "2", {"--precision", "fast", "--kv-dtype", "int8"});
  for (const fs::path& call : {calls.front(), calls.back(), narrow.front(), narrow.back()}) {
    const Result result = run_weft({"replay", call, "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.last().at("recorded"), "same bits");
    EXPECT_TRUE(result.last().at("right"));
    EXPECT_GT(result.last().at("worst"), 0.0);
    EXPECT_LE(result.last().at("worst"), 1.0);
  }
}

TEST(Replay, NoticesOtherBitsThanRecorded) {
  const fs::path call = record("other").front();
  std::string o = read(call / "o.bin");
  o[o.size() / 2] = static_cast<char>(o[o.size() / 2] ^ 1);
  write(call / "o.bin", o);
  const Result result = run_weft({"replay", call, "--json"});
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_EQ(result.last().at("recorded"), "other bits");
  fs::remove(call / "o.bin");
  EXPECT_EQ(run_weft({"replay", call, "--json"}).last().at("recorded"), "the recorded run did not end");
}

// Where this process records its own calls: WEFT_RECORD is read once.
fs::path own_calls() {
  static const fs::path folder = [] {
    const fs::path made = own_folder().path("own");
    setenv("WEFT_RECORD", made.c_str(), 1);
    return made;
  }();
  return folder;
}
fs::path newest_call() {
  std::vector<fs::path> calls;
  for (const auto& entry : fs::directory_iterator(own_calls())) calls.push_back(entry.path());
  return *std::max_element(calls.begin(), calls.end());
}

TEST(Replay, FindsALatentCallRight) {
  own_calls();
  const AttentionKernel kernel =
      build({.head_dim_qk = 40, .head_dim_vo = 32, .kv_form = KvForm::latent, .mask = Mask::causal}, Device::cpu());
  std::vector<float> q(5 * 12 * 40), cache(6 * 16 * 40), o(5 * 12 * 32);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (std::vector<float>* x : {&q, &cache})
    for (float& value : *x) value = normal(random);
  const std::vector<int32_t> qo_indptr{0, 1, 5}, page_indptr{0, 3, 5}, ids{5, 0, 3, 1, 2}, last{7, 16};
  const Plan plan = kernel.plan({.num_qo_heads = 12,
                                 .num_kv_heads = 1,
                                 .qo_indptr = qo_indptr,
                                 .pages = {16, 6, page_indptr, ids, last},
                                 .num_workers = 2});
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  const TensorView whole(cache.data(), DType::fp32, {6, 16, 40});
  for (const KvCache& kv : {KvCache::latent(whole), KvCache::latent(whole.slice(2, 0, 32), whole.slice(2, 32, 40))}) {
    kernel.run(plan,
               {.q = TensorView(q.data(), DType::fp32, {5, 12, 40}),
                .kv = kv,
                .o = TensorView(o.data(), DType::fp32, {5, 12, 32})},
               workspace);
    const Result result = run_weft({"replay", newest_call(), "--bisect", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.last().at("recorded"), "same bits");
    EXPECT_TRUE(result.last().at("right"));
    EXPECT_GT(result.last().at("worst"), 0.0);
  }
}

// Integer scalars that intervals name go to plan alone; the record holds them, of the spec's window and of variants.
TEST(Replay, GivesThePlanItsScalars) {
  own_calls();
  std::vector<float> q(2 * 2 * 64), kv(90 * 64), o(2 * 2 * 64);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (std::vector<float>* x : {&q, &kv})
    for (float& value : *x) value = normal(random);
  const std::vector<int32_t> qo_indptr{0, 2}, kv_indptr{0, 90};
  Variant streaming{
      .name = "Streaming",
      .text = "struct Streaming { real logits_transform(P p, Score, real s) { return s / real(p.sinks); } };\n",
      .scalars = {{"sinks", ScalarKind::integer}, {"window", ScalarKind::integer, 20.0}},
      .intervals = {{.upper = {{.scalar = "sinks"}}},
                    {.lower = {{.q_pos = true, .scalar = "window", .scalar_sign = -1}}}}};
  AttentionSpec window{.kv_form = KvForm::ragged, .mask = Mask::causal, .sliding_window = true};
  AttentionSpec as_variant{.kv_form = KvForm::ragged, .mask = Mask::causal, .variant = variants::sliding_window()};
  AttentionSpec own{.kv_form = KvForm::ragged, .mask = Mask::causal, .variant = streaming};
  // A text may name such a scalar too: it has the plan's.
  const std::vector<std::pair<AttentionSpec, std::vector<ScalarArg>>> calls{{as_variant, {{"window_left", 11}}},
                                                                            {own, {{"sinks", 4}}},
                                                                            {window, {{"window_left", 11}}},
                                                                            {window, {{"window_left", -1}}}};
  const TensorView cache(kv.data(), DType::fp32, {90, 1, 64});
  for (const auto& [spec, scalars] : calls) {
    const AttentionKernel kernel = build(spec, Device::cpu());
    const Plan plan = kernel.plan({.num_qo_heads = 2,
                                   .num_kv_heads = 1,
                                   .qo_indptr = qo_indptr,
                                   .kv_indptr = kv_indptr,
                                   .num_workers = 2,
                                   .scalars = scalars});
    Workspace workspace(Device::cpu(), plan.workspace_bytes());
    kernel.run(plan,
               {.q = TensorView(q.data(), DType::fp32, {2, 2, 64}),
                .kv = {cache, cache},
                .o = TensorView(o.data(), DType::fp32, {2, 2, 64})},
               workspace);
    const fs::path call = newest_call();
    const Result result = run_weft({"replay", call, "--bisect", "--json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (result.exit_code != 0) continue;
    EXPECT_EQ(result.last().at("recorded"), "same bits");
    EXPECT_TRUE(result.last().at("right"));
    EXPECT_GT(result.last().at("worst"), 0.0);
    const nlohmann::json recorded = nlohmann::json::parse(read(call / "call.json"));
    EXPECT_EQ(recorded.at("plan_scalars").at(0).at("name"), scalars[0].name);
    EXPECT_EQ(recorded.at("plan_scalars").at(0).at("value"), scalars[0].value);
  }
}

TEST(Replay, KeepsEveryFieldOfASpec) {
  own_calls();
  const AttentionSpec spec{.head_dim_qk = 64, .head_dim_vo = 64, .page_size = 4};
  const AttentionKernel kernel = build(spec, Device::cpu());
  const std::vector<float> q(64, 1.f), cache(4 * 64, 1.f);
  std::vector<float> o(64);
  const std::vector<int32_t> qo_indptr{0, 1}, page_indptr{0, 1}, ids{0}, last{3};
  const Plan plan = kernel.plan({.num_qo_heads = 1,
                                 .num_kv_heads = 1,
                                 .qo_indptr = qo_indptr,
                                 .pages = {4, 1, page_indptr, ids, last},
                                 .num_workers = 1});
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  const TensorView pages(cache.data(), DType::fp32, {1, 4, 1, 64});
  kernel.run(plan,
             {.q = TensorView(q.data(), DType::fp32, {1, 1, 64}),
              .kv = {pages, pages},
              .o = TensorView(o.data(), DType::fp32, {1, 1, 64})},
             workspace);
  const nlohmann::json recorded = nlohmann::json::parse(read(newest_call() / "call.json")).at("spec");
  for_each_field(spec, [&](std::string_view name, const auto&) { EXPECT_TRUE(recorded.contains(name)) << name; });
  EXPECT_EQ(recorded.at("page_size"), 4);
  const Result result = run_weft({"replay", newest_call(), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.last().at("recorded"), "same bits");
}

// A variant that computes something else in float than in double, at one key: a kernel's mistake, as seen from fp64.
TEST(Replay, BisectsToTheFirstWrongItem) {
  own_calls();
  constexpr int kTokens = 200, kWrongKey = 137;
  AttentionSpec spec{.head_dim_qk = 64, .head_dim_vo = 64, .kv_form = KvForm::ragged};
  spec.variant = {.name = "Slip", .text = R"(
struct Slip {
  real logits_transform(P, Score c, real s) { return c.kv_idx == 137 && sizeof(real) == 4 ? s + 1 : s; }
};
)"};
  const AttentionKernel kernel = build(spec, Device::cpu());
  std::vector<float> q(2 * 64), kv(kTokens * 64), o(2 * 64);
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (std::vector<float>* x : {&q, &kv})
    for (float& value : *x) value = normal(random);
  const std::vector<int32_t> qo_indptr{0, 1}, kv_indptr{0, kTokens};
  const Plan plan = kernel.plan({.num_qo_heads = 2,
                                 .num_kv_heads = 1,
                                 .qo_indptr = qo_indptr,
                                 .kv_indptr = kv_indptr,
                                 .num_workers = 2,
                                 .mode = PlanMode::fixed_split,
                                 .fixed_split_size = 64});
  Workspace workspace(Device::cpu(), plan.workspace_bytes());
  const TensorView cache(kv.data(), DType::fp32, {kTokens, 1, 64});
  kernel.run(plan,
             {.q = TensorView(q.data(), DType::fp32, {1, 2, 64}),
              .kv = {cache, cache},
              .o = TensorView(o.data(), DType::fp32, {1, 2, 64})},
             workspace);
  const fs::path call = newest_call();
  const Result result = run_weft({"replay", call, "--bisect", "--json"});
  EXPECT_EQ(result.exit_code, 1) << result.err;
  EXPECT_FALSE(result.last().at("right"));
  EXPECT_EQ(result.last().at("recorded"), "same bits");
  attention::PlanHeader header;
  const std::string bytes = read(call / "plan.bin");
  std::memcpy(&header, bytes.data(), sizeof header);
  attention::WorkItem item;
  std::memcpy(&item, bytes.data() + header.items.offset + result.last().at("item").get<int>() * sizeof item,
              sizeof item);
  EXPECT_LE(item.kv_begin, kWrongKey);
  EXPECT_GT(item.kv_end, kWrongKey);
  const Result table = run_weft({"replay", call, "--bisect"});
  EXPECT_NE(table.out.find("first wrong row in it: o[0, "), std::string::npos) << table.out;
}

TEST(Replay, RefusesWhatIsNoRecordedCall) {
  const fs::path folder = own_folder().path("none");
  const Result missing = run_weft({"replay", folder});
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_NE(missing.err.find("io_error"), std::string::npos) << missing.err;
  const fs::path call = record("refuse").front();
  const Result backend = run_weft({"replay", call, "--backend", "simt"});
  EXPECT_EQ(backend.exit_code, 3);
  EXPECT_NE(backend.err.find("--backend = simt; allowed are cpu and cuda:N"), std::string::npos) << backend.err;
  const Result card = run_weft({"replay", call, "--backend", "cuda"}, {.environment = {"WEFT_CUDA_LIBS=none"}});
  EXPECT_EQ(card.exit_code, 4);
  EXPECT_NE(card.err.find("or use --backend cpu"), std::string::npos) << card.err;
  const std::string q = read(call / "q.bin");
  write(call / "q.bin", q.substr(1));
  const Result cut = run_weft({"replay", call});
  EXPECT_EQ(cut.exit_code, 3);
  EXPECT_NE(cut.err.find("invalid_file"), std::string::npos) << cut.err;
}

// Any damage to a plan or its description ends in a refusal or a result, never in a signal.
TEST(Replay, SurvivesDamagedFiles) {
  const fs::path call = record("damage", "1").back();
  std::mt19937 random(7);
  for (const char* name : {"plan.bin", "call.json"}) {
    const std::string whole = read(call / name);
    for (int i = 0; i < 40; ++i) {
      std::string bytes = whole;
      for (int change = 0; change <= i % 3; ++change)
        bytes[random() % bytes.size()] = static_cast<char>(random() % 4 == 0 ? 0xff : random());
      if (i % 10 == 9) bytes.resize(random() % bytes.size());
      write(call / name, bytes);
      const Result result = run_weft({"replay", call, "--json"});
      EXPECT_EQ(result.signal, 0) << name << " " << i << ": " << result.err;
      EXPECT_TRUE(std::set({0, 1, 3, 4}).contains(result.exit_code)) << name << " " << i << ": " << result.err;
      EXPECT_EQ(result.err.find("internal"), std::string::npos) << name << " " << i << ": " << result.err;
    }
    write(call / name, whole);
  }
}

TEST(Record, RefusesAFolderThatCannotBeMade) {
  const Result result =
      run_weft({"run", kStoriesModel, "--raw", "-p", "a", "-n", "1"}, {.environment = {"WEFT_RECORD=/dev/null/calls"}});
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_NE(result.err.find("WEFT_RECORD"), std::string::npos) << result.err;
}

TEST(Trace, HoldsEveryItemOfEveryRun) {
  const fs::path file = own_folder().path("trace.json");
  const Result result = run_weft({"run", kStoriesModel, "--raw", "-p", "Once upon a time", "-n", "3", "--threads", "2"},
                                 {.environment = {"WEFT_TRACE=" + file.string()}});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json events = nlohmann::json::parse(read(file));
  ASSERT_TRUE(events.is_array());
  ASSERT_GE(events.size(), 15u);  // five layers and three steps
  for (const nlohmann::json& event : events) {
    EXPECT_EQ(event.at("ph"), "X");
    EXPECT_GE(event.at("dur"), 0.0);
    EXPECT_LT(event.at("tid"), 2);
    EXPECT_TRUE(event.at("cat") == "attend" || event.at("cat") == "merge");
  }
  const Result refused = run_weft({"run", kStoriesModel, "--raw", "-p", "a", "-n", "1"},
                                  {.environment = {"WEFT_TRACE=/dev/null/trace.json"}});
  EXPECT_EQ(refused.exit_code, 3);
  EXPECT_NE(refused.err.find("WEFT_TRACE"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace weft::testing
