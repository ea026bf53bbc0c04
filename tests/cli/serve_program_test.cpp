// `weft serve` as a process: where it listens, and what it survives.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "serve/limits_met.h"
#include "tests/cli/program.h"
#include "tests/cli/serving.h"
#include "tests/serve/http/client.h"
#include "tests/support/gguf_writer.h"
#include "tests/support/random_model.h"
#include "tests/support/temp_folder.h"

namespace weft::testing {
namespace {

using nlohmann::json;

json answer(int port) {
  const Reply reply =
      Client(port).post("/v1/completions",
                        {{"prompt", "Once upon a time"}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}});
  return reply.status == 200 ? reply.json().at("choices").at(0).at("text") : json(reply.body);
}

// A line follows its answer.
void expect_lost_lines(const Serving& serving) {
  for (int i = 0; i < 500 && serving.metric("weft_log_failures_total") == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_GT(serving.metric("weft_log_failures_total"), 0);
}

TEST(ServeProgram, SaysWhereItListensAnswersAndEndsWhenItIsTold) {
  Serving serving(kStories, {"--model-name", "tales"});
  EXPECT_EQ(serving.first().at("event"), "listening");
  EXPECT_EQ(serving.first().at("model"), "tales");
  EXPECT_TRUE(answer(serving.port()).is_string());
  EXPECT_EQ(serving.terminate(), 0);
}

TEST(ServeProgram, CountsUnderTheNamesOfItsOptions) {
  const Serving serving(kStories, {"--max-prompt-tokens", "3"});
  const std::string help = run_weft({"serve", "--help"}).out;
  for (const char* name : serve::kLimitNames) {
    EXPECT_NE(help.find(std::string("--") + name + " "), std::string::npos) << name;
    EXPECT_EQ(serving.metric("weft_limits_met_total{limit=\"" + std::string(name) + "\"}"), 0) << name;
  }
  EXPECT_FALSE(answer(serving.port()).get<std::string>().empty());
  EXPECT_EQ(serving.metric("weft_limits_met_total{limit=\"max-prompt-tokens\"}"), 1);
}

// docs/serving.md: "| `--header-time`, `--body-time` | 10s, 30s | ...", as --help writes them.
TEST(ServeProgram, HasTheDefaultsThatItsPageSays) {
  const std::string help = run_weft({"serve", "--help"}).out;
  const auto words_of = [](const std::string& cell) {
    std::vector<std::string> words;
    std::stringstream text(cell);
    for (std::string part; std::getline(text, part, ',');) {
      const size_t begin = part.find_first_not_of(" `"), end = part.find_first_of(" `", begin);
      if (begin != std::string::npos) words.push_back(part.substr(begin, end - begin));
    }
    return words;
  };
  std::ifstream page(WEFT_DOCS "/serving.md");
  int checked = 0;
  for (std::string line; std::getline(page, line);) {
    if (!line.starts_with("| `--")) continue;
    const size_t first = line.find('|', 1), second = line.find('|', first + 1);
    const std::vector<std::string> options = words_of(line.substr(1, first - 1)),
                                   defaults = words_of(line.substr(first + 1, second - first - 1));
    for (size_t i = 0; i < options.size(); ++i) {
      const size_t at = help.find("\n  " + options[i] + " ");
      ASSERT_NE(at, std::string::npos) << options[i];
      const size_t equal = help.find('=', at), end = help.find_first_of(" \n", equal);
      ASSERT_LT(equal, help.find('\n', at + 1)) << options[i];
      const std::string value = help.substr(equal + 1, end - equal - 1);
      ++checked;
      if (value == "0") continue;  // automatic: the page says in words what that is
      ASSERT_LT(i, defaults.size()) << line;
      EXPECT_EQ(defaults[i], value) << options[i];
    }
  }
  EXPECT_GE(checked, 17);
}

TEST(ServeProgram, IsCalledByItsAliasesAndIsStrictWhereItIsTold) {
  const Serving lenient(kStories, {"--alias", "tales", "--alias", "org/tales"}), strict(kStories, {"--strict"});
  const auto status = [](const Serving& serving, const json& more) {
    json body{{"prompt", "Once"}, {"max_tokens", 1}};
    body.update(more);
    return Client(serving.port()).post("/v1/completions", body).status;
  };
  EXPECT_EQ(status(lenient, {{"model", "org/tales"}, {"colour", "red"}}), 200);
  EXPECT_EQ(Client(lenient.port()).get("/v1/models").json().at("data").size(), 3u);
  EXPECT_EQ(Client(lenient.port()).get("/v1/models/org/tales").json().at("id"), "org/tales");
  EXPECT_EQ(Client(lenient.port()).get("/v1/models/other").status, 404);
  EXPECT_EQ(status(strict, {{"model", "tales"}}), 404);
  EXPECT_EQ(status(strict, {{"colour", "red"}}), 400);
  EXPECT_EQ(status(strict, {{"colour", nullptr}}), 200);
}

TEST(ServeProgram, RefusesAPortThatIsInUse) {
  const Serving serving(kStories);
  const Result result = run_weft({"serve", kStories, "--port", std::to_string(serving.port())});
  EXPECT_NE(result.exit_code, 0);
  expect_refusal(result, result.exit_code, "io_error", "in use");
  EXPECT_EQ(Client(serving.port()).get("/ready").status, 200);
}

TEST(ServeProgram, SaysWhatIsWrongWithASocketFileBeforeItLoads) {
  const std::string path = "/tmp/" + std::string(115, 'a');
  expect_refusal(run_weft({"serve", "/nowhere.gguf", "--unix-socket", path}), 3, "invalid_argument",
                 "--unix-socket = " + path + "; allowed are paths of up to 107 bytes, this one has 120");
}

// How many descriptors a server needs beside those of connections, as it says itself; it begins with some of whoever
// runs the tests.
int needed_descriptors() {
  const Result result = run_weft({"serve", kStories, "--threads", "1", "--port", "0"}, {.descriptors = 12});
  EXPECT_EQ(result.exit_code, 3);
  std::smatch numbers;
  const std::regex says("may have 12 descriptors and has ([0-9]+); ([0-9]+) and one for each connection are needed");
  if (!std::regex_search(result.err, numbers, says)) throw std::runtime_error(result.err);
  EXPECT_EQ(std::stoi(numbers[2]), std::stoi(numbers[1]) + 13);
  return std::stoi(numbers[2]);
}

TEST(ServeProgram, SaysThatItHasTooFewDescriptors) {
  const int needed = needed_descriptors();
  for (const int fewer : {9, 6, 4, 3, 1, 0})
    expect_refusal(run_weft({"serve", kStories, "--threads", "1", "--port", "0"}, {.descriptors = needed - fewer}), 3,
                   "io_error",
                   fmt::format("; {} and one for each connection are needed: raise them with ulimit -n", needed));
}

TEST(ServeProgram, AnswersOneAfterAnotherWithTheFewestDescriptors) {
  const Serving serving(kStories, {"--threads", "1"},
                        {.descriptors = static_cast<rlim_t>(needed_descriptors() + 1), .file_bytes = 0});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(answer(serving.port()).is_string()) << i;
}

TEST(ServeProgram, RefusesTextsThatAreEmpty) {
  for (const char* option : {"--unix-socket", "--api-key-file", "--model-name", "--host", "--host-name", "--alias"})
    expect_refusal(run_weft({"serve", "/nowhere.gguf", option, ""}), 3, "invalid_argument",
                   std::string(option) + " = \"\"; allowed is a text that is not empty");
}

// Whoever listens there; 0: nobody yet.
pid_t server_of(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  ucred server{};
  socklen_t size = sizeof server;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0)
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size);
  close(fd);
  return server.pid;
}

