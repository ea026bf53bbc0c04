// Streams of a card's own, events in streams, and waiting for either.
//
//   OwnedStream stream = make_stream(card);
//   Event done = make_event(card);
//   record(done, stream.get());  wait(other.get(), done);  synchronize(card, stream.get());
#pragma once

#include "device/cuda/handle.h"

namespace weft::cuda {

using OwnedStream = Handle<api::Stream, &Driver::stream_destroy>;
using Event = Handle<api::Event, &Driver::event_destroy>;

// It does not wait for the legacy default stream.
OwnedStream make_stream(Card& card);
// `timed` ones cost a little more, and tell how much time lies between two.
Event make_event(Card& card, bool timed = false);

void record(const Event& event, api::Stream stream);
// What comes next in the stream waits for the event; the host does not.
void wait(api::Stream stream, const Event& event);
void wait(const Event& event);     // the host does
bool is_done(const Event& event);  // recorded never: done
double milliseconds_between(const Event& begin, const Event& end);

// Until all of the stream has ended. Throws Error(device_failed) for what went wrong since the last time.
void synchronize(Card& card, api::Stream stream);

}  // namespace weft::cuda
