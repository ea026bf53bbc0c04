#include "tests/cli/serving.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <stdexcept>
#include <utility>

#include "tests/serve/http/client.h"

namespace weft::testing {

Serving::Serving(const std::string& model, const std::vector<std::string>& more) : Serving(model, more, Limits()) {}

Serving::Serving(const std::string& model, const std::vector<std::string>& more, const Limits& limits) {
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
  first_ = nlohmann::json::parse(line, nullptr, false);
  if (first_.is_discarded()) throw std::runtime_error("it did not start: " + line);
}

Serving::~Serving() {
  if (child_ > 0) signal(SIGKILL), wait();
  stop_reading();
}

int Serving::port() const {
  const std::string url = first_.at("url");
  return std::stoi(url.substr(url.rfind(':') + 1));
}

void Serving::stop_reading() {
  if (out_ >= 0) close(std::exchange(out_, -1));
}

void Serving::signal(int number) const { kill(child_, number); }

int Serving::terminate() {
  signal(SIGTERM);
  return wait();
}

double Serving::metric(const std::string& name) const {
  const std::string text = Client(port()).get("/metrics").body;
  const size_t at = text.find("\n" + name + " ");
  return at == std::string::npos ? -1 : std::stod(text.substr(at + name.size() + 2));
}

int Serving::wait() {
  int status = 0;
  waitpid(std::exchange(child_, -1), &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace weft::testing