// Its sockets never get the numbers of the streams, and what stdout does not take is on stderr.
TEST(ServeProgram, ServesThoughItsStreamsAreClosed) {
  for (const auto& [closed, out] : std::vector<std::pair<std::vector<int>, std::string>>{
           {{0}, ""}, {{1}, ""}, {{2}, ""}, {{0, 1}, ""}, {{0, 1, 2}, ""}, {{}, "/dev/full"}}) {
    const TempFolder folder;
    const std::string path = folder.path("socket");
    std::string text;
    std::thread client([&, path = path] {
      pid_t server = 0;
      for (int i = 0; i < 2500 && (server = server_of(path)) == 0; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (server == 0) return;
      text = Client(path).get("/health").body;
      kill(server, SIGTERM);
    });
    const Result result = run_weft({"serve", kStories, "--unix-socket", path}, {.closed = closed, .out_file = out});
    client.join();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(text, R"({"status":"ok"})");
    const bool said = closed == std::vector<int>{1} || closed == std::vector<int>{0, 1} || !out.empty();
    EXPECT_EQ(result.err.find("; listening on unix:" + path) != std::string::npos, said) << result.err;
  }
}

TEST(ServeProgram, SaysThatItRefusesChatsAndServesCompletions) {
  const auto model_with = [](const char* text) {
    GgufWriter gguf = random_model({});
    if (text != nullptr) gguf.add("tokenizer.chat_template", text);
    const std::string path = temporary_file("templates.gguf", "");
    gguf.write(path);
    return path;
  };
  const std::string good = "{% for m in messages %}{{ m.content }}{% endfor %}";
  for (const auto& [text, said] : std::initializer_list<std::pair<const char*, std::string>>{
           {nullptr, "the model has no chat template; "},
           {"{% nonsense %}", "the model's chat template: "},
           {"{{ raise_exception('not for you') }}", "not for you"},
           {good.c_str(), ""}}) {
    const std::string model = model_with(text);
    const Result result = run_weft({"serve", model, "--port", "0"}, {.interrupt_at_line = 1});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    if (said.empty()) {
      EXPECT_EQ(result.err.find("template"), std::string::npos) << result.err;
      continue;
    }
    EXPECT_NE(result.err.find(said), std::string::npos) << result.err;
    const Serving serving(model);
    Client client(serving.port());
    EXPECT_EQ(client.post("/v1/completions", {{"prompt", {1, 2}}, {"max_tokens", 1}}).status, 200);
    EXPECT_EQ(client.post("/v1/chat/completions", {{"messages", {{{"role", "user"}, {"content", "a"}}}}}).status, 400);
  }
}

TEST(ServeProgram, RefusesAnAddressThatOthersReachWithoutAKey) {
  expect_refusal(run_weft({"serve", kStories, "--host", "0.0.0.0", "--port", "0"}), 3, "invalid_argument",
                 "--api-key-file");
}

TEST(ServeProgram, EndsAtTheSecondSignalThoughAnAnswerGoesOn) {
  Serving serving(kStories, {"--drain", "1h"});
  Client reader(serving.port());  // that reads nothing
  reader.send(Client::post_text(
      "/v1/completions",
      json{{"prompt", "Once"}, {"max_tokens", 480}, {"ignore_eos", true}, {"n", 16}, {"logprobs", 20}, {"stream", true}}
          .dump()));
  while (serving.metric("weft_stalls_total") == 0) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  serving.signal(SIGTERM);
  while (Client(serving.port()).get("/ready").status != 503) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(serving.terminate(), 0);
}

TEST(ServeProgram, AnswersTheSameWhenItsFileIsReplaced) {
  const std::string model = temporary_file("replaced.gguf", "");
  std::filesystem::copy_file(kStories, model, std::filesystem::copy_options::overwrite_existing);
  const Serving serving(model);
  const json before = answer(serving.port());
  std::ofstream(model, std::ios::binary) << "no model at all";
  EXPECT_EQ(answer(serving.port()), before);
  std::filesystem::remove(model);
  EXPECT_EQ(answer(serving.port()), before);
}

TEST(ServeProgram, AcceptsAgainOnceDescriptorsAreThere) {
  const Serving serving(kStories, {"--threads", "1"}, {.descriptors = 24});
  const json expected = answer(serving.port());
  {
    std::vector<std::unique_ptr<Client>> idle;
    for (int i = 0; i < 40; ++i) idle.push_back(std::make_unique<Client>(serving.port()));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  EXPECT_EQ(answer(serving.port()), expected);
  EXPECT_GT(serving.metric("weft_accept_failures_total"), 0);
}

TEST(ServeProgram, AnswersThoughItsLogCannotBeWritten) {
  Serving serving(kStories, {"--log-json"});
  const json expected = answer(serving.port());
  serving.stop_reading();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer(serving.port()), expected);
  expect_lost_lines(serving);
}

// More lines than its pipe and its queue hold.
TEST(ServeProgram, AnswersAndEndsThoughNobodyReadsItsLog) {
  Serving serving(kStories, {"--log-json"});
  const json expected = answer(serving.port());
  {
    Client client(serving.port());
    for (int i = 0; i < 3000; ++i) ASSERT_EQ(client.get("/health").status, 200) << i;
  }
  EXPECT_EQ(answer(serving.port()), expected);
  expect_lost_lines(serving);
  EXPECT_EQ(serving.terminate(), 0);
}

// A file that may grow no more, in the middle of a line, is to a writer what a full disk is.
TEST(ServeProgram, AnswersThoughItsDiskIsFullAndLogsAgainOnceThereIsRoom) {
  constexpr rlim_t kMost = 256 << 20, kRoom = 300;  // modules that are compiled meanwhile stay below it
  const std::string log = temporary_file("full.jsonl", "");
  std::filesystem::resize_file(log, kMost - kRoom);  // nothing of it is on the disk
  const Serving serving(kStories, {"--log-json"}, {.file_bytes = kMost, .log = log});
  const json expected = answer(serving.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer(serving.port()), expected);
  expect_lost_lines(serving);
  EXPECT_EQ(std::filesystem::file_size(log), kMost);
  std::filesystem::resize_file(log, 0);
  EXPECT_EQ(answer(serving.port()), expected);
  json last;  // a line follows its answer
  for (int i = 0; i < 200 && !last.is_object(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    std::ifstream file(log);
    for (std::string line; std::getline(file, line);) last = json::parse(line, nullptr, false);
  }
  EXPECT_EQ(last.value("status", 0), 200) << last;
}

// The same trace packed by gzip; without a server its requests are written down.
TEST(BenchServeProgram, PlaysPackedTraces) {
  const std::string plain = temporary_file("arrivals.csv", "arrival_ms,prompt_tokens,output_tokens\n0,9,4\n250,5,2\n");
  const std::string packed = plain + ".gz";
  ASSERT_EQ(std::system(("gzip -c '" + plain + "' > '" + packed + "'").c_str()), 0);
  const auto requests = [](const std::string& trace) {
    const std::string saved = trace + ".load";
    const Result result = run_weft({"bench", "serve", "--trace", trace, "--requests", "0", "--save", saved});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    std::ifstream file(saved);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string expected = requests(plain);
  EXPECT_EQ(std::count(expected.begin(), expected.end(), '\n'), 2) << expected;
  EXPECT_EQ(requests(packed), expected);
  const std::string cut = temporary_file("cut.csv.gz", "\x1f\x8b\x08"), missing = "/nowhere/arrivals.csv.gz";
  for (const auto& [trace, code] : {std::pair(cut, "invalid_file"), std::pair(missing, "io_error")}) {
    const Result result = run_weft({"bench", "serve", "--trace", trace, "--save", cut + ".load"});
    EXPECT_EQ(result.exit_code, 3);
    EXPECT_NE(result.err.find(std::string("weft: ") + code + ": '" + trace), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace weft::testing
