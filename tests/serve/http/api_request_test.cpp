#include "serve/http/api_request.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decode/text_stream.h"
#include "serve/http/api_answer.h"
#include "serve/http/failure.h"
#include "tests/support/sanitizers.h"
#include "weft/error.h"

namespace weft::serve::http {
namespace {

using nlohmann::json;

struct ApiRequestTest : ::testing::Test {
  const ModelFile file{WEFT_TEST_DATA "/stories260K.gguf"};
  const Tokenizer tokenizer{file};
  const ChatTemplate chat_template{"{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"};
  ServerOptions options;
  ApiRequestTest() { options.model_name = "stories"; }

  ApiRequest chat(const json& body) const { return read_chat(body.dump(), {tokenizer, &chat_template}, options); }
  ApiRequest completion(const json& body) const { return read_completion(body.dump(), {tokenizer, nullptr}, options); }

  // The field that a refusal names.
  template <class Read>
  static std::string refused(const Read& read) {
    try {
      read();
    } catch (const Failure& failure) {
      EXPECT_GE(failure.status, 400);
      EXPECT_LT(failure.status, 500);
      const json error = json::parse(failure.json()).at("error");
      for (const char* key : {"message", "type", "param", "code"}) EXPECT_TRUE(error.contains(key)) << key;
      return failure.param.empty() ? std::string("?") + failure.what() : failure.param;
    } catch (const Error& error) {
      return std::string(to_string(error.code()));
    }
    return "accepted";
  }
  // What a refusal says, and its code.
  template <class Read>
  static json failure(const Read& read) {
    try {
      read();
    } catch (const Failure& failure) {
      return json::parse(failure.json()).at("error");
    }
    return nullptr;
  }
  std::string text_of(const json& body) const { return tokenizer.decode(chat(body).requests[0].prompt); }
  static json hello() { return {{"messages", {{{"role", "user"}, {"content", "hello"}}}}}; }
};

TEST_F(ApiRequestTest, ReadsAChatWithItsDefaults) {
  const ApiRequest api = chat(hello());
  ASSERT_EQ(api.requests.size(), 1u);
  const Request& request = api.requests[0];
  EXPECT_EQ(tokenizer.decode(request.prompt), "[user]hello");
  EXPECT_EQ(request.max_tokens, -1);
  EXPECT_EQ(request.sampling.temperature, 1.f);
  EXPECT_FALSE(api.stream);
  EXPECT_NE(chat(hello()).requests[0].seed, request.seed) << "without a seed, each has its own";
}

TEST_F(ApiRequestTest, ReadsEveryField) {
  json body = hello();
  body.update({{"model", "stories"},
               {"max_completion_tokens", 7},
               {"n", 3},
               {"temperature", 0.5},
               {"top_p", 0.9},
               {"top_k", 5},
               {"min_p", 0.1},
               {"presence_penalty", 1},
               {"frequency_penalty", -1},
               {"repetition_penalty", 1.1},
               {"seed", -5},
               {"stop", {"a", "b"}},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"logprobs", true},
               {"top_logprobs", 4},
               {"logit_bias", {{"17", -100}}},
               {"ignore_eos", true},
               {"min_tokens", 2},
               {"priority", 4},
               {"user", "x"},
               {"store", true},
               {"metadata", {{"a", "b"}}},
               {"service_tier", "auto"},
               {"response_format", {{"type", "text"}}},
               {"tools", json::array()},
               {"tool_choice", "none"},
               {"parallel_tool_calls", true},
               {"functions", nullptr}});
  const ApiRequest api = chat(body);
  const Request& request = api.requests[0];
  EXPECT_TRUE(api.stream && api.include_usage && api.logprobs && request.ignore_eos);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.logprobs, 4);
  EXPECT_EQ(request.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.logit_bias, (std::vector<std::pair<int32_t, float>>{{17, -100.f}}));
  EXPECT_EQ(request.seed, static_cast<uint64_t>(-5));
  EXPECT_EQ(request.priority, 4);
}

TEST_F(ApiRequestTest, ReadsPromptsInAllFourForms) {
  EXPECT_EQ(completion({{"prompt", "hello"}}).requests[0].prompt, tokenizer.encode("hello"));
  EXPECT_EQ(completion({{"prompt", {1, 2, 3}}}).requests[0].prompt, (std::vector<int32_t>{1, 2, 3}));
  EXPECT_EQ(completion({{"prompt", {"a", "b"}}}).requests.size(), 2u);
  EXPECT_EQ(completion({{"prompt", {{1, 2}, {3}}}}).requests[1].prompt, std::vector<int32_t>{3});
  EXPECT_EQ(completion({{"prompt", "hello"}}).requests[0].max_tokens, 16);
  EXPECT_EQ(completion({{"prompt", ""}}).requests[0].prompt, std::vector<int32_t>{tokenizer.bos()});
}

