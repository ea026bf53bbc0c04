#include "device/cuda/stream_order.h"

#include "device/cuda/graph.h"

namespace weft::cuda {

void StreamOrder::begin(Card& card, api::Stream stream) {
  if (done_ && last_ != stream && !is_capturing(card, stream)) wait(stream, done_);
}

void StreamOrder::end(Card& card, api::Stream stream) {
  if (is_capturing(card, stream)) return;
  if (!done_) done_ = make_event(card);
  record(done_, stream);
  last_ = stream;
}

}  // namespace weft::cuda
