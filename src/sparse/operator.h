// What an Operator holds.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "sparse/backend.h"

namespace weft::sparse {

// What a run was bound to, with formats made of its structures, their values, and memory of temporary buffers. A run
// that differs from it in the addresses of its tensors alone is bound to no more than these.
struct Binding {
  RunArguments arguments = {};
  std::shared_ptr<Bound> bound = {};
};

struct Operator::Impl {
  Impl(Compilation compilation, Device on) : made(std::move(compilation)), device(on) {}
  Compilation made;
  Device device;                              // that it runs on
  std::unique_ptr<const Loaded> loaded = {};  // null: compiled up to some pass
  Names own = {};  // memory that is made here; a schedule may have kept a temporary buffer in registers
  std::mutex mutex = {};
  std::vector<Binding> bindings = {};                       // of the last runs, the last one last
  bool has_values = false;                                  // whether the last one's formats do
  std::vector<std::shared_ptr<const Bound>> captured = {};  // what graphs run with, for as long as the operator lives
};

}  // namespace weft::sparse
