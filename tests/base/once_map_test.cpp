#include "base/once_map.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {

TEST(OnceMap, MakesAValueOnceAndKeepsItsAddress) {
  OnceMap<std::string, int> map;
  int made = 0;
  const auto get = [&](const std::string& key) -> const int& { return map.get(0, key, [&] { return ++made; }); };
  const int& first = get("a");
  for (int i = 0; i < 100; ++i) get("other " + std::to_string(i));  // of the same hash, all of them
  EXPECT_EQ(&get("a"), &first);
  EXPECT_EQ(first, 1);
  EXPECT_EQ(made, 101);
  EXPECT_EQ(map.find(0, std::string("a")), &first);
  EXPECT_EQ(map.find(0, std::string("b")), nullptr);
}

TEST(OnceMap, AMakerThatThrowsLeavesNothingBehind) {
  OnceMap<std::string, int> map;
  const auto fail = []() -> int { throw std::runtime_error("no"); };
  for (int i = 0; i < 3; ++i) EXPECT_THROW(map.get(7, std::string("a"), fail), std::runtime_error);
  EXPECT_EQ(map.find(7, std::string("a")), nullptr);
  EXPECT_EQ(map.get(7, std::string("a"), [] { return 5; }), 5);
}

TEST(OnceMap, ThreadsThatAskForAKeyWaitForItsMakerAndTryAgainWhenItThrew) {
  for (int round = 0; round < 200; ++round) {
    OnceMap<int, int> map;
    std::atomic<int> making = 0, calls = 0, right = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&] {
        for (;;) {
          try {
            const int& value = map.get(0, 1, [&] {
              EXPECT_EQ(making.fetch_add(1), 0);  // one at a time
              const int call = calls.fetch_add(1);
              making.fetch_sub(1);
              if (call < 2) throw std::runtime_error("not yet");
              return call;
            });
            right += value == 2;
            return;
          } catch (const std::runtime_error&) {
          }
        }
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(right, 4);
    ASSERT_EQ(calls, 3);
  }
}

}  // namespace
}  // namespace weft
