// What an Operator holds.
#pragma once

#include <memory>
#include <mutex>

#include "sparse/loaded.h"

namespace weft::sparse {

struct Operator::Impl {
  explicit Impl(Compilation compilation) : made(std::move(compilation)) {}
  Compilation made;
  std::unique_ptr<const Loaded> loaded = {};  // null: compiled up to some pass
  // Formats made of the structures of the last run, their values, and memory of temporary buffers.
  std::mutex mutex = {};
  std::unique_ptr<Bound> last = {};
  bool has_values = false;
};

}  // namespace weft::sparse
