#include "serve/http/log_thread.h"

namespace weft::serve::http {
namespace {

constexpr size_t kMostLines = 1024;

}  // namespace

LogThread::~LogThread() {
  thread_.request_stop();
  thread_.join();
}

void LogThread::add(std::string line) {
  const std::lock_guard lock(mutex_);
  if (lines_.size() >= kMostLines) return count_failure();
  lines_.push_back(std::move(line));
  wake_.notify_one();
}

void LogThread::run(const std::stop_token& end) {
  for (;;) {
    std::unique_lock lock(mutex_);
    wake_.wait(lock, end, [&] { return !lines_.empty(); });
    if (lines_.empty()) return;
    const std::string line = std::move(lines_.front());
    lines_.pop_front();
    lock.unlock();
    try {
      write_(line, end);
    } catch (const std::exception&) {
      count_failure();
      if (end.stop_requested()) return;
    }
  }
}

}  // namespace weft::serve::http
