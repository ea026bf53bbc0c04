// Writes lines of the log, so that nobody waits for whoever reads them: lines that come while too many wait are
// dropped.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace weft::serve::http {

class LogThread {
 public:
  using Write = std::function<void(const std::string& line, const std::stop_token& end)>;
  explicit LogThread(Write write)
      : write_(std::move(write)), thread_([this](const std::stop_token& end) { run(end); }) {}
  // Ends with what `write` lets through without waiting.
  ~LogThread();
  void add(std::string line);
  void count_failure() noexcept { ++failures_; }
  uint64_t failures() const { return failures_; }  // lines that were dropped, or that could not be written

 private:
  void run(const std::stop_token& end);

  const Write write_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::deque<std::string> lines_;
  std::atomic<uint64_t> failures_ = 0;
  std::jthread thread_;
};

}  // namespace weft::serve::http
