// Stage II -> stage III: axes go, buffers become flat (equations 3.6 to 3.8, as corrected below), blocks dissolve.
//
//   Stage3 flat = lower_buffers(stage);
//   to_text(flat);          // ... A[j_indptr[i] + j] ...
//
// offset(i) = x_i for a root; offset(parent) * nnz_cols + x_i for a fixed axis; indptr[offset(parent)] + x_i for a
// variable one. A buffer's axes are chains, one after another: the element's place is the sum of the last offset of
// each chain times the number of positions of the chains after it.
#pragma once

#include "sparse/stage2/stage2.h"

namespace weft::sparse {

// Stage III: flat loops.
struct Stage3 {
  loop::Function function;
  friend bool operator==(const Stage3&, const Stage3&) = default;
};

Stage3 lower_buffers(Stage2 stage);
inline std::string to_text(const Stage3& stage) { return loop::to_text(stage.function); }

}  // namespace weft::sparse
