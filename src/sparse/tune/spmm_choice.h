// What SpMM over one structure can be run as.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace weft::sparse {

struct SpmmChoice {
  std::string format = "csr";  // as SparseOptions names it, but for "auto"
  int64_t prefetch = 0;        // elements ahead; 0: not
  int64_t tile = 0;            // of CSR: features that pass by all rows before the next do; 0: all at once
  friend bool operator==(const SpmmChoice&, const SpmmChoice&) = default;
};

// What was chosen for a structure, by what its calls are like.
struct ChoiceMemo {
  std::mutex mutex = {};
  std::map<int64_t, SpmmChoice> choices = {};    // of SpMM
  std::map<std::string, std::string> ways = {};  // of other operators
};

}  // namespace weft::sparse
