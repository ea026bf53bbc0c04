// What the CPU's backend of the operators is made of.
#pragma once

#include "ops/backend.h"

namespace weft::ops {

void append_on_cpu(const AppendCall& call, Stream stream);
void multiply_on_cpu(const MatmulCall& call, Stream stream);
void summarise_on_cpu(const SummaryCall& call, Stream stream);
void choose_on_cpu(const ChooseCall& call, Stream stream);
void set_pages_on_cpu(const SetPagesCall& call, Stream stream);

}  // namespace weft::ops
