#include "tests/cli/program.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <regex>

#include "jit/host/module.h"
#include "tests/support/random_model.h"

namespace weft::testing {
namespace {

nlohmann::json golden() { return nlohmann::json::parse(std::ifstream(WEFT_TEST_DATA "/stories260K_golden.json")); }
std::vector<int32_t> golden_answer() {
  std::vector<int32_t> ids = golden().at("greedy_tokens");
  ids.erase(ids.begin());  // BOS
  return ids;
}

// ---- arguments

TEST(Program, TellsItsVersionAndItsVerbs) {
  EXPECT_TRUE(std::regex_match(run_weft({"--version"}).out, std::regex("weft \\d+\\.\\d+\\.\\d+\n")));
  const Result help = run_weft({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* verb : {"run", "eval", "tokenize", "plan", "jit", "bench", "doctor"})
    EXPECT_NE(help.out.find(verb), std::string::npos) << verb;
}

TEST(Program, ShowsDefaultsEnvironmentAndAnExampleInTheHelpOfEachVerb) {
  for (const char* verb : {"run", "eval", "tokenize", "doctor"}) {
    const Result help = run_weft({verb, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    for (const std::string& text :
         {std::string("Example:\n  weft ") + verb, std::string("WEFT_NUM_THREADS"), std::string("--json")})
      EXPECT_NE(help.out.find(text), std::string::npos) << verb << ": " << text;
  }
  const std::string run = run_weft({"run", "--help"}).out;
  for (const char* flag : {"--num-tokens INT=512", "--raw", "--temp FLOAT=the model's", "--top-k INT=the model's",
                           "--top-p FLOAT=the model's", "--min-p FLOAT=the model's", "--seed UINT=0", "--threads INT=0",
                           "--ctx INT=0", "--kv-dtype", "--device TEXT=cpu", "--precision", "--invariant"})
    EXPECT_NE(std::regex_replace(run, std::regex("[ ]*\\[[^\\]]*\\]"), "").find(flag), std::string::npos)
        << flag << "\n"
        << run;
}

TEST(Program, NamesTheRightFlagForAWrongOne) {
  expect_refusal(run_weft({"run", kStories, "--promt", "x"}), 2, "usage", "did you mean --prompt?");
  expect_refusal(run_weft({"eval", kStories, "--strde=4"}), 2, "usage", "did you mean --stride?");
  expect_refusal(run_weft({"run", kStories, "--tempp", "0"}), 2, "usage", "did you mean --temp?");
  expect_refusal(run_weft({"rnu"}), 2, "usage", "did you mean 'run'?");
  expect_refusal(run_weft({"nonsense"}), 2, "usage", "allowed are run, eval");
  expect_refusal(run_weft({}), 2, "usage", "a verb is missing");
}

TEST(Program, CallsAMissingOrMalformedArgumentWrongUsage) {
  expect_refusal(run_weft({"run"}), 2, "usage", "model is required");
  expect_refusal(run_weft({"run", kStories, "-p", "x", "-n", "many"}), 2, "usage", "many");
  expect_refusal(run_weft({"run", kStories, "-p", "x", "--precision", "double"}), 2, "usage", "exact");
  expect_refusal(run_weft({"run", kStories, "-p", "x", "-f", "y"}), 2, "usage", "excludes");
}

TEST(Program, CallsANumberOutOfRangeBadInput) {
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{"--temp", "-1"}, "0 to 100"}, {{"--top-p", "0"}, "above 0 to 1"}, {{"--min-p", "2"}, "0 (off) to 1"},
      {{"--top-k", "-1"}, "0 (off)"}, {{"--threads", "-1"}, "0 to 1024"}, {{"--ctx", "-5"}, "0 (automatic)"},
      {{"--ctx", "100000"}, "512"},   {{"-n", "0"}, "-1 for no limit"},   {{"--device", "tpu"}, "cpu and cuda"}};
  for (const auto& [flags, mentions] : cases) {
    std::vector<std::string> arguments = {"run", kStories, "-p", "x", "--raw"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    expect_refusal(run_weft(arguments), 3, "invalid_argument", mentions);
  }
}

TEST(Program, SaysWhatTheMachineLacks) {
  expect_refusal(run_weft({"run", kStories, "-p", "x", "--raw", "--device", "cuda:0"}), 4, "unsupported",
                 "--device cpu");
  expect_refusal(run_weft({"run", kStories, "-p", "x", "--raw"}, {.environment = {"WEFT_NUM_THREADS=many"}}), 3,
                 "invalid_argument", "WEFT_NUM_THREADS");
}

TEST(Program, CallsAFileThatIsNoModelBadInput) {
  expect_refusal(run_weft({"run", "/no/such/file", "-p", "x"}), 3, "io_error", "/no/such/file");
  expect_refusal(run_weft({"tokenize", WEFT_TEST_DATA "/english.txt", "-p", "x"}), 3, "invalid_file", "GGUF");
  expect_refusal(run_weft({"eval", kStories, "-f", "/no/such/text"}), 3, "io_error", "/no/such/text");
  GgufWriter other = random_model({});
  other.remove("tokenizer.ggml.model");
  other.add("tokenizer.ggml.model", "bert");
  // What the file asks for is not the machine's fault.
  expect_refusal(run_weft({"tokenize", temporary_file("bert.gguf", other.bytes()), "-p", "x"}), 3, "unsupported",
                 "bert");
}

// ---- tokenize

TEST(Program, TurnsTextIntoIdsAndBack) {
  const Result ids = run_weft({"tokenize", kStories, "-p", "Once upon a time"});
  EXPECT_EQ(ids.out, "1 403 407 261 378\n");
  EXPECT_EQ(run_weft({"tokenize", kStories, "--decode", "--no-special"}, {.input = ids.out}).out, "Once upon a time");
  EXPECT_EQ(run_weft({"tokenize", kStories, "--decode", "--no-special", "-p", "[403, 407]"}).out, "Once upon");
  EXPECT_EQ(run_weft({"tokenize", kStories, "-p", "a", "--no-special"}).out, "261\n");
  EXPECT_EQ(run_weft({"tokenize", kStories, "-p", ""}).out, "1\n");
  EXPECT_EQ(run_weft({"tokenize", kStories, "--json"}, {.input = "Once upon a time"}).last(),
            (nlohmann::json{{"ids", {1, 403, 407, 261, 378}}}));
  EXPECT_EQ(run_weft({"tokenize", kStories, "--pieces", "--json", "-p", "a b"}).last().at("pieces"),
            (nlohmann::json{"<s>", " a", " b"}));
  expect_refusal(run_weft({"tokenize", kStories, "--decode", "-p", "1 x"}), 3, "invalid_argument", "byte 2");
  expect_refusal(run_weft({"tokenize", kStories, "--decode", "-p", "512"}), 3, "invalid_token", "0 to 511");
}

TEST(Program, TakesTextThatIsNotUtf8) {
  const Result ids = run_weft({"tokenize", kStories, "--json", "--no-special"}, {.input = "a\xff\xfe"});
  ASSERT_EQ(ids.exit_code, 0) << ids.err;
  std::string list = ids.last().at("ids").dump();
  EXPECT_EQ(run_weft({"tokenize", kStories, "--decode", "-p", list}).out, "a\xff\xfe");
}

// ---- run

std::string chat_model_of(const std::string& name) {
  GgufWriter model = random_model({});
  model.remove("general.name");
  model.add("general.name", name);
  model.add("tokenizer.chat_template", "{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}");
  return temporary_file("named.gguf", model.bytes());
}

TEST(Program, SamplesAsTheModelsFamilySaysWhereNoOptionDoes) {
  const std::string model = chat_model_of("SmolLM2 135M Instruct");
  const auto sampling = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"run", model, "-p", "a", "-n", "1", "--json"});
    return run_weft(options).last().at("sampling");
  };
  EXPECT_EQ(sampling({}), nlohmann::json::parse(R"({"temperature": 0.2, "top_k": 0, "top_p": 0.9, "min_p": 0,
                                                    "repetition_penalty": 1, "source": "SmolLM2"})"));
  EXPECT_EQ(sampling({"--temp", "0"}).at("temperature"), 0);
  EXPECT_EQ(sampling({"--top-p", "1"}).at("temperature"), 0.2);
  const Result shown = run_weft({"run", model, "-p", "a", "-n", "1"});
  EXPECT_NE(shown.err.find("sampling: temperature 0.2, top-p 0.9 (SmolLM2)"), std::string::npos) << shown.err;
}

TEST(Program, PutsTheSystemPromptBeforeTheMessage) {
  const std::string model = chat_model_of("some");
  const auto tokens = [&](std::vector<std::string> options) {
    options.insert(options.begin(), {"run", model, "-p", "a", "-n", "1", "--json"});
    return run_weft(options).last().at("prompt_tokens").get<int>();
  };
  EXPECT_GT(tokens({"--system", "b"}), tokens({}));
  expect_refusal(run_weft({"run", model, "-p", "a", "--raw", "--system", "b"}), 3, "invalid_argument", "--system");
}

// A template that raises, as Gemma 2's does, and one that does not look at it.
TEST(Program, RefusesASystemPromptThatTheTemplateTakesNot) {
  for (const auto& [chat_template, code, message] :
       {std::tuple("{% if messages[0].role == 'system' %}{{ raise_exception('no system here') }}{% endif %}"
                   "{{ messages[0].content }}",
                   "invalid_template", "the model's chat template takes no system prompt: line 1: "),
        std::tuple("{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", "invalid_argument",
                   "the model's chat template leaves a system prompt out; put it into the message")}) {
    GgufWriter gguf = random_model({});
    gguf.add("tokenizer.chat_template", chat_template);
    const std::string model = temporary_file("no_system.gguf", gguf.bytes());
    expect_refusal(run_weft({"run", model, "-p", "a", "-n", "1", "--system", "b"}), 3, code, message);
    expect_refusal(run_weft({"run", model, "--system", "b"}, {.terminal = true}), 3, code, message);
    EXPECT_EQ(run_weft({"run", model, "-p", "a", "-n", "1"}).exit_code, 0);
  }
}

// The default that a template has may be said, too.
TEST(Program, TakesASystemPromptThatIsTheTemplatesOwn) {
  GgufWriter gguf = random_model({});
  gguf.add("tokenizer.chat_template",
           "{% if messages[0].role != 'system' %}<own>{% endif %}{% for m in messages %}<{{ m.content }}>{% endfor %}");
  const std::string model = temporary_file("own_system.gguf", gguf.bytes());
  const auto ids = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"run", model, "-p", "a", "-n", "1", "--json"});
    return run_weft(more).last().at("prompt_tokens");
  };
  EXPECT_EQ(ids({"--system", "own"}), ids({}));
}

