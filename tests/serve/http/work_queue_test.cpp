#include "serve/http/work_queue.h"

#include <gtest/gtest.h>

#include <ctime>
#include <future>
#include <memory>

#include "serve/http/failure.h"

namespace weft::serve::http {
namespace {

void burn(double seconds) {  // of this thread's CPU time
  const auto now = [] {
    timespec at{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return static_cast<double>(at.tv_sec) + static_cast<double>(at.tv_nsec) * 1e-9;
  };
  const double end = now() + seconds;
  while (now() < end) {
  }
}

// One thread tells another, and may still be about it when that one is gone: each takes a copy.
class Signal {
 public:
  void set() const { promise_->set_value(); }
  void wait() const { future_.wait(); }

 private:
  std::shared_ptr<std::promise<void>> promise_ = std::make_shared<std::promise<void>>();
  std::shared_future<void> future_ = promise_->get_future().share();
};

// Holds up one of the threads until it goes.
class Gate {
 public:
  Gate(WorkQueue& queue, size_t bytes) {
    const Signal entered;
    queue.add("gate", bytes, [entered, open = open_] {
      entered.set();
      open.wait();
    });
    entered.wait();
  }
  void open() { open_.set(); }

 private:
  Signal open_;
};

TEST(WorkQueue, KeysTakeTurnsByTheTimeThatTheirBodiesTook) {
  std::string order;
  {
    WorkQueue queue(1 << 20);
    Gate gate(queue, 1);
    const Signal done;
    for (const double seconds : {0.03, 0.001, 0.001})
      queue.add("slow", 1, [&order, seconds] { order += 's', burn(seconds); });
    for (int i = 0; i < 3; ++i) queue.add("quick", 1, [&order] { order += 'q', burn(0.001); });
    queue.add("quick", 1, [&order, done] { order += 'Q', burn(0.05), done.set(); });
    gate.open();
    done.wait();
    const Signal last;
    queue.add("slow", 1, [last] { last.set(); });
    last.wait();
  }
  std::string first = order.substr(0, 6);
  EXPECT_TRUE(first == "qsqqQs" || first == "sqqqQs") << order;
}

TEST(WorkQueue, AKeySavesUpNoTimeInWhichItAskedForNothing) {
  std::string order;
  {
    WorkQueue queue(1 << 20);
    const Signal warm;
    for (int i = 0; i < 5; ++i) queue.add("busy", 1, [] { burn(0.02); });
    queue.add("busy", 1, [warm] { warm.set(); });
    warm.wait();
    Gate gate(queue, 1);
    const Signal last;
    for (int i = 0; i < 6; ++i) queue.add("new", 1, [&order] { order += 'n', burn(0.01); });
    for (int i = 0; i < 6; ++i) queue.add("busy", 1, [&order] { order += 'b', burn(0.01); });
    queue.add("busy", 1, [last] { last.set(); });
    gate.open();
    last.wait();
  }
  EXPECT_NE(order.substr(0, 6), "nnnnnn") << order;
}

TEST(WorkQueue, ShortBodiesPassLongOnes) {
  WorkQueue queue(1 << 20);
  Gate gate(queue, WorkQueue::kLongBody + 1);
  const Signal read;
  queue.add("gate", WorkQueue::kLongBody, [read] { read.set(); });
  read.wait();
  gate.open();
}

TEST(WorkQueue, RefusesAKeyWhatItsBodiesThatWaitLeaveNoRoomFor) {
  WorkQueue queue(1000);
  Gate gate(queue, 600);
  const auto check = [&](const std::string& key, size_t bytes) {
    try {
      queue.check(key, bytes);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.limit, Limit::max_waiting_bytes);
      return failure.status;
    }
    return 200;
  };
  EXPECT_EQ(check("gate", 400), 200);
  EXPECT_EQ(check("gate", 401), 429);
  EXPECT_EQ(check("other", 5000), 200);  // there is always room for one
  EXPECT_EQ(check("gate", WorkQueue::kLongBody + 1), 200);
  EXPECT_EQ(queue.bodies(), 1);
  gate.open();
  while (queue.bodies() > 0) std::this_thread::yield();
  EXPECT_EQ(check("gate", 401), 200);
}

TEST(WorkQueue, DropsWhatWaitsWhenItEnds) {
  const auto held = std::make_shared<int>();
  {
    const Signal entered;
    WorkQueue queue(1000);
    queue.add("a", 1, [entered] {
      entered.set();
      burn(0.05);
    });
    entered.wait();
    queue.add("a", 1, [held] { burn(100); });
  }
  EXPECT_EQ(held.use_count(), 1);
}

}  // namespace
}  // namespace weft::serve::http