TEST_F(ApiRequestTest, JoinsTheTextPartsOfAMessage) {
  json body = hello();
  body["messages"][0]["content"] = {{{"type", "text"}, {"text", "a"}}, {{"type", "text"}, {"text", "b"}}};
  EXPECT_EQ(tokenizer.decode(chat(body).requests[0].prompt), "[user]ab");
  body["messages"][0]["content"] = {{{"type", "image_url"}, {"image_url", "x"}}};
  EXPECT_EQ(refused([&] { chat(body); }), "messages[0].content[0].type");
  body["messages"][0]["content"] = {{{"type", "text"}, {"text", "a"}}, {{"image_url", "x"}}};
  EXPECT_EQ(refused([&] { chat(body); }), "messages[0].content[1].image_url");
}

TEST_F(ApiRequestTest, RefusesEachBadFieldByItsName) {
  const std::vector<std::pair<std::string, json>> bad{{"temperature", "hot"},
                                                      {"top_k", 1.5},
                                                      {"top_k", 1e300},
                                                      {"n", 0},
                                                      {"n", 65},
                                                      {"n", uint64_t{1} << 63},
                                                      {"n", -1},
                                                      {"max_tokens", 0},
                                                      {"max_tokens", -1},
                                                      {"seed", "x"},
                                                      {"stop", {1}},
                                                      {"stop", json::object()},
                                                      {"stream", 1},
                                                      {"stream_options", {{"include_usage", true}}},
                                                      {"logprobs", 5},
                                                      {"top_logprobs", 3},
                                                      {"logit_bias", {{"x", 1}}},
                                                      {"logit_bias", {1}},
                                                      {"logit_bias", {{"5", 1e300}}},
                                                      {"logit_bias", {{"5", -1e300}}},
                                                      {"priority", 1000},
                                                      {"response_format", {{"type", "json_object"}}},
                                                      {"tools", {{{"type", "function"}}}},
                                                      {"tool_choice", "required"},
                                                      {"modalities", {"audio"}},
                                                      {"messages", nullptr},
                                                      {"messages", json::array()},
                                                      {"messages", "hello"},
                                                      {"min_tokens", -1},
                                                      {"model", "other"}};
  for (const auto& [name, value] : bad) {
    json body = hello();
    body[name] = value;
    EXPECT_EQ(refused([&] { chat(body); }).substr(0, name.size()), name) << name << " = " << value;
  }
  for (const auto& [name, value] :
       std::vector<std::pair<std::string, json>>{{"prompt", 5},
                                                 {"prompt", json::array()},
                                                 {"prompt", {-1}},
                                                 {"prompt", {uint64_t{1} << 40}},
                                                 {"prompt", {{"a"}}},
                                                 {"prompt", std::vector<std::string>(65, "a")},
                                                 {"best_of", 0},
                                                 {"best_of", 65},
                                                 {"max_tokens", -1},
                                                 {"suffix", "x"},
                                                 {"logprobs", 21}}) {
    json body{{"prompt", "a"}};
    body[name] = value;
    EXPECT_EQ(refused([&] { completion(body); }), name) << value;
  }
}

// The part that is wrong, as it was written.
TEST_F(ApiRequestTest, SaysWhichPartOfAFieldIsWrong) {
  const std::string ids = "; token ids are whole numbers from 0 to 2147483647";
  for (const auto& [name, value, expected] : std::vector<std::tuple<std::string, json, std::string>>{
           {"prompt", {-1}, "prompt[0] = -1" + ids},
           {"prompt", {{1, 2}, {3, "a"}}, "prompt[1][1] = \"a\"" + ids},
           {"prompt", {"a", 5}, "prompt[1] = 5; a text or a list of token ids is needed"},
           {"prompt", std::vector<std::string>(65, "a"),
            "prompt is a list of 65; allowed are up to 64: a request may have 64 choices, and of each prompt 1 are "
            "asked "
            "for"},
           {"logit_bias",
            {{"x", 1}},
            "logit_bias has the key \"x\", which is no token id; ids are whole numbers of up to nine digits without "
            "zeros "
            "in front"},
           {"logit_bias", {{"5", "much"}}, "logit_bias[\"5\"] = \"much\"; a number is needed"},
           {"stop", {"a", 1}, "stop[1] = 1; a text is needed"},
           {"stop", std::vector<std::string>(17, "a"),
            "stop has more than 16 texts; allowed are a text and a list of up to 16 texts"},
           {"stream_options", "x", "stream_options = \"x\"; an object is needed"},
           {"stream_options",
            {{"include_usage", true}},
            "stream_options is allowed with stream = true alone; stream is false"},
           {"best_of", 0, "best_of = 0; allowed are whole numbers from 1 to 64"}}) {
    json body{{"prompt", "a"}};
    body[name] = value;
    const json error = failure([&] { completion(body); });
    ASSERT_TRUE(error.is_object()) << name;
    EXPECT_EQ(error.at("message"), expected);
    EXPECT_EQ(error.at("param"), name);
  }
  EXPECT_EQ(failure([&] {
              completion({{"prompt", "a"}, {"n", 3}, {"best_of", 2}});
            }).at("message"),
            "best_of = 2; it has to be n = 3 at least, as many as are answered");
  EXPECT_EQ(failure([&] { read_detokenize(R"({"tokens": [1, -2]})", options); }).at("message"), "tokens[1] = -2" + ids);
}

