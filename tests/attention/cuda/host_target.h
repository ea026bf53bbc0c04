// The host machine (tests/simt/host) as a target of attention's tests.
#pragma once

#include "tests/attention/kernels/target.h"
#include "tests/simt/host/host_machine.h"

namespace weft::testing {

// With the first call it takes the place of cards.
const Target& host_machine();

}  // namespace weft::testing
