// Draws of tokens from rows of logits that lie on a card (kernels/draw.h): the ids that ops::RowDraw draws.
//
//   CardDraws draws(device);
//   const int* ids = draws.run({logits, vocab, vocab}, {}, how, stream);   // [rows], on the card; -1: none can be
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/cuda/kernels/args.h"
#include "weft/device.h"
#include "weft/ops.h"

namespace weft::ops {

// [rows, vocab], rows `stride` apart.
struct CardLogits {
  float* data;
  int64_t vocab, stride;
};

class CardDraws {
 public:
  CardDraws() = default;
  explicit CardDraws(Device device) : device_(device) {}

  // Token i from row rows[i], no row twice, or from row i where there are no `rows`, by how[i], which fits the
  // vocabulary (check_draw). Logits that it changes are changed where they lie. Runs one behind the other: the ids are
  // there until the next one. With `to`, ids go there to stay, and a row without a token raises the card's flag too
  // (device/cuda/clamped.h).
  const int* run(const CardLogits& logits, std::span<const int64_t> rows, std::span<const TokenDraw> how, Stream stream,
                 int* to = nullptr);

 private:
  Device device_ = {};
  Workspace memory_ = {};  // rows, changes and masks, as they are uploaded; behind them the ids
  std::vector<DrawRow> rows_;
  std::vector<tile::LogitChange> changes_;
  std::vector<uint32_t> masks_;
};

// sample_probabilities on a card, of arguments that were checked: one launch, and nothing else.
void draw_from_probabilities(const ProbabilityDraws& draws, Stream stream);

}  // namespace weft::ops
