// Runs the built `weft` as a user would.
//
//   const Result result = run_weft({"tokenize", model, "-p", "hello", "--json"});
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace weft::testing {

inline const std::string kStories = WEFT_TEST_DATA "/stories260K.gguf";

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
  int interrupt_after_ms = -1;                // sends SIGINT so long after the start, and leaves stdin open until then
  std::string interrupt_at_text = {};         // sends SIGINT once stderr holds this
  bool terminal = false;                      // stdin is a terminal; the input is typed, and what it echoes is dropped
  std::vector<int> closed = {};               // descriptors that are closed at the start
  std::string out_file = {};                  // stdout is this file instead
  int descriptors = 0;                        // that it may have; 0: as many as the test
  int address_space_gib = 0;                  // that it may have; 0: as much as the test
  std::string folder = {};                    // where it runs; "": where the test does
};

// Fails the test when the program does not end within a minute.
Result run_weft(const std::vector<std::string>& arguments, const RunOptions& options = {});

// A failure is one line on stderr, "weft: code: message", and nothing on stdout.
void expect_refusal(const Result& result, int exit_code, const std::string& code, const std::string& mentions);

// A file of that content in a folder that goes with this process.
std::string temporary_file(const std::string& name, const std::string& content);

}  // namespace weft::testing
