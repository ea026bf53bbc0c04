// A step of the forward pass: the rows that go through the layers together.
#pragma once

#include <cstdint>
#include <vector>

#include "decode/sequences.h"
#include "weft/levels.h"
#include "weft/ops.h"

namespace weft::decode {

struct Step {
  std::vector<int32_t> tokens, positions;  // [rows]
  std::vector<int32_t> qo_indptr{0};       // [requests + 1]: whose rows they are
  Sequences::View pages;                   // of each request, this step's tokens included
  std::vector<int64_t> wanted;             // rows that give logits, ascending
  bool invariant = false;                  // ForwardPass::Input::invariant, of all rows
  // Pages that requests share, where somebody says so.
  std::vector<int32_t> prefix_parents, prefix_pages, node_of_request;

  bool has_prefixes() const { return !prefix_parents.empty(); }
  SharedPrefixes prefixes() const {
    return {.parent = prefix_parents, .num_pages = prefix_pages, .node_of_request = node_of_request};
  }

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
  // Tokens of all requests, this step's included.
  int64_t kv_tokens() const {
    int64_t sum = 0;
    for (size_t r = 1; r < qo_indptr.size(); ++r) sum += positions[static_cast<size_t>(qo_indptr[r]) - 1] + 1;
    return sum;
  }
  void clear() {
    tokens.clear();
    positions.clear();
    qo_indptr.assign(1, 0);
    pages.clear();
    wanted.clear();
    node_of_request.clear();
  }
};

// What a step leaves of each wanted row, in host memory: one of them.
struct StepOutput {
  float* logits = nullptr;    // [wanted, vocab]
  int32_t* greedy = nullptr;  // [wanted]: the first of the greatest logits; -1: all of them are -inf or NaN
  int32_t* drawn = nullptr;   // [wanted]: as draws [wanted] say; -1: nothing can be drawn
  const TokenDraw* draws = nullptr;
};

}  // namespace weft::decode
