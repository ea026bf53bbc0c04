// `weft serve` as a process: where it listens, and what it survives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/cli/program.h"
#include "tests/serve/http/client.h"

namespace weft::testing {
namespace {

using nlohmann::json;

// What the process has; `log` is its stdout instead of a pipe.
struct Limits {
  rlim_t descriptors = 0, file_bytes = 0;  // 0: as they are
  std::string log = {};
};

// Its first line is read, and what follows as far as a test asks for it.
class Serving {
 public:
  explicit Serving(const std::string& model, std::vector<std::string> more = {}, const Limits& limits = {}) {
    int out[2];
    if (limits.log.empty()) {
      if (pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    } else {
      out[0] = open(limits.log.c_str(), O_RDONLY | O_CLOEXEC);
      out[1] = open(limits.log.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
      lseek(out[0], 0, SEEK_END);
    }
    std::vector<std::string> words = {WEFT_PROGRAM, "serve", model, "--port", "0", "--precision", "exact"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    child_ = fork();
    if (child_ == 0) {
      dup2(out[1], 1);
      const rlimit descriptors{limits.descriptors, limits.descriptors}, bytes{limits.file_bytes, limits.file_bytes};
      if (limits.descriptors > 0) setrlimit(RLIMIT_NOFILE, &descriptors);
      if (limits.file_bytes > 0) setrlimit(RLIMIT_FSIZE, &bytes);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(out[1]);
    out_ = out[0];
    std::string line;
    for (char byte = 0; byte != '\n';) {
      const auto got = read(out_, &byte, 1);
      if (got == 1) line += byte;
      if (got == 1 || (got == 0 && !limits.log.empty() && waitpid(child_, nullptr, WNOHANG) == 0)) continue;
      break;
    }
    first_ = json::parse(line, nullptr, false);
    if (first_.is_discarded()) throw std::runtime_error("it did not start: " + line);
  }
  ~Serving() {
    if (child_ > 0) kill(child_, SIGKILL), wait();
    stop_reading();
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  const json& first() const { return first_; }
  int port() const {
    const std::string url = first_.at("url");
    return std::stoi(url.substr(url.rfind(':') + 1));
  }
  void stop_reading() {
    if (out_ >= 0) close(std::exchange(out_, -1));
  }
  int terminate() {
    kill(child_, SIGTERM);
    return wait();
  }
  double metric(const std::string& name) const {
    const std::string text = Client(port()).get("/metrics").body;
    const size_t at = text.find("\n" + name + " ");
    return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
  }

 private:
  int wait() {
    int status = 0;
    waitpid(std::exchange(child_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  pid_t child_ = -1;
  int out_ = -1;
  json first_;
};

json answer(int port) {
  const Reply reply =
      Client(port).post("/v1/completions",
                        {{"prompt", "Once upon a time"}, {"max_tokens", 12}, {"temperature", 0}, {"ignore_eos", true}});
  return reply.status == 200 ? reply.json().at("choices").at(0).at("text") : json(reply.body);
}

TEST(ServeProgram, SaysWhereItListensAnswersAndEndsWhenItIsTold) {
  Serving serving(kStories, {"--model-name", "tales"});
  EXPECT_EQ(serving.first().at("event"), "listening");
  EXPECT_EQ(serving.first().at("model"), "tales");
  EXPECT_TRUE(answer(serving.port()).is_string());
  EXPECT_EQ(serving.terminate(), 0);
}

TEST(ServeProgram, RefusesAPortThatIsInUse) {
  const Serving serving(kStories);
  const Result result = run_weft({"serve", kStories, "--port", std::to_string(serving.port())});
  EXPECT_NE(result.exit_code, 0);
  expect_refusal(result, result.exit_code, "io_error", "in use");
  EXPECT_EQ(Client(serving.port()).get("/ready").status, 200);
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
  EXPECT_GT(serving.metric("weft_log_failures_total"), 0);
}

// A file that may grow no more, in the middle of a line, is to a writer what a full disk is.
TEST(ServeProgram, AnswersThoughItsDiskIsFullAndLogsAgainOnceThereIsRoom) {
  constexpr rlim_t kMost = 256 << 20, kRoom = 300;  // modules that are compiled meanwhile stay below it
  const std::string log = temporary_file("full.jsonl", "");
  std::filesystem::resize_file(log, kMost - kRoom);  // nothing of it is on the disk
  const Serving serving(kStories, {"--log-json"}, {.file_bytes = kMost, .log = log});
  const json expected = answer(serving.port());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(answer(serving.port()), expected);
  EXPECT_GT(serving.metric("weft_log_failures_total"), 0);
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

}  // namespace
}  // namespace weft::testing
