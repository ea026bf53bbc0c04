// How threads of a CTA, and CTAs of a launch, lie in three dimensions; x comes first.
#pragma once

namespace weft::simt {

struct CardShape {
  unsigned threads[3] = {32, 1, 1};
  unsigned ctas[3] = {1, 1, 1};
};
extern CardShape card_shape;

}  // namespace weft::simt