TEST(Program, PeakMemoryIsItsOwnAndNotThatOfWhoStartedIt) {
  std::vector<char> held(size_t{400} << 20, 1);  // what a fork inherits outlives exec in getrusage's peak
  const nlohmann::json done = run_weft({"run", kStories, "-p", "a", "-n", "1", "--raw", "--json"}).last();
  EXPECT_LT(done.at("peak_rss_bytes").get<double>(), 200e6) << static_cast<int>(held[held.size() / 2]);
}

TEST(Program, AnswersWithTheGoldenTokens) {
  const Result result =
      run_weft({"run", kStories, "-p", "", "-n", "199", "--temp", "0", "--raw", "--precision", "exact", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json done = result.last();
  EXPECT_EQ(done.at("ids").get<std::vector<int32_t>>(), golden_answer());
  const std::string text = done.at("text");
  EXPECT_TRUE(golden().at("greedy_text_200_steps").get<std::string>().starts_with(text)) << text;
  EXPECT_EQ(done.at("event"), "done");
  EXPECT_EQ(done.at("prompt_tokens"), 1);
  EXPECT_EQ(done.at("output_tokens"), 199);
  EXPECT_EQ(done.at("device"), "cpu");
  EXPECT_EQ(done.at("sampling").at("temperature"), 0);
  EXPECT_TRUE(done.at("sampling").at("source").is_null());  // nothing is known of the model
  for (const char* key : {"load_s", "prefill_s", "prefill_tok_s", "decode_tok_s", "peak_rss_bytes"})
    EXPECT_GT(done.at(key).get<double>(), 0) << key;
  // The pieces that streamed are the text.
  std::string streamed;
  for (const std::string& line : result.lines())
    if (const auto event = nlohmann::json::parse(line); event.at("event") == "token") streamed += event.at("text");
  EXPECT_EQ(streamed, text);
}

TEST(Program, GivesTheGoldenTokensWithAnyWorkersAndForcedSplits) {
  for (const char* threads : {"1", "7"}) {
    const Result result = run_weft({"run", kStories, "-p", "", "-n", "199", "--raw", "--precision", "exact", "--json",
                                    "--threads", threads, "--invariant"});
    EXPECT_EQ(result.last().at("ids").get<std::vector<int32_t>>(), golden_answer()) << threads;
  }
}

TEST(Program, StreamsPlainTextAndKeepsFiguresOnStderr) {
  const Result result = run_weft({"run", kStories, "-p", "Once upon", "-n", "20", "--raw"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(result.out.starts_with(" a time")) << result.out;
  EXPECT_TRUE(result.out.ends_with("\n"));
  EXPECT_NE(result.err.find("answer tokens"), std::string::npos) << result.err;
}

TEST(Program, DrawsTheSameTokensForTheSameSeed) {
  const auto draw = [](const char* seed) {
    return run_weft({"run", kStories, "-p", "", "-n", "40", "--raw", "--temp", "1", "--top-k", "50", "--top-p", "0.95",
                     "--min-p", "0.01", "--seed", seed, "--json"})
        .last()
        .at("ids");
  };
  EXPECT_EQ(draw("3"), draw("3"));
  EXPECT_NE(draw("3"), draw("4"));
}

TEST(Program, TakesThePromptFromAFileAndFromStdin) {
  const std::string file = temporary_file("prompt.txt", "Once upon a time");
  const auto ids = [](const Result& result) { return result.last().at("ids"); };
  const auto expected = ids(run_weft({"run", kStories, "-p", "Once upon a time", "-n", "5", "--raw", "--json"}));
  EXPECT_EQ(ids(run_weft({"run", kStories, "-f", file, "-n", "5", "--raw", "--json"})), expected);
  EXPECT_EQ(ids(run_weft({"run", kStories, "-n", "5", "--raw", "--json"}, {.input = "Once upon a time"})), expected);
  EXPECT_EQ(ids(run_weft({"run", kStories, "-f", "-", "-n", "5", "--raw", "--json"}, {.input = "Once upon a time"})),
            expected);
}

TEST(Program, EndsAtTheContextsEndAndRefusesALongerPrompt) {
  const Result full = run_weft({"run", kStories, "-p", "Once", "-n", "-1", "--ctx", "32", "--raw", "--json"});
  EXPECT_EQ(full.last().at("finish"), "context");
  EXPECT_EQ(full.last().at("output_tokens").get<int>() + full.last().at("prompt_tokens").get<int>(), 33);
  std::string many;
  for (int i = 0; i < 600; ++i) many += "one ";
  expect_refusal(run_weft({"run", kStories, "-p", many, "--raw"}), 3, "context_full", "512");
}

TEST(Program, PutsThePromptIntoTheModelsTemplate) {
  GgufWriter model = random_model({});
  model.add("tokenizer.chat_template",
            "{{ bos_token }}{% for m in messages %}<{{ m.role }}> {{ m.content }}{% endfor %}");
  const std::string path = temporary_file("chat.gguf", model.bytes());
  const auto count = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"run", path, "-p", "hi", "-n", "1", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_weft(arguments).last().at("prompt_tokens").get<int>();
  };
  EXPECT_EQ(count({"--raw"}), 4);  // <s>, the mark of a space, h, i
  EXPECT_EQ(count({}), 1 + 1 + 6 + 1 + 2);
}

TEST(Program, PointsAtTheLineOfATemplateItCannotRender) {
  GgufWriter model = random_model({});
  model.add("tokenizer.chat_template", "a\n{% include 'b' %}");
  expect_refusal(run_weft({"run", temporary_file("include.gguf", model.bytes()), "-p", "hi"}), 3, "invalid_template",
                 "line 2");
}

// ---- eval

TEST(Program, ScoresEveryNextToken) {
  const std::string text = "Once upon a time, there was a little girl named Lily.";
  const Result result = run_weft({"eval", kStories, "-p", text, "--top", "3", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<int32_t> ids = run_weft({"tokenize", kStories, "-p", text, "--json"}).last().at("ids");
  const std::vector<std::string> lines = result.lines();
  ASSERT_EQ(lines.size(), ids.size());  // one a predicted token, and the summary
  double sum = 0;
  for (size_t i = 1; i < ids.size(); ++i) {
    const auto row = nlohmann::json::parse(lines[i - 1]);
    EXPECT_EQ(row.at("position"), i);
    EXPECT_EQ(row.at("id"), ids[i]);
    EXPECT_EQ(row.at("top").size(), 3u);
    EXPECT_GE(row.at("top")[0][1], row.at("top")[1][1]);
    EXPECT_LE(row.at("logprob"), 0);
    EXPECT_TRUE(row.at("token").is_string());
    sum += row.at("logprob").get<double>();
  }
  const nlohmann::json done = result.last();
  EXPECT_EQ(done.at("event"), "done");
  EXPECT_EQ(done.at("tokens"), ids.size() - 1);
  EXPECT_NEAR(done.at("perplexity"), std::exp(-sum / static_cast<double>(ids.size() - 1)), 1e-6);
  EXPECT_LT(done.at("perplexity"), 3);  // the model knows its stories
}

TEST(Program, ScoresATextLongerThanTheContextInWindowsOnly) {
  const std::string text = WEFT_TEST_DATA "/english.txt";
  expect_refusal(run_weft({"eval", kStories, "-f", text}), 3, "context_full", "--stride");
  expect_refusal(run_weft({"eval", kStories, "-f", text, "--stride", "512"}), 3, "invalid_argument", "0 to 511");
  const Result result = run_weft({"eval", kStories, "-f", text, "-n", "1500", "--stride", "300", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(result.last().at("tokens"), 1499);
  // Every position once, in order.
  const std::vector<std::string> lines = result.lines();
  for (size_t i = 0; i + 1 < lines.size(); ++i) EXPECT_EQ(nlohmann::json::parse(lines[i]).at("position"), i + 1);
}

TEST(Program, ScoresTheSameWithinAWindowAsAlone) {
  const std::string text = WEFT_TEST_DATA "/english.txt";
  const auto rows = [&](std::vector<std::string> flags) {
    std::vector<std::string> arguments = {"eval", kStories, "-f", text, "-n", "200", "--precision", "exact", "--json"};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return run_weft(arguments).lines();
  };
  const auto whole = rows({}), windows = rows({"--ctx", "150", "--stride", "50"});
  ASSERT_EQ(whole.size(), windows.size());
  for (size_t i = 0; i < 149; ++i)  // the first window
    EXPECT_NEAR(nlohmann::json::parse(whole[i]).at("logprob"), nlohmann::json::parse(windows[i]).at("logprob"), 1e-4);
}

// ---- plan

TEST(Program, PlansTheLengthsItIsGiven) {
  const std::vector<std::string> lengths = {"plan",         "--qo",          "1,1,512", "--kv",
                                            "4096,100,512", "--num-workers", "4",       "--causal"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), lengths.begin(), lengths.end());
    return run_weft(more);
  };
  const nlohmann::json plan = with({"--json"}).last();
  EXPECT_EQ(plan.at("workers"), 4);
  EXPECT_GE(plan.at("items"), 4);
  EXPECT_GE(plan.at("makespan").get<double>(), plan.at("lower_bound").get<double>());
  EXPECT_LE(plan.at("makespan").get<double>(), 1.1 * plan.at("lower_bound").get<double>());
  for (const char* key : {"workspace_bytes", "plan_us"}) EXPECT_GT(plan.at(key).get<double>(), 0) << key;
  EXPECT_EQ(with({"--mode", "no_split", "--json"}).last().at("partials"), 0);
  EXPECT_NE(with({}).out.find("worker"), std::string::npos);

  const std::string drawing = temporary_file("plan.svg", "");
  EXPECT_EQ(with({"--svg", drawing}).exit_code, 0);
  std::string begin(4, ' ');
  std::ifstream(drawing).read(begin.data(), 4);
  EXPECT_EQ(begin, "<svg");

  expect_refusal(run_weft({"plan", "--qo", "1,1", "--kv", "4096,1,1"}), 3, "invalid_argument", "--kv has 3");
  // One length is for all requests.
  const auto workspace = [](const char* qo, const char* kv) {
    return run_weft({"plan", "--qo", qo, "--kv", kv, "--num-workers", "4", "--json"}).last().at("workspace_bytes");
  };
  EXPECT_EQ(workspace("1", "1000,2000,3000"), workspace("1,1,1", "1000,2000,3000"));
  EXPECT_EQ(workspace("1,2,3", "1000"), workspace("1,2,3", "1000,1000,1000"));
  expect_refusal(with({"--mode", "fastest"}), 3, "invalid_argument", "balanced, paper");
  expect_refusal(with({"--head-dim", "12"}), 4, "unsupported", "steps of 8");
  expect_refusal(with({"--svg", "/no/such/folder/x.svg"}), 3, "io_error", "--svg");
  expect_refusal(run_weft({"plan", "--qo", "one"}), 2, "usage", "one");
}

TEST(Program, PrintsTheKernelOfAStep) {
  const testing::TempFolder folder;
  const std::string path = folder.path("model.gguf");
  testing::random_model({.weights = testing::GgufWriter::kQ4_1}).write(path);
  const nlohmann::json json = run_weft({"plan", path, "--print", "cuda", "--rows", "3", "--json"}).last();
  EXPECT_EQ(json.at("workers"), 132);
  EXPECT_EQ(json.at("symbol"), "weft_step_of_4");
  const std::string text = run_weft({"plan", path, "--print", "cuda", "--rows", "3"}).out;
  EXPECT_NE(text.find("#include \"decode/fused/cuda/kernels/model.h\""), std::string::npos) << text;
  EXPECT_NE(text.find(json.at("text").get<std::string>()), std::string::npos);
  EXPECT_NE(text.find("void weft_step_of_4("), std::string::npos);
  expect_refusal(run_weft({"plan", "--print", "cuda"}), 3, "invalid_argument", "--print cuda: needs a model");
  expect_refusal(run_weft({"plan", kStories, "--print", "cuda"}), 4, "unsupported", "required head_dim 8");
}

TEST(Program, RefusesAFusedStepThatIsToBeInvariant) {
  expect_refusal(run_weft({"run", kStories, "--raw", "-p", "x", "--step", "fused", "--invariant"}), 3,
                 "invalid_argument", "--step fused with --invariant");
  expect_refusal(run_weft({"run", kStories, "--raw", "-p", "x", "--step", "fused"}), 4, "unsupported",
                 "required device cpu; supported are cards");
}

TEST(Program, RefusesCtasThatNoStepTakes) {
  expect_refusal(run_weft({"run", kStories, "--raw", "-p", "x", "--step-ctas", "4"}), 3, "invalid_argument",
                 "--step-ctas 4 with --step layered");
  expect_refusal(run_weft({"run", kStories, "--raw", "-p", "x", "--step", "auto", "--step-ctas", "-1"}), 3,
                 "invalid_argument", "--step-ctas");
}

TEST(Program, SaysWhyAutomaticStepsAreLayered) {
  const Result result = run_weft({"run", kStories, "--raw", "-p", "x", "-n", "1", "--step", "auto"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_NE(result.err.find("weft: steps: layered: the fused step: required device cpu"), std::string::npos)
      << result.err;
}

TEST(Program, PlansTheStepOfAModel) {
  const std::vector<std::string> command = {"plan", kStories, "--num-workers", "6"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), command.begin(), command.end());
    return run_weft(more);
  };
  const nlohmann::json plan = with({"--json"}).last();
  EXPECT_EQ(plan.at("workers"), 6);
  EXPECT_EQ(plan.at("phases"), 9 * 5 + 1);
  EXPECT_EQ(plan.at("joins"), 9 * 5);
  EXPECT_EQ(plan.at("period"), 1);
  EXPECT_GT(plan.at("weight_bytes"), 260000 * 4);
  const std::string text = with({}).out;
  EXPECT_NE(text.find("layer 0: merge"), std::string::npos);
  EXPECT_NE(text.find("panels"), std::string::npos);
  const std::string drawing = temporary_file("model.svg", "");
  EXPECT_EQ(with({"--svg", drawing}).exit_code, 0);
  std::string begin(4, ' ');
  std::ifstream(drawing).read(begin.data(), 4);
  EXPECT_EQ(begin, "<svg");
  expect_refusal(with({"--svg", "/no/such/folder/x.svg"}), 3, "io_error", "--svg");
  expect_refusal(run_weft({"plan", "/no/such/model.gguf"}), 3, "io_error", "/no/such/model.gguf");
}

// Each of them would be read by nobody.
TEST(Program, PlanRefusesWhatDoesNotGoTogether) {
  const auto refuses = [](std::vector<std::string> arguments, const char* what) {
    arguments.insert(arguments.begin(), "plan");
    expect_refusal(run_weft(arguments), 3, "invalid_argument", what);
  };
  refuses({kStories, "--kv", "7"}, "--kv with a model");
  refuses({kStories, "--causal"}, "--causal with a model");
  refuses({kStories, "--rows", "2"}, "--rows 2 without --print cuda");
  refuses({"--rows", "2"}, "--rows 2 without --print cuda");
  refuses({kStories, "--print", "cuda", "--svg", "x.svg"}, "--svg x.svg with --print cuda");
  refuses({kStories, "--num-workers", "-1"}, "--num-workers = '-1'; allowed are 0");
  refuses({""}, "model");
}

TEST(Program, FitsTheCostsOfEveryTileClass) {
  const Result result = run_weft({"bench", "--quick", "plan", "--fit", "--json"});  // options of all, before the name
  ASSERT_EQ(result.exit_code, 0) << result.err;
  double sum = 0;
  int fits = 0;
  for (const std::string& line : result.lines()) {
    const auto row = nlohmann::json::parse(line);
    if (!row.contains("metric")) continue;
    EXPECT_GE(row.at("value").get<double>(), 0) << line;
    if (row.at("metric") == "row_token") sum += row.at("value").get<double>();
    if (row.at("metric") == "error of the fit") ++fits;
  }
  EXPECT_EQ(fits, 2);
  EXPECT_GT(sum, 0);
}

// ---- jit

TEST(Program, KeepsTheKernelCache) {
  const TempFolder folder;
  const RunOptions in_folder{.environment = {"WEFT_CACHE_DIR=" + folder.path("cache")}};
  const auto jit = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "jit");
    return run_weft(arguments, in_folder);
  };
  EXPECT_EQ(jit({"list", "--json"}).out, "");
  setenv("WEFT_CACHE_DIR", folder.path("cache").c_str(), 1);
  const std::string text = "extern \"C\" int answer() { return 42; }\n";
  jit::host_module({.name = "answer", .text = text, .target = jit::host_target(Isa::plain), .flags = {}});
  unsetenv("WEFT_CACHE_DIR");

  const nlohmann::json entry = jit({"list", "--json"}).last();
  const std::string key = entry.at("key");
  EXPECT_EQ(key.size(), 64u);
  EXPECT_EQ(entry.at("intact"), true);
  EXPECT_NE(jit({"list"}).out.find(key.substr(0, 16)), std::string::npos);
  EXPECT_EQ(jit({"show", key, "--json"}).last().at("kernels"), nlohmann::json::array());
  EXPECT_EQ(jit({"show", key}).out, "// answer\n" + text);
  expect_refusal(jit({"show", key, "--sass"}), 3, "invalid_argument", "objdump");
  const std::string object = folder.path("answer.so");
  EXPECT_NE(jit({"show", key.substr(0, 8), "--object", object}).out.find("return 42"), std::string::npos);
  EXPECT_GT(std::filesystem::file_size(object), 1000u);
  EXPECT_EQ(jit({"export", folder.path("copy")}).exit_code, 0);
  EXPECT_EQ(jit({"verify", "--json"}).last().at("removed"), 0);
  expect_refusal(jit({"prune"}), 2, "usage", "--all");
  expect_refusal(jit({"prune", "--max-bytes", "-5"}), 3, "invalid_argument", "--max-bytes = '-5'");
  expect_refusal(jit({"prune", "--max-bytes=-5KB"}), 3, "invalid_argument", "--max-bytes = '-5KB'");
  expect_refusal(jit({"prune", "--max-age", "-5h"}), 3, "invalid_argument", "--max-age = '-5h'");
  expect_refusal(jit({"prune", "--max-bytes", "many"}), 2, "usage", "--max-bytes");
  expect_refusal(jit({"prune", "--max-bytes", "-many"}), 2, "usage", "--max-bytes");
  expect_refusal(jit({"prune", "--max-bytes", "5XB"}), 2, "usage", "--max-bytes");
  expect_refusal(jit({"prune", "--max-age", "5y"}), 2, "usage", "--max-age");
  EXPECT_EQ(jit({"prune", "--all", "--json"}).last().at("removed"), 1);
  EXPECT_EQ(jit({"list", "--json"}).out, "");
  expect_refusal(jit({"show", key}), 3, "invalid_argument", key.substr(0, 8));
  const Result copied = run_weft({"jit", "list", "--json"}, {.environment = {"WEFT_CACHE_DIR=" + folder.path("copy")}});
  EXPECT_EQ(copied.last().at("key"), key);
}

// A disassembler that tells what it was given; Weft asks for no other where PATH has one.
std::string fake_disassembler(const TempFolder& folder) {
  const std::string path = folder.path("nvdisasm");
  std::ofstream(path)
      << "#!/bin/sh\nfor file; do :; done\nprintf 'SASS of a file that begins with '; head -c 4 \"$file\" | "
         "tail -c 3\n";
  std::filesystem::permissions(path, std::filesystem::perms::owner_all);
  return path.substr(0, path.rfind('/'));
}

TEST(Program, CompilesKernelsForACardThatIsNotHere) {
  const TempFolder folder;
  const auto jit = [&](std::vector<std::string> arguments, const std::string& path = "/usr/bin:/bin") {
    arguments.insert(arguments.begin(), "jit");
    std::vector<std::string> environment = {"WEFT_CACHE_DIR=" + folder.path("cache"), "PATH=" + path};
    if (const char* libraries = std::getenv("WEFT_CUDA_LIBS"))
      environment.push_back(fmt::format("WEFT_CUDA_LIBS={}", libraries));
    return run_weft(arguments, {.environment = environment});
  };
  const std::vector<std::string> compile = {"compile", "--arch",     "sm_80", "--dtype",
                                            "fp32",    "--head-dim", "64",    "--json"};
  const Result made = jit(compile);
  if (made.exit_code == 4) {
    expect_refusal(made, 4, "no_compiler", "nvidia-cuda-nvrtc");
    GTEST_SKIP() << "no NVRTC here: " << made.err;
  }
  ASSERT_EQ(made.lines().size(), 1u) << made.out << made.err;  // fp32 has no products of warps
  const nlohmann::json plain = made.last();
  EXPECT_EQ(plain.at("name"), "attention plain fp32 hd64 plain sm_80");
  EXPECT_EQ(plain.at("from"), "compiler");
  EXPECT_EQ(jit(compile).last().at("from"), "disk");

  const std::string key = plain.at("key");
  const nlohmann::json shown = jit({"show", key, "--json"}).last();
  EXPECT_NE(shown.at("text").get<std::string>().find("weft_attend"), std::string::npos);
  ASSERT_EQ(shown.at("kernels").size(), 1u);
  EXPECT_EQ(shown.at("kernels").at(0).at("name"), "weft_attend");
  EXPECT_EQ(shown.at("kernels").at(0).at("registers"), plain.at("registers"));
  EXPECT_GT(plain.at("registers").get<int>(), 16);
  EXPECT_LE(plain.at("registers").get<int>(), 255);
  EXPECT_EQ(shown.at("name"), plain.at("name"));
  EXPECT_EQ(jit({"show", key})
                .out.find("// attention plain fp32 hd64 plain sm_80\n// weft_attend: " + plain.at("registers").dump() +
                          " registers a thread"),
            0u);
  EXPECT_NE(jit({"show", key, "--sass"}, fake_disassembler(folder) + ":/usr/bin:/bin").out.find("begins with ELF"),
            std::string::npos);
  // Who computes it, and why nobody faster does.
  EXPECT_NE(
      jit({compile.begin(), compile.end() - 1})
          .out.find(
              "by plain; not by producer: sm_80 has no products of warpgroups; not by wgmma: sm_80 has no products "
              "of warpgroups; "
              "not by mma: sm_80 has no products in fp32; not by latent: KV is not latent\n"),
      std::string::npos);
  expect_refusal(jit({"compile", "--latent", "--head-dim", "40"}), 4, "unsupported", "head_dim_vo = -24");
  expect_refusal(jit({"compile", "--dtype", "bf17"}), 3, "invalid_dtype", "bf17");
}

// ---- doctor

TEST(Program, ExaminesTheMachine) {
  const Result result = run_weft({"doctor", "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  const nlohmann::json checks = result.last().at("checks");
  EXPECT_GE(checks.size(), 7u);
  for (const auto& check : checks) {
    for (const char* key : {"name", "detail", "fix"}) EXPECT_TRUE(check.at(key).is_string()) << check;
    EXPECT_TRUE(check.at("ok").is_boolean());
    EXPECT_EQ(check.at("fix").get<std::string>().empty(), check.at("ok").get<bool>()) << check;
  }
  EXPECT_NE(run_weft({"doctor"}).out.find("This machine can run models."), std::string::npos);
}

TEST(Program, SaysWhatACardLacksAndThatNothingElseNeedsIt) {
  const Result result = run_weft({"doctor", "--json"}, {.environment = {"WEFT_CUDA_LIBS=none"}});
  EXPECT_EQ(result.exit_code, 0) << result.out;
  int found = 0;
  const nlohmann::json checks = result.last().at("checks");
  for (const auto& check : checks) {
    if (check.at("name") != "NVIDIA card" && check.at("name") != "NVRTC" && check.at("name") != "cuBLASLt") continue;
    ++found;
    EXPECT_FALSE(check.at("ok").get<bool>());
    EXPECT_NE(check.at("detail").get<std::string>().find("WEFT_CUDA_LIBS=none switches CUDA off"), std::string::npos)
        << check;
  }
  EXPECT_EQ(found, 3);
}

}  // namespace
}  // namespace weft::testing
