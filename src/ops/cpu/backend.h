// What the CPU's backend of the operators is made of.
#pragma once

#include "ops/backend.h"

namespace weft::ops {

void append_on_cpu(const AppendCall& call, Stream stream);
void multiply_on_cpu(const MatmulCall& call, Stream stream);

}  // namespace weft::ops
