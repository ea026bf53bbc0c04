// What NVRTC made of a text of kernels, kept in a file under the key of the module: text, flags, target and compiler
// decide it. A text that is as it was is not compiled again, which takes seconds; one that has changed is.
//
//   KnownCubins known(WEFT_KNOWN_CUBINS, "sm_90a");
//   taken += known.rows(request, [&](const std::string& cubin) { return rows_of(cubin); });
//
// A line of the file is a section, the key's first digits and a row. With WEFT_UPDATE_GOLDEN set every text is
// compiled, and the section's lines are written anew.
#pragma once

#include <fmt/format.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "jit/key.h"
#include "jit/toolchain.h"
#include "tests/support/cubins.h"

namespace weft::testing {

class KnownCubins {
 public:
  KnownCubins(std::string file, std::string section) : file_(std::move(file)), section_(std::move(section)) {
    std::ifstream lines(file_);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string of, key, row;
      words >> of >> key >> std::ws;
      std::getline(words, row);
      if (of == section_)
        known_[key] += row + "\n";
      else
        others_.push_back(line);
    }
    if (updates()) known_.clear();
  }
  KnownCubins(const KnownCubins&) = delete;
  KnownCubins& operator=(const KnownCubins&) = delete;
  ~KnownCubins() {
    if (!updates()) return;
    std::ofstream lines(file_);
    for (const std::string& line : others_) lines << line << "\n";
    lines << made_;
  }

  // The rows, each with its end of line, that the request's cubin gives: known, or `rows_of` it, which is then made.
  template <class RowsOf>
  std::string rows(const jit::Request& request, const RowsOf& rows_of) {
    const jit::CompilerSearch search = request.target.toolchain->find(nullptr);
    const jit::RequestId id = jit::request_id(request);
    const std::string key = jit::entry_key(id, search.compiler->identity).substr(0, 16);
    if (const auto found = known_.find(key); found != known_.end()) return found->second;
    count_cubin();
    const std::string rows = rows_of(request.target.toolchain->compile(*search.compiler, request, id.flags, ""));
    std::istringstream lines(rows);
    for (std::string row; std::getline(lines, row);) made_ += fmt::format("{} {} {}\n", section_, key, row);
    return known_[key] = rows;
  }
  // That it compiles at all.
  void expect_compiles(const jit::Request& request) {
    rows(request, [&](const std::string&) { return request.name + "\n"; });
  }

 private:
  static bool updates() { return std::getenv("WEFT_UPDATE_GOLDEN") != nullptr; }
  const std::string file_, section_;
  std::map<std::string, std::string> known_;
  std::vector<std::string> others_;
  std::string made_;
};

}  // namespace weft::testing
