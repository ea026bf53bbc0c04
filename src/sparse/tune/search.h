// The search that every tuner runs: measures candidates, which compute the same, likely ones first, until all are known
// or the time is over.
//
//   search(results_key(structure, "sddmm 64"), {{"prefetch 0", run_plainly}, ...}, 45, *stopwatch);
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sparse/backend.h"
#include "weft/sparse.h"

namespace weft::sparse {

struct Candidate {
  std::string name = {};              // one line
  std::function<void()> run = {};     // the first time compiles and makes formats; it is not timed
  std::function<void()> forget = {};  // what that made; unless there is nothing
};
// Results are kept by the key, and those that are known already are not measured again; the first candidate is measured
// however short the time. One that finds no memory is left.
// Throws Error(invalid_argument) for less than 0 seconds.
Tuned search(const std::string& key, const std::vector<Candidate>& candidates, double seconds,
             const Stopwatch& stopwatch);

// What the search for such calls has found, in this process or kept in the cache; "" where there was none. Asked once
// for each structure object.
std::string tuned_candidate(const Structure::Data& structure, const std::string& call, Device device = {});
void keep_candidate(const Structure::Data& structure, const std::string& call, const std::string& candidate);
// The number behind a word of a candidate's name, "prefetch 16"; `otherwise` where it has none.
int64_t number_in(const std::string& candidate, const std::string& word, int64_t otherwise);
// Values of fp32 to measure with: those of zeros and ones take as long as others, but pages of a CPU that were never
// written are one page.
Workspace ones(int64_t count, Device device = {});

}  // namespace weft::sparse