TEST_F(ApiRequestTest, TakesOneNameOfATokenAlone) {
  const json error = failure([&] { completion({{"prompt", "a"}, {"logit_bias", {{"05", 1}, {"5", 2}}}}); });
  EXPECT_EQ(error.at("param"), "logit_bias");
  EXPECT_TRUE(error.at("message").get<std::string>().starts_with("logit_bias has the key \"05\"")) << error;
  EXPECT_EQ(completion({{"prompt", "a"}, {"logit_bias", {{"0", 1}}}}).requests[0].logit_bias.size(), 1u);
}

TEST_F(ApiRequestTest, LeavesEmptyStopsOutHoweverManyThereAre) {
  std::vector<std::string> stops(17);
  stops.emplace_back("end");
  EXPECT_EQ(completion({{"prompt", "a"}, {"stop", stops}}).requests[0].stop, std::vector<std::string>{"end"});
}

TEST_F(ApiRequestTest, IgnoresWhatStandsBesideAFormatOfText) {
  const json text{{"type", "text"}, {"x", 1}};
  EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"response_format", text}}); }), "accepted");
  for (const json& other :
       {json{{"type", "json_object"}}, json{{"type", "json_schema"}, {"json_schema", json::object()}}})
    EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"response_format", other}}); }), "response_format.type");
  for (const json& other : {json{{"json_schema", json::object()}}, json("json"), json(1)})
    EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"response_format", other}}); }), "response_format");
  options.strict = true;
  EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"response_format", text}}); }), "response_format.x");
}

TEST_F(ApiRequestTest, ShowsLongValuesCutBetweenCharactersAndClosed) {
  json body{{"prompt", "a"}, {"temperature", std::string(59, 'x') + "日本"}};
  const std::string message = failure([&] { completion(body); }).at("message");
  EXPECT_EQ(message, "temperature = \"" + std::string(59, 'x') + "\"...; a number is needed");
  EXPECT_EQ(shortened("日本", 6), "日本");
  EXPECT_EQ(shortened("日本", 5), "日...");
  EXPECT_EQ(shortened("abc", 2), "ab...");
  options.strict = true;
  body = {{"prompt", "a"}, {std::string(100, 'y'), 1}};
  EXPECT_TRUE(failure([&] { completion(body); })
                  .at("message")
                  .get<std::string>()
                  .starts_with(std::string(60, 'y') + "...: no field of this request"));
}

TEST(FailureTest, NamesAnotherFieldWhereTheMessageNamesTheFirst) {
  const auto renamed = [](const std::string& message) {
    const Failure failure = Failure(400, "invalid_argument", message, "n").with_field("best_of");
    EXPECT_EQ(failure.param, "best_of");
    return std::string(failure.what());
  };
  EXPECT_EQ(renamed("n = 3; allowed are 1 to 2"), "best_of = 3; allowed are 1 to 2");
  EXPECT_EQ(renamed("2 fields are wrong. n = 0; x. n"), "2 fields are wrong. best_of = 0; x. n");
  for (const std::string other : {"no tokens: n is what it is", "2 fields are wrong. no tokens", "it is n"})
    EXPECT_EQ(renamed(other), other) << "n is a part of another word, or stands elsewhere";
}

TEST_F(ApiRequestTest, NamesAllWrongFieldsAtOnce) {
  json body = hello();
  body.update({{"n", 0}, {"temperature", "hot"}, {"top_p", 7}, {"tools", {{{"type", "function"}}}}});
  body["messages"].push_back({{"role", "robot"}, {"content", 5}});
  const json error = failure([&] { chat(body); });
  EXPECT_EQ(error.at("param"), "n");
  const std::string message = error.at("message");
  EXPECT_TRUE(message.starts_with("6 fields are wrong. n = 0; ")) << message;
  for (const char* name : {"n = 0", "temperature = \"hot\"", "top_p = 7", "tools = a list",
                           "messages[1].role = \"robot\"", "messages[1].content = 5"})
    EXPECT_NE(message.find(name), std::string::npos) << name << " in " << message;
}

TEST_F(ApiRequestTest, NamesTheFirstOfManyWrongFields) {
  json body = hello();
  for (int i = 0; i < 1000; ++i) body["messages"].push_back({{"role", "robot"}, {"content", "x"}});
  const std::string message = failure([&] { chat(body); }).at("message");
  EXPECT_TRUE(message.starts_with("1000 fields are wrong. messages[1].role")) << message;
  EXPECT_TRUE(message.ends_with("And 984 more")) << message;
  EXPECT_LT(message.size(), 4096u);
}

