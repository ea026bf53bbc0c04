// What a contestant written in C++ speaks on stdin and stdout, one JSON object a line (protocol.py is its twin):
//
//   {"prepare": {...}}  ->  {"ready": true}, or {"refused": "why"}   the row to measure, as rows.py writes it
//   {"run": true}       ->  {"seconds": 0.0012}                      one operation of the row, timed within the process
#pragma once

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
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
        read = prepare(request["prepare"]);
        answer({{"ready", true}});
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
