#include "device/cuda/stream.h"

namespace weft::cuda {

OwnedStream make_stream(Card& card) {
  const Current current(card);
  api::Stream stream = nullptr;
  card.check(card.driver().stream_create(&stream, api::kStreamNonBlocking), "making a stream");
  return {card, stream};
}

Event make_event(Card& card, bool timed) {
  const Current current(card);
  api::Event event = nullptr;
  card.check(card.driver().event_create(&event, timed ? 0u : api::kEventDisableTiming), "making an event");
  return {card, event};
}

void record(const Event& event, api::Stream stream) {
  Card& card = event.card();
  const Current current(card);
  card.check(card.driver().event_record(event.get(), stream), "recording an event");
}

void wait(api::Stream stream, const Event& event) {
  Card& card = event.card();
  const Current current(card);
  card.check(card.driver().stream_wait_event(stream, event.get(), 0), "waiting for an event");
}

void wait(const Event& event) {
  Card& card = event.card();
  card.check(card.driver().event_synchronize(event.get()), "waiting for an event");
}

bool is_done(const Event& event) {
  const api::Result result = event.card().driver().event_query(event.get());
  if (result == api::kNotReady) return false;
  event.card().check(result, "asking an event");
  return true;
}

double milliseconds_between(const Event& begin, const Event& end) {
  float milliseconds = 0;
  end.card().check(end.card().driver().event_elapsed_time(&milliseconds, begin.get(), end.get()), "reading two events");
  return milliseconds;
}

void synchronize(Card& card, api::Stream stream) {
  const Current current(card);
  card.check(card.driver().stream_synchronize(stream), "waiting for a stream");
  card.forget_launches();
}

}  // namespace weft::cuda