TEST_F(ApiRequestTest, TakesNullForLeftOutInEveryField) {
  const auto all_null = [](json body, const std::vector<const char*>& names) {
    for (const char* name : names) body[name] = nullptr;
    return body;
  };
  const std::vector<const char*> names{"model",
                                       "stream",
                                       "stream_options",
                                       "n",
                                       "temperature",
                                       "top_p",
                                       "top_k",
                                       "min_p",
                                       "presence_penalty",
                                       "frequency_penalty",
                                       "repetition_penalty",
                                       "repeat_penalty",
                                       "logit_bias",
                                       "stop",
                                       "min_tokens",
                                       "ignore_eos",
                                       "skip_special_tokens",
                                       "priority",
                                       "reproducible",
                                       "seed",
                                       "user",
                                       "max_tokens",
                                       "max_completion_tokens",
                                       "logprobs",
                                       "top_logprobs",
                                       "tools",
                                       "tool_choice",
                                       "functions",
                                       "function_call",
                                       "prediction",
                                       "audio",
                                       "modalities",
                                       "response_format",
                                       "stop_token_ids",
                                       "chat_template_kwargs",
                                       "nonsense",
                                       "best_of",
                                       "suffix",
                                       "echo"};
  options.strict = true;
  EXPECT_EQ(refused([&] { chat(all_null(hello(), names)); }), "accepted");
  EXPECT_EQ(refused([&] { completion(all_null({{"prompt", "a"}}, names)); }), "accepted");
  json body = hello();
  for (const char* name : {"name", "tool_calls", "function_call", "refusal", "audio", "nonsense"})
    body["messages"][0][name] = nullptr;
  EXPECT_EQ(refused([&] { chat(body); }), "accepted");
}

TEST_F(ApiRequestTest, IgnoresUnknownFieldsAndTellsEachNameOnce) {
  std::vector<std::string> told;
  IgnoredFields ignored([&](const std::string& name) { told.push_back(name); });
  json body = hello();
  body.update({{"nonsense", 1}, {"stream", true}, {"stream_options", {{"colour", 1}}}});
  body["messages"][0]["weight"] = 1;
  body["messages"].push_back(
      {{"role", "user"}, {"content", {{{"type", "text"}, {"text", "b"}, {"bold", true}}}}, {"weight", 2}});
  const Prompter prompter{tokenizer, &chat_template};
  for (int i = 0; i < 3; ++i) {
    const ApiRequest api = read_chat(body.dump(), prompter, options, &ignored);
    EXPECT_EQ(tokenizer.decode(api.requests[0].prompt), "[user]hello[user]b");
  }
  EXPECT_EQ(told, (std::vector<std::string>{"messages[].content[].bold", "messages[].weight", "nonsense",
                                            "stream_options.colour"}));
  json many{{"prompt", "a"}};
  for (int i = 0; i < 5000; ++i) many["x" + std::to_string(i)] = i;
  for (int i = 0; i < 10; ++i) {
    many.erase("x" + std::to_string(i));
    read_completion(many.dump(), prompter, options, &ignored);
  }
  EXPECT_LE(told.size(), 256u) << "a client may think of any number of names";

  options.strict = true;
  const json error = failure([&] { chat(body); });
  EXPECT_EQ(error.at("param"), "stream_options.colour");
  for (const char* name :
       {"nonsense", "stream_options.colour", "messages[0].weight", "messages[1].content[0].bold", "messages[1].weight"})
    EXPECT_NE(error.at("message").get<std::string>().find(name), std::string::npos) << name << " in " << error;
}

TEST_F(ApiRequestTest, TakesWhatClientsSendThatChangesNothing) {
  options.strict = true;
  json body = hello();
  body.update({{"reasoning_effort", "low"},
               {"verbosity", "low"},
               {"prompt_cache_key", "k"},
               {"safety_identifier", "s"},
               {"cache_prompt", true},
               {"parallel_tool_calls", false},
               {"tool_choice", "auto"},
               {"function_call", "none"},
               {"tools", json::array()},
               {"functions", json::array()},
               {"stop_token_ids", json::array()},
               {"modalities", {"text"}},
               {"prediction", json::object()},
               {"audio", json::object()},
               {"stream_options", json::object()},
               {"stop", {"", "end"}}});
  body["messages"][0]["content"] = {{{"type", "text"}, {"text", "a"}, {"cache_control", {{"type", "ephemeral"}}}}};
  body["messages"].push_back({{"role", "assistant"},
                              {"content", nullptr},
                              {"annotations", json::array()},
                              {"id", "x"},
                              {"reasoning_content", "hm"},
                              {"refusal", nullptr},
                              {"audio", nullptr},
                              {"tool_calls", json::array()}});
  body["messages"].push_back({{"role", "assistant"}});
  EXPECT_EQ(text_of(body), "[user]a[assistant][assistant]");
  EXPECT_EQ(chat(body).requests[0].stop, std::vector<std::string>{"end"});
  EXPECT_TRUE(completion({{"prompt", "a"}, {"stop", ""}}).requests[0].stop.empty());
  body = hello();
  body["messages"][0]["content"] = nullptr;
  EXPECT_EQ(refused([&] { chat(body); }), "messages[0].content") << "of a user";
}

