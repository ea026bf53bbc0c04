// What the CPU's backend of the operators is made of.
#pragma once

#include "ops/append.h"
#include "weft/device.h"

namespace weft::ops {

void append_on_cpu(const AppendCall& call, Stream stream);

}  // namespace weft::ops
