// What a contestant written in C++ speaks on stdin and stdout, one JSON object a line (protocol.py is its twin):
//
//   {"prepare": {...}}  ->  {"ready": true}, or {"refused": "why"}   the row to measure, as rows.py writes it; beside
//                           "ready" stand facts of the row, which the results keep: {"extra_mb": 12}
//   {"run": true}       ->  {"seconds": 0.0012}                      one operation of the row, timed within the process
#pragma once

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>
#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

namespace contest {

using Clock = std::chrono::steady_clock;
using Reading = std::function<double()>;  // seconds of one operation

inline double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Short operations are repeated, so that a reading lasts long enough to be timed.
inline double mean_seconds(const std::function<void()>& operation, double at_least_s = 0.1) {
  const auto start = Clock::now();
  int runs = 0;
  do {
    operation();
    ++runs;
  } while (seconds_since(start) < at_least_s);
  return seconds_since(start) / runs;
}

// Facts of the row that is ready.
inline nlohmann::json& facts() {
  static nlohmann::json facts = nlohmann::json::object();
  return facts;
}

// Runs it, and notes how much memory it takes beside what is there already: its temporaries at their most.
inline void note_memory_of(const std::function<void()>& operation) {
  const auto kilobytes = [](const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (long count = 0; word == name && status >> count) return count;
    return 0L;
  };
  std::ofstream("/proc/self/clear_refs") << 5;  // the peak is what is there now
  const long before = kilobytes("VmRSS:");
  operation();
  facts()["extra_mb"] = static_cast<double>(std::max(0L, kilobytes("VmHWM:") - before)) / 1024;
}

// Serves until stdin ends. `prepare` throws std::exception where it cannot measure the row: what it says is shown.
inline int serve(const std::function<Reading(const nlohmann::json& row)>& prepare) {
  // Answers alone go to stdout: what libraries print there joins stderr.
  std::FILE* answers = fdopen(dup(STDOUT_FILENO), "w");
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const auto answer = [answers](const nlohmann::json& line) {
    std::fprintf(answers, "%s\n", line.dump().c_str());
    std::fflush(answers);
  };
  Reading read;
  for (std::string line; std::getline(std::cin, line);) {
    const auto request = nlohmann::json::parse(line);
    try {
      if (request.contains("prepare")) {
        read = nullptr;
        facts() = nlohmann::json::object();
        read = prepare(request["prepare"]);
        nlohmann::json ready = facts();
        ready["ready"] = true;
        answer(ready);
      } else {
        answer({{"seconds", read()}});
      }
    } catch (const std::exception& error) {
      answer({{"refused", error.what()}});
    }
  }
  return 0;
}

}  // namespace contest
