// A step of the forward pass: the rows that go through the layers together.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/sequences.h"

namespace weft::decode {

struct Step {
  std::vector<int32_t> tokens, positions;  // [rows]
  std::vector<int32_t> qo_indptr{0};       // [requests + 1]: whose rows they are
  Sequences::View pages;                   // of each request, this step's tokens included
  std::vector<int64_t> wanted;             // rows that give logits, ascending

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  void clear() {
    tokens.clear();
    positions.clear();
    qo_indptr.assign(1, 0);
    pages.clear();
    wanted.clear();
  }
};

}  // namespace weft::decode
