// Runs the built `weft` as a user would.
//
//   const Result result = run_weft({"tokenize", model, "-p", "hello", "--json"});
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft::testing {

struct Result {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string out, err;

  std::vector<std::string> lines() const;  // of out
  nlohmann::json last() const;             // the last line of out
};

struct RunOptions {
  std::string input = {};                     // on stdin
  std::vector<std::string> environment = {};  // "NAME=value", beside the test's own
  int interrupt_at_line = -1;                 // sends SIGINT once out has so many lines
  int close_out_at_line = -1;                 // closes the reading end of stdout then
};

// Fails the test when the program does not end within a minute.
Result run_weft(const std::vector<std::string>& arguments, const RunOptions& options = {});

// A file below the test's temporary folder, with that content.
std::string temporary_file(const std::string& name, const std::string& content);

}  // namespace weft::testing
