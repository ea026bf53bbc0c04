// What a device has made of a compilation: code that can be started there.
#pragma once

#include <memory>

#include "sparse/bind.h"
#include "sparse/compile.h"

namespace weft::sparse {

class Loaded {
 public:
  virtual ~Loaded() = default;
  // Fills the buffers of other formats; then what is computed always. Both return when done.
  virtual void preprocess(const Bound& bound, Stream stream) const = 0;
  virtual void compute(const Bound& bound, Stream stream) const = 0;
};

// Compiles and loads the text; throws like jit/build.h.
std::unique_ptr<const Loaded> load_on_cpu(const Compilation& made);  // of sparse/cpu

}  // namespace weft::sparse
