// How the system treats the threads between clients and the engine.
#pragma once

namespace weft::serve::http {

// Asks the system to run this thread soon when it wakes, and briefly: the engine's workers keep all CPUs busy, and what
// comes or goes would wait for a time slice of theirs. Systems before Linux 6.12 take no notice.
void run_soon_and_briefly();
// For long work that nobody waits for next: this thread gets a tenth of what each of the engine's gets on a CPU that
// both want, and as brief slices as above.
void run_behind_others();

}  // namespace weft::serve::http
