// What an Operator holds.
#pragma once

#include <memory>
#include <mutex>

#include "device/cpu/module.h"
#include "sparse/bind.h"
#include "sparse/compile.h"

namespace weft::sparse {

struct Operator::Impl {
  Compilation made;
  std::shared_ptr<const Module> module = {};
  using Phase = void (*)(void* const* buffers, const long long* scalars, int worker, int workers);
  struct Entry {
    Phase call = nullptr;
    bool parallel = false;
  };
  std::vector<Entry> preprocess = {}, compute = {};
  // Formats made of the structures of the last run, and their values.
  std::mutex mutex = {};
  std::unique_ptr<Bound> last = {};
  bool has_values = false;
};

}  // namespace weft::sparse
