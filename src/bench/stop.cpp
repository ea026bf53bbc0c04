#include "bench/stop.h"

namespace weft::bench {
namespace {

bool (*is_asked)() = nullptr;

}  // namespace

void stop_when(bool (*asked)()) { is_asked = asked; }

bool asked_to_stop() { return is_asked != nullptr && is_asked(); }

void stop_if_asked() {
  if (asked_to_stop()) throw Stopped();
}

}  // namespace weft::bench
