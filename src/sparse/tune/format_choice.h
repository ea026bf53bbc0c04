// What SpMM and SDDMM over one structure can be run as.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "sparse/formats/format.h"

namespace weft::sparse {

// On a card 0 is what tends to be best, `lanes` are features of a thread, and `group` are rows, or elements of SDDMM,
// side by side in a CTA.
struct FormatChoice {
  Formats formats = {};  // none: CSR as it is
  int64_t prefetch = 0;  // elements ahead; 0: not
  // Of SpMM in CSR: features that pass by a group of rows before the next do; 0: all at once. On a card: elements that
  // a thread has one after another, of SpMM in CSR a piece of a row; 0: rows are whole.
  int64_t tile = 0;
  int64_t lanes = 0;  // of a vector; 0: as many as the machine's
  // Rows that the team shares as one; of hyb's bucket i as many rows as have the elements of so many of the longest. 0:
  // rows one by one, balanced by their elements; with a tile, all rows are one group.
  int64_t group = 0;
  friend bool operator==(const FormatChoice&, const FormatChoice&) = default;
};

// What was chosen for a structure, by what its calls are like.
struct ChoiceMemo {
  std::mutex mutex = {};
  std::map<int64_t, FormatChoice> choices = {};        // of SpMM and SDDMM
  std::map<std::string, std::string> candidates = {};  // of other operators
};

}  // namespace weft::sparse
