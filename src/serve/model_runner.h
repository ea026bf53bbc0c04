// What the engine asks of a model: sequences over a pool of pages, and steps of pieces. No device is named here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/check.h"
#include "weft/levels.h"
#include "weft/ops.h"

namespace weft::serve {

class ModelRunner {
 public:
  using Sequence = int64_t;
  struct Limits {
    int page_size = 16;
    int64_t num_pages = 0;
    int64_t context = 0;  // tokens of a sequence
    int vocab_size = 0;
    bool reproducible = false;   // pieces may be
    std::string step_form = {};  // how steps run, in words
  };
  // `tokens` follow what the sequence holds; the last `logit_rows` of them give logits.
  struct Piece {
    Sequence sequence;
    std::span<const int32_t> tokens;
    int64_t logit_rows;
    bool reproducible = false;  // the same bits whatever else is in the step; these come last
  };

  virtual ~ModelRunner() = default;
  virtual Limits limits() const = 0;
  virtual int64_t num_free_pages() const = 0;
  // One that begins with these whole pages, which somebody holds.
  virtual Sequence add(std::span<const int32_t> pages) = 0;
  // Begins with the first `tokens` tokens of another; whole pages are shared, the rest of a page is copied.
  virtual Sequence fork(Sequence sequence, int64_t tokens) = 0;
  virtual void release(Sequence sequence) = 0;
  // In their order from the start; until the sequence changes.
  virtual std::span<const int32_t> pages(Sequence sequence) const = 0;
  // One more holder of each page, beside sequences, and one fewer.
  virtual void hold(std::span<const int32_t> pages) = 0;
  virtual void unhold(std::span<const int32_t> pages) = 0;
  // Work of a few ms that steps need not wait for then; false: there is none.
  virtual bool use_idle_time() { return false; }
  // Logits of all pieces, [rows, vocab_size], in the caller's hands until the next call. `prefixes`: the pages that
  // pieces are known to share, a request for each piece. Throws and changes nothing.
  virtual std::span<float> run(std::span<const Piece> pieces, const SharedPrefixes& prefixes) = 0;
  // Whether it has this one, too: of each row the id of its greatest logit alone, of equals the least; -1: the row's
  // logits are all -inf or NaN.
  virtual bool finds_ids() const { return false; }
  virtual std::span<const int32_t> run_greedy(std::span<const Piece>, const SharedPrefixes&) {
    throw InternalError("a model that finds no ids was asked for them");
  }
  // And an id of each row, drawn as it is said of the row (ForwardPass::run_sampled).
  virtual std::span<const int32_t> run_sampled(std::span<const Piece>, std::span<const TokenDraw>,
                                               const SharedPrefixes&) {
    throw InternalError("a model that finds no ids was asked for them");
  }
};

inline int64_t pages_of(int64_t tokens, int page_size) { return (tokens + page_size - 1) / page_size; }

}  // namespace weft::serve
