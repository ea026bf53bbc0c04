// What a Structure holds.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "sparse/formats/rule.h"
#include "sparse/tune/format_choice.h"
#include "weft/device.h"
#include "weft/sparse.h"

namespace weft::sparse {

// One axis, with its arrays; the first has no parent.
struct Level {
  bool is_sparse = false, is_variable = false;
  int64_t length = 0;
  int64_t num_positions = 0;  // of all parents together
  int64_t per_parent = 0;     // of a fixed axis with a parent
  std::vector<int32_t> indptr = {}, indices = {};
  std::string name = {};  // for messages, of one that is made axis by axis: "axis 1 'J'"
};

struct LongRows;            // operators/long_rows.h
struct KeptRelationGroups;  // operators/relation_groups.h

// Arrays of a structure on cards, by card and by where the host has them.
struct ArrayCopies {
  std::mutex mutex = {};
  std::map<std::pair<int, const void*>, Workspace> arrays = {};
};

struct Structure::Data {
  explicit Data(std::vector<Level> all) : levels(std::move(all)) {}
  std::vector<Level> levels;
  std::vector<int32_t> order = {};                      // of a transpose: where its matrix holds each element
  mutable std::atomic<const void*> compared = nullptr;  // a caller's array that was found to say the same
  mutable ChoiceMemo choices = {};                      // thread-safe
  mutable ArrayCopies copies = {};
  // Once somebody asked, under the lock of `choices`: of CSR; of relations in tiles.
  mutable std::shared_ptr<LongRows> long_rows = {};
  mutable std::shared_ptr<KeptRelationGroups> relation_groups = {};
};

// Throws where a level breaks the rules above, naming it.
Structure make_structure(std::vector<Level> levels);
const Structure::Data& data_of(const Structure& structure, const char* name);
// Of a CSR structure.
Coordinates coordinates_of(const Structure::Data& structure);

// The list's elements by row, then column. Throws Error(invalid_argument) for what does not fit, lies outside or stands
// twice.
std::vector<int64_t> sorted_order(const Coo& coo);

}  // namespace weft::sparse
