#include "serve/http/work_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <exception>

#include "serve/http/failure.h"
#include "serve/http/thread_slice.h"

namespace weft::serve::http {
namespace {

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

WorkQueue::Lane::Lane(int64_t most_bytes, bool behind_others)
    : most_bytes_(most_bytes), thread_([this, behind_others] { run(behind_others); }) {}

WorkQueue::Lane::~Lane() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WorkQueue::Lane::check(const std::string& key, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(key);
  if (found == keys_.end() || found->second.bytes == 0) return;
  const int64_t waiting = found->second.bytes;
  if (static_cast<int64_t>(bytes) > most_bytes_ - waiting)
    throw Failure(429, "queue_full",
                  fmt::format("bodies of {} bytes wait to be read for this key; with {} more that is above {}: try "
                              "again later, or raise --max-waiting-bytes",
                              waiting, bytes, most_bytes_),
                  {}, Limit::max_waiting_bytes);
}

void WorkQueue::Lane::add(const std::string& key_name, size_t bytes, Work work) {
  const std::lock_guard lock(mutex_);
  Key& key = keys_[key_name];
  key.items.push_back({static_cast<int64_t>(bytes), std::move(work)});
  // Time in which it asked for nothing is not saved up.
  if (key.bytes == 0 && key.items.size() == 1) key.seconds = std::max(key.seconds, seconds_);
  key.bytes += static_cast<int64_t>(bytes);
  ++bodies_;
  wake_.notify_one();
}

int64_t WorkQueue::Lane::bodies() const {
  const std::lock_guard lock(mutex_);
  return bodies_;
}

// The key with work that has had the least time.
WorkQueue::Lane::Key* WorkQueue::Lane::next() {
  Key* least = nullptr;
  for (auto& [name, key] : keys_)
    if (!key.items.empty() && (least == nullptr || key.seconds < least->seconds)) least = &key;
  return least;
}

void WorkQueue::Lane::run(bool behind_others) {
  if (behind_others)
    run_behind_others();
  else
    run_soon_and_briefly();
  for (;;) {
    std::unique_lock lock(mutex_);
    Key* key = nullptr;
    wake_.wait(lock, [&] { return ending_ || (key = next()) != nullptr; });
    if (ending_) return;
    Item item = std::move(key->items.front());
    key->items.pop_front();
    seconds_ = key->seconds;
    lock.unlock();
    const double begin = thread_seconds();
    try {
      item.work();
    } catch (const std::exception&) {  // not even the failure could be said: the connection ends with its last holder
    }
    item.work = nullptr;
    const double seconds = thread_seconds() - begin;
    lock.lock();
    key->seconds += seconds;
    key->bytes -= item.bytes;
    --bodies_;
  }
}

}  // namespace weft::serve::http