TEST_F(ApiRequestTest, RefusesFeaturesThatItDoesNotHave) {
  for (const auto& [name, value] : std::vector<std::pair<std::string, json>>{{"tools", {{{"type", "function"}}}},
                                                                             {"functions", {{{"name", "f"}}}},
                                                                             {"function_call", {{"name", "f"}}},
                                                                             {"prediction", {{"type", "content"}}},
                                                                             {"audio", {{"voice", "x"}}},
                                                                             {"stop_token_ids", {5}},
                                                                             {"guided_json", {{"type", "object"}}},
                                                                             {"grammar", "root ::= x"},
                                                                             {"add_generation_prompt", false},
                                                                             {"continue_final_message", true},
                                                                             {"chat_template", "x"},
                                                                             {"echo", true}}) {
    json body = hello();
    body[name] = value;
    const json error = failure([&] { chat(body); });
    EXPECT_EQ(error.value("param", ""), name);
    EXPECT_EQ(error.value("code", ""), "unsupported") << name;
  }
}

TEST_F(ApiRequestTest, TakesWholeNumbersWrittenWithAFraction) {
  json body = hello();
  body.update({{"n", 3.0},
               {"max_tokens", 7.0},
               {"top_k", 5.0},
               {"seed", -4.0},
               {"priority", 1.0},
               {"min_tokens", 2.0},
               {"logprobs", true},
               {"top_logprobs", 4.0}});
  const Request request = chat(body).requests[0];
  EXPECT_EQ(request.n, 3);
  EXPECT_EQ(request.max_tokens, 7);
  EXPECT_EQ(request.sampling.top_k, 5);
  EXPECT_EQ(request.seed, static_cast<uint64_t>(-4));
  EXPECT_EQ(request.logprobs, 4);
  EXPECT_EQ(completion({{"prompt", {1.0, 2, 3.0}}}).requests[0].prompt, (std::vector<int32_t>{1, 2, 3}));
  for (const json& wrong : {json(4.5), json(1e19), json(-1e300), json("4")}) {
    body["seed"] = wrong;
    EXPECT_EQ(refused([&] { chat(body); }), "seed") << wrong;
  }
}

TEST_F(ApiRequestTest, ReadsTheRepetitionPenaltyByBothNames) {
  const auto with = [&](const json& more) {
    json body = hello();
    body.update(more);
    return body;
  };
  EXPECT_EQ(chat(with({{"repeat_penalty", 1.5}})).requests[0].penalties.repetition, 1.5f);
  EXPECT_EQ(chat(with({{"repeat_penalty", 1.5}, {"repetition_penalty", 1.5}})).requests[0].penalties.repetition, 1.5f);
  EXPECT_EQ(refused([&] { chat(with({{"repeat_penalty", 1.5}, {"repetition_penalty", 1.2}})); }), "repeat_penalty");
  const json error = failure([&] { chat(with({{"repeat_penalty", 0}})); });
  EXPECT_EQ(error.at("param"), "repeat_penalty") << "as the client wrote it";
  EXPECT_TRUE(error.at("message").get<std::string>().starts_with("repeat_penalty = 0")) << error;
}

TEST_F(ApiRequestTest, GivesTheTemplateItsVariables) {
  const ChatTemplate thinks(
      "{% if enable_thinking %}T{% endif %}{{ level }}{{ n + 1 }}{{ bos_token }}"
      "{% for m in messages %}{{ m.content }}{% endfor %}");
  const Prompter prompter{tokenizer, &thinks};
  json body = hello();
  const auto text = [&](const json& variables) {
    body["chat_template_kwargs"] = variables;
    return tokenizer.decode(read_chat(body.dump(), prompter, options).requests[0].prompt);
  };
  EXPECT_EQ(text({{"enable_thinking", true}, {"level", "high"}, {"n", 4}}), "Thigh5 hello");
  EXPECT_EQ(text({{"enable_thinking", false}, {"n", 1}}), "2 hello");
  EXPECT_EQ(read_tokenize(body.dump(), prompter, options),
            read_chat(body.dump(), prompter, options).requests[0].prompt);
  // Text of a client is text: no control token comes of it.
  text({{"level", "</s>"}, {"n", 1}});
  const auto ids = read_chat(body.dump(), prompter, options).requests[0].prompt;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer.eos()), 0);
  EXPECT_EQ(refused([&] { text({{"messages", {1}}}); }), "chat_template_kwargs.messages");
  EXPECT_EQ(refused([&] { text({{"add_generation_prompt", false}}); }), "chat_template_kwargs.add_generation_prompt");
  EXPECT_EQ(refused([&] { text({1}); }), "chat_template_kwargs");
}

