// Reads bodies on threads of its own: parsing, rendering and tokenising text would hold up the sockets.
//
//   WorkQueue queue(32 << 20);
//   queue.check(key, body.size());                      // throws Failure(429)
//   queue.add(key, body.size(), [body] { read(body); });
//
// Bodies above kLongBody have a thread for themselves, which the system runs behind the engine's: short ones never wait
// for a long one. On either thread keys take turns by the CPU time that their bodies took, a key's own in order of
// arrival.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace weft::serve::http {

class WorkQueue {
 public:
  using Work = std::function<void()>;
  static constexpr size_t kLongBody = 64 << 10;  // bytes

  // `most_bytes`: of a key's bodies that wait on one of the threads.
  explicit WorkQueue(int64_t most_bytes) : short_(most_bytes, false), long_(most_bytes, true) {}
  // Throws Failure(429) where the key's bodies that wait leave no room for one more. A key always has room for one.
  void check(const std::string& key, size_t bytes) const { lane(bytes).check(key, bytes); }
  // Whatever check says. What `work` throws is dropped.
  void add(const std::string& key, size_t bytes, Work work) { lane(bytes).add(key, bytes, std::move(work)); }
  int64_t bodies() const { return short_.bodies() + long_.bodies(); }  // that wait or are read

 private:
  // Its destructor waits for the work at hand, and drops what waits.
  class Lane {
   public:
    Lane(int64_t most_bytes, bool behind_others);
    ~Lane();
    void check(const std::string& key, size_t bytes) const;
    void add(const std::string& key, size_t bytes, Work work);
    int64_t bodies() const;

   private:
    struct Item {
      int64_t bytes;
      Work work;
    };
    struct Key {
      std::deque<Item> items;
      int64_t bytes = 0;   // of what waits, and of the one at hand
      double seconds = 0;  // of CPU time, and what was given to it for having been away
    };
    void run(bool behind_others);
    Key* next();

    const int64_t most_bytes_;
    mutable std::mutex mutex_;
    std::condition_variable wake_;
    std::map<std::string, Key> keys_;
    double seconds_ = 0;  // of the key whose turn was the last, before it
    int64_t bodies_ = 0;
    bool ending_ = false;
    std::thread thread_;
  };
  Lane& lane(size_t bytes) { return bytes > kLongBody ? long_ : short_; }
  const Lane& lane(size_t bytes) const { return bytes > kLongBody ? long_ : short_; }

  Lane short_, long_;
};

}  // namespace weft::serve::http
