// Memory that several streams work on, one after another.
//
//   StreamOrder order;                            // of the memory
//   order.begin(card, stream);                    // behind what other streams were given before
//   ... copies and launches in the stream ...
//   order.end(card, stream);                      // this is what other streams wait for
//
// Work that is captured is ordered by whoever launches its graph: `begin` and `end` then do nothing.
#pragma once

#include "device/cuda/stream.h"

namespace weft::cuda {

class StreamOrder {
 public:
  void begin(Card& card, api::Stream stream);
  void end(Card& card, api::Stream stream);

 private:
  api::Stream last_ = nullptr;
  Event done_;  // of the last stream's work; none: there was no work
};

}  // namespace weft::cuda