TEST_F(ApiRequestTest, IsCalledByItsAliases) {
  EXPECT_EQ(chat(hello()).model, "stories");
  json body = hello();
  body["model"] = "gpt-4";
  EXPECT_EQ(refused([&] { chat(body); }), "model");
  options.aliases = {"gpt-4", "other/model"};
  EXPECT_EQ(chat(body).model, "gpt-4");
  body["model"] = "dummy";
  EXPECT_EQ(refused([&] { chat(body); }), "model");
  options.aliases = {"*"};
  EXPECT_EQ(chat(body).model, "dummy");
  body["model"] = std::string(257, 'x');
  EXPECT_EQ(refused([&] { chat(body); }), "model") << "each event would have it";
}

TEST_F(ApiRequestTest, MakesMoreChoicesThanItAnswers) {
  const ApiRequest api = completion({{"prompt", "a"}, {"n", 2}, {"best_of", 5}});
  EXPECT_EQ(api.n, 2);
  EXPECT_EQ(api.requests[0].n, 5);
  EXPECT_EQ(api.requests[0].logprobs, 0) << "to find the best";
  EXPECT_FALSE(api.logprobs);
  EXPECT_EQ(completion({{"prompt", "a"}, {"n", 2}, {"best_of", 2}, {"stream", true}}).requests[0].logprobs, -1);
  EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"n", 3}, {"best_of", 2}}); }), "best_of");
  EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"best_of", 2}, {"stream", true}}); }), "best_of");
  EXPECT_EQ(refused([&] { completion({{"prompt", {"a", "b", "c"}}, {"best_of", 30}}); }), "prompt");
}

TEST_F(ApiRequestTest, AnswersTheBestChoices) {
  ApiAnswer answer(completion({{"prompt", {"a", "b"}}, {"n", 2}, {"best_of", 3}}), tokenizer, "stories");
  const auto token = [&](size_t prompt, int choice, double logprob, const char* text, const char* finish = "") {
    answer.add(
        prompt,
        {.choice = choice, .id = 300, .text = text, .logprob = TokenLogprob{300, logprob, {}}, .finish = finish});
  };
  token(0, 0, -1, "long ");
  token(0, 0, -1, "and likely", "length");
  token(0, 1, -1.5, "short", "length");
  answer.add(0, {.choice = 2, .finish = "stop", .last = true, .prompt_tokens = 1, .output_tokens = 3});
  token(1, 0, -3, "c", "length");
  token(1, 1, -2, "b", "length");
  token(1, 2, -1, "a", "length");
  answer.add(1, {.choice = 2, .finish = "length", .last = true, .prompt_tokens = 1, .output_tokens = 3});
  const json got = json::parse(answer.body());
  std::vector<std::string> texts;
  for (const json& choice : got.at("choices")) {
    EXPECT_EQ(choice.at("index"), texts.size());
    EXPECT_TRUE(choice.at("logprobs").is_null()) << "nobody asked for them";
    texts.push_back(choice.at("text"));
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"long and likely", "short", "a", "b"}));
  EXPECT_EQ(got.at("usage").at("completion_tokens"), 6) << "of all that were made";
}

TEST_F(ApiRequestTest, RefusesRolesAndToolMessagesOfLater) {
  json body = hello();
  body["messages"][0]["role"] = "tool";
  EXPECT_EQ(refused([&] { chat(body); }), "messages[0].role");
  body = hello();
  body["messages"][0]["tool_calls"] = {{{"id", "x"}}};
  EXPECT_EQ(refused([&] { chat(body); }), "messages[0].tool_calls");
}

TEST_F(ApiRequestTest, RefusesWhatIsNoJsonObject) {
  const Prompter prompter{tokenizer, &chat_template};
  for (const std::string& body : std::vector<std::string>{
           "", "{", "[]", "null", "NaN", R"({"temperature": NaN})", R"({"temperature": 1e999})",
           "{\"prompt\": \"\xff\"}", R"({"a": 1} x)", std::string(60000, '['), std::string(60000, '{')})
    EXPECT_EQ(refused([&] { read_chat(body, prompter, options); }).substr(0, 1), "?") << body.substr(0, 40);
}

TEST_F(ApiRequestTest, RefusesAKeyThatAnObjectHasTwice) {
  const Prompter prompter{tokenizer, &chat_template};
  const auto read = [&](const std::string& body) { return refused([&] { read_completion(body, prompter, options); }); };
  EXPECT_EQ(read(R"({"prompt": "a", "n": 1, "n": 2})"), "n");
  EXPECT_EQ(read(R"({"prompt": "a", "\u006e": 1, "n": 1})"), "n") << "the same key, written otherwise";
  EXPECT_EQ(read(R"({"prompt": "a", "metadata": [{"a": {"b": 1}}, {"a": 1, "c": 2, "a": 1}]})"), "a");
  EXPECT_EQ(read(R"({"prompt": "a", "metadata": [{"a": {"a": 1}, "prompt": 2}, {"a": 1}], "user": 1})"), "accepted");
}

