// The first card is what these tests run on (tests/device/cuda/needs_card.cpp: where there is one).
#include "card_target.h"

namespace weft::testing {

std::span<const Target* const> targets() {
  static const CardTarget card;
  static const Target* const all[] = {&card};
  return all;
}

}  // namespace weft::testing
