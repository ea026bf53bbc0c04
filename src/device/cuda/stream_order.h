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
  // Of work that was not captured, behind which `done` was recorded. The event outlives this, and is recorded anew only
  // once that work has ended.
  void end(api::Stream stream, const Event& done);

 private:
  api::Stream last_ = nullptr;
  Event own_;
  const Event* done_ = nullptr;  // of the last stream's work; null: there was no work
};

}  // namespace weft::cuda