TEST_F(ApiRequestTest, ReadsManyObjectsInTimeThatGrowsAsTheyDo) {
  std::string body = R"({"prompt": "x", "user": [{})";
  constexpr int kObjects = testing::kUnderSanitizer ? 100'000 : 1'000'000;
  for (int i = 0; i < kObjects; ++i) body += ",{}";  // for hours, if each were compared with those before
  EXPECT_EQ(read_completion(body + "]}", {tokenizer, nullptr}, options).requests.size(), 1u);
}

TEST_F(ApiRequestTest, RefusesAChatWithoutATemplate) {
  EXPECT_EQ(refused([&] { read_chat(hello().dump(), {tokenizer, nullptr}, options); }), "messages");
}

TEST_F(ApiRequestTest, KeepsToTheServersLimits) {
  options.limits.n = 2;
  const Prompter three{tokenizer, nullptr, 3, 100};
  EXPECT_EQ(refused([&] { read_completion(R"({"prompt": [1, 2, 3, 4]})", three, options); }), "prompt");
  EXPECT_EQ(refused([&] { completion({{"prompt", "a"}, {"n", 3}}); }), "n");
  EXPECT_EQ(refused([&] { completion({{"prompt", {"a", "b", "c"}}}); }), "prompt");
}

TEST_F(ApiRequestTest, AnswersInTheShapeOfAChat) {
  json body = hello();
  body.update({{"logprobs", true}, {"n", 2}});
  ApiAnswer answer(chat(body), tokenizer, "stories");
  const TokenLogprob logprob{300, -0.5, {{300, -0.5}, {301, -INFINITY}}};
  EXPECT_TRUE(answer.add(0, {.choice = 1, .id = 300, .text = "x", .logprob = logprob}).empty());
  answer.add(0, {.choice = 1, .text = "\xff", .finish = "stop"});
  answer.add(
      0, {.choice = 0, .finish = "length", .last = true, .prompt_tokens = 5, .cached_tokens = 2, .output_tokens = 3});
  const json got = json::parse(answer.body());
  EXPECT_EQ(got.at("object"), "chat.completion");
  EXPECT_EQ(got.at("choices").at(1).at("finish_reason"), "stop");
  EXPECT_EQ(got.at("choices").at(1).at("logprobs").at("content").at(0).at("top_logprobs").at(1).at("logprob"), -9999.0);
  EXPECT_EQ(got.at("usage").at("total_tokens"), 8);
  EXPECT_EQ(got.at("usage").at("prompt_tokens_details").at("cached_tokens"), 2);
}

TEST_F(ApiRequestTest, EchoesPromptsWithTheirLogprobs) {
  ApiAnswer answer(completion({{"prompt", {{1, 300, 301}}}, {"echo", true}, {"logprobs", 0}}), tokenizer, "stories");
  answer.add(0, {.id = 302,
                 .text = "end",
                 .logprob = TokenLogprob{302, -3, {}},
                 .prompt = {{300, -1, {}}, {301, -2, {}}},
                 .finish = "length",
                 .last = true});
  const json choice = json::parse(answer.body()).at("choices").at(0);
  EXPECT_EQ(choice.at("logprobs").at("token_logprobs"), (json{nullptr, -1.0, -2.0, -3.0}));
  EXPECT_TRUE(choice.at("text").get<std::string>().ends_with("end"));
  EXPECT_TRUE(choice.at("text").get<std::string>().starts_with(tokenizer.decode(std::vector<int32_t>{1, 300, 301})));
}

// Token 3 + b of this vocabulary is the byte b.
constexpr int32_t kByte = 3;
// "é" in two tokens, one of which is as probable as not, and its alternatives are parts of characters, too.
const TokenLogprob kPart{kByte + 0xc3, -2, {{kByte + 0xe2, -0.5}, {kByte + 0x96, -0.75}, {kByte + 'a', -1}}};

