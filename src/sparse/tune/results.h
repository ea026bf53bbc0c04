// What searches have measured, by the structure: in files of the kernel cache, so that a search goes on where another
// ended, in this process or a later one.
//
//   const std::string key = results_key(*structure.data(), "spmm 64 4");
//   std::vector<Measured> known = read_results(key);
#pragma once

#include <string>
#include <vector>

#include "sparse/formats/structure.h"

namespace weft::sparse {

struct Measured {
  std::string choice = {};  // one line
  double seconds = 0;
};

// Tells structures, calls, instruction sets and processors, or cards, apart. Reads every index of the structure.
std::string results_key(const Structure::Data& structure, const std::string& call, Device device = {});
// One key for all structures that are alike in this (card_choice.h), on a card.
std::string likeness_key(const std::string& likeness, const std::string& call, Device device);
// What was kept under the key, in that order; nothing where nothing was, or it cannot be read.
std::vector<Measured> read_results(const std::string& key);
// Replaces what was kept, in one step. False where the cache's folder cannot be written.
bool keep_results(const std::string& key, const std::vector<Measured>& results);

}  // namespace weft::sparse
