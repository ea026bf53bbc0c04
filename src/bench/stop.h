// Ends a bench between its steps.
//
//   stop_when([] { return interrupted.load(); });  // by whom it runs for; before it starts
//   stop_if_asked();                               // in a bench
#pragma once

namespace weft::bench {

// Thrown where a bench ends early.
struct Stopped {};

// Never, until this says otherwise. Not while a bench runs.
void stop_when(bool (*asked)());
bool asked_to_stop();
// Throws Stopped.
void stop_if_asked();

}  // namespace weft::bench
