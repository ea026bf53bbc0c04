#include "device/cuda/stream_order.h"

#include "device/cuda/graph.h"

namespace weft::cuda {

void StreamOrder::begin(Card& card, api::Stream stream) {
  if (done_ != nullptr && last_ != stream && !is_capturing(card, stream)) wait(stream, *done_);
}

void StreamOrder::end(Card& card, api::Stream stream) {
  if (is_capturing(card, stream)) return;
  if (!own_) own_ = make_event(card);
  record(own_, stream);
  end(stream, own_);
}

void StreamOrder::end(api::Stream stream, const Event& done) {
  done_ = &done;
  last_ = stream;
}

}  // namespace weft::cuda
