// `weft serve` as a process, for tests.
//
//   Serving serving(model, {"--max-queued", "1"});
//   Client(serving.port()).get("/ready");
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft::testing {

// Its first line is read, and nothing of what follows.
class Serving {
 public:
  // What the process has; `log` is its stdout instead of a pipe.
  struct Limits {
    rlim_t descriptors = 0, file_bytes = 0;  // 0: as they are
    std::string log = {};
  };
  // With precision exact.
  explicit Serving(const std::string& model, const std::vector<std::string>& more = {});
  Serving(const std::string& model, const std::vector<std::string>& more, const Limits& limits);
  ~Serving();
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  const nlohmann::json& first() const { return first_; }
  int port() const;
  void stop_reading();
  void signal(int number) const;
  int terminate();                               // its exit code; -1: a signal ended it
  double metric(const std::string& name) const;  // -1: there is none of that name

 private:
  int wait();
  pid_t child_ = -1;
  int out_ = -1;
  nlohmann::json first_;
};

}  // namespace weft::testing