TEST_F(ApiRequestTest, GivesEachTokenANameOfItsOwnAndNamesTheDrawnOneWhateverItsRank) {
  ApiAnswer answer(completion({{"prompt", "a"}, {"logprobs", 3}}), tokenizer, "stories");
  answer.add(0, {.id = kPart.id, .logprob = kPart});
  // 'a' is there as a byte and as a letter.
  const int32_t letter = tokenizer.token("a");
  ASSERT_EQ(tokenizer.piece(letter), tokenizer.piece(kByte + 'a'));
  answer.add(0, {.id = letter, .logprob = TokenLogprob{letter, -3, {{kByte + 'a', -1}, {kByte + 'b', -2}}}});
  answer.add(0, {.id = kByte + 'c', .logprob = TokenLogprob{kByte + 'c', -4, {{kByte + 'a', -1}, {letter, -3}}}});
  answer.add(0, {.finish = "length", .last = true});
  const json logprobs = json::parse(answer.body()).at("choices").at(0).at("logprobs");
  EXPECT_EQ(logprobs.at("tokens"), (json{"bytes:\\xc3", "a", "c"}));
  EXPECT_EQ(logprobs.at("top_logprobs"),
            (json{{{"bytes:\\xc3", -2.0}, {"bytes:\\xe2", -0.5}, {"bytes:\\x96", -0.75}, {"a", -1.0}},
                  {{"a", -3.0}, {"b", -2.0}},
                  {{"c", -4.0}, {"a", -1.0}}}));

  json body = hello();
  body.update({{"logprobs", true}, {"top_logprobs", 3}});
  ApiAnswer chatted(chat(body), tokenizer, "stories");
  chatted.add(0, {.id = kPart.id, .logprob = kPart, .finish = "length", .last = true});
  const json content = json::parse(chatted.body()).at("choices").at(0).at("logprobs").at("content").at(0);
  EXPECT_EQ(content.at("token"), "\\xc3");
  EXPECT_EQ(content.at("bytes"), json{0xc3});
  EXPECT_EQ(content.at("top_logprobs").at(0).at("token"), "\\xe2");
  EXPECT_EQ(content.at("top_logprobs").at(1).at("token"), "\\x96");
}

// As clients in Python index: text[offset:] begins with the character in which the token begins.
TEST_F(ApiRequestTest, OffsetsCountCharactersOfTheTextThatClientsHave) {
  const auto offsets_of = [&](const json& prompt, bool hides = true) {
    const ApiRequest request =
        completion({{"prompt", prompt}, {"n", 2}, {"echo", true}, {"logprobs", 0}, {"skip_special_tokens", hides}});
    const std::vector<int32_t>& ids = request.requests.at(0).prompt;
    ApiAnswer answer(request, tokenizer, "stories");
    for (int choice = 0; choice < 2; ++choice) {
      Update update{.choice = choice, .id = 302, .text = "日x", .text_offset = 1, .logprob = TokenLogprob{302, -1, {}}};
      for (size_t i = 1; i < ids.size(); ++i) update.prompt.push_back({ids[i], -1, {}});
      update.finish = "length", update.last = choice == 1;
      answer.add(0, update);
    }
    const json choices = json::parse(answer.body()).at("choices");
    EXPECT_EQ(choices.at(0).at("logprobs"), choices.at(1).at("logprobs"));
    const json& offsets = choices.at(0).at("logprobs").at("text_offset");
    EXPECT_EQ(offsets.back(), decode::num_characters(choices.at(0).at("text").get<std::string>()) - 1) << prompt;
    return offsets.get<std::vector<int64_t>>();
  };
  for (const std::string text : {"Once", "naïve 日本 😀!", "", "  two"}) {
    const std::vector<int32_t> ids = tokenizer.encode(text);
    std::vector<int64_t> expected;
    size_t at = 0;         // bytes, of which the first token has none
    bool in_front = true;  // of the space that encoding puts there
    for (const int32_t id : ids) {
      const std::string piece = tokenizer.piece(id);
      expected.push_back(std::max<int64_t>(0, decode::num_characters(text.substr(0, at + 1)) - 1));
      if (at >= text.size()) expected.back() = decode::num_characters(text);
      at += piece.size() - (!piece.empty() && std::exchange(in_front, false) ? 1 : 0);
    }
    EXPECT_EQ(at, text.size());
    expected.push_back(decode::num_characters(text) + 1);
    EXPECT_EQ(offsets_of(text), expected) << text;
  }
  const int32_t a = tokenizer.token("a");
  using Offsets = std::vector<int64_t>;
  EXPECT_EQ(offsets_of({json{1, kByte + 0xe6, kByte + 0x97, kByte + 0xa5, a}}), (Offsets{0, 0, 0, 0, 1, 3}));
  EXPECT_EQ(offsets_of({json{1, kByte + 0xe6, kByte + 0x97, a}}), (Offsets{0, 0, 0, 1, 3}));        // never ends
  EXPECT_EQ(offsets_of({json{1, a, kByte + 0x97, kByte + 0xff, a}}), (Offsets{0, 0, 1, 2, 3, 5}));  // no characters
  EXPECT_EQ(offsets_of({json{a, 1, 2, a}}), (Offsets{0, 1, 1, 1, 3}));                              // have no text
  EXPECT_EQ(offsets_of({json{a, kByte + 0xe6, kByte + 0xf0, kByte + 0x9f}}), (Offsets{0, 1, 2, 2, 4}));
  const auto begin = decode::num_characters(tokenizer.piece(1, false)),
             end = decode::num_characters(tokenizer.piece(2, false));
  EXPECT_GT(begin, 0);
  EXPECT_EQ(offsets_of({json{a, 1, 2, a}}, false), (Offsets{0, 1, 1 + begin, 1 + begin + end, 3 + begin + end}));
  EXPECT_EQ(offsets_of({json{1, a}}, false), (Offsets{0, begin, begin + 2}));
}

}  // namespace
}  // namespace weft::serve::http
